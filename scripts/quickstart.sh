#!/usr/bin/env bash
# Sets .venv up (once) and runs the demo; arguments go to `fluxmem demo`. Environment: PYTHON, FLUXMEM_TORCH.
set -euo pipefail
case "${1:-}" in
    -h | --help)
        echo "usage: scripts/quickstart.sh [--directory DIR] [--json]: sets .venv up once, then runs the demo"
        exit 0
        ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"

ensure_environment plain
"$venv/bin/fluxmem" demo "$@"
