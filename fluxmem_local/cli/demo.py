"""`fluxmem demo`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .session import Session, Verb

__all__ = ["COMMANDS"]


@click.command(cls=Verb)
@click.option(
    "--directory", type=click.Path(path_type=Path, file_okay=False), help="Where to put its files; else a new folder."
)
@click.pass_obj
def demo(session: Session, directory: Path | None) -> None:
    """Run the case study: a memory that fails a task, repairs itself, and then gets the next one right at once.

    It works in a memory of its own, with the configured local models, and needs no network.

    \b
    Example:
      fluxmem demo --directory ./demo
    """
    # Here, because the help of this verb should not load the demo.
    from fluxmem_local.demo.runner import run_demo

    sys.exit(run_demo(directory, as_json=session.as_json))


COMMANDS = {"demo": demo}
