#!/usr/bin/env bash
# Sets .venv up with the test tools (once), then runs all checks and all tests; arguments go to pytest.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"

ensure_environment test
"$root/scripts/check.sh"
cd "$root"
"$venv/bin/python" -m pytest "$@"
