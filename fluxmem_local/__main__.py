"""`python -m fluxmem_local` is the command `fluxmem`."""

from __future__ import annotations

from fluxmem_local.cli.main import main

if __name__ == "__main__":
    main()
