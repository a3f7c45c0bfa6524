#!/usr/bin/env bash
# Sets .venv up (once) and runs the demo; arguments go to `fluxmem demo`. Environment: PYTHON, FLUXMEM_TORCH.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"

ensure_environment plain
"$venv/bin/fluxmem" demo "$@"
