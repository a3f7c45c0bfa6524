#!/usr/bin/env bash
# Lint, format, types, import directions, and texts that must agree with the code. Needs what scripts/test.sh installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=.venv/bin
if [ ! -x "$bin/ruff" ]; then
    echo "check.sh: the test tools are not installed; run scripts/test.sh" >&2
    exit 1
fi

"$bin/python" -m ruff check --quiet .
"$bin/python" -m ruff format --check --quiet .
"$bin/python" -m mypy
"$bin/lint-imports"

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' fluxmem_local/__init__.py)
newest=$(sed -n 's/^## \([0-9][^ ]*\).*/\1/p' CHANGELOG.md | head -n 1)
if [ "$version" != "$newest" ]; then
    echo "check.sh: __version__ is $version and CHANGELOG.md's newest entry is $newest; make them one" >&2
    exit 1
fi
"$bin/python" scripts/make_docs.py --check
