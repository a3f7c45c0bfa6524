"""`fluxmem backup` and `restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import count_of, print_json
from .session import NamedPath, Session, Verb

if TYPE_CHECKING:
    from fluxmem_local.storage.backup import BackupReport

__all__ = ["COMMANDS"]


@click.command(cls=Verb)
@click.argument("folder", type=NamedPath(path_type=Path, file_okay=False))
@click.pass_obj
def backup(session: Session, folder: Path) -> None:
    """Copy the memory as it is now into FOLDER, where there is none, while others go on working with it.

    The copy is a memory of its own, in one database file; `--memory FOLDER` opens it, `restore` copies it back.

    \b
    Example:
      fluxmem backup backups/monday
    """
    with session.open() as agent:
        _tell(session, agent.backup(folder))


@click.command(cls=Verb)
@click.argument("folder", type=NamedPath(path_type=Path, file_okay=False))
@click.pass_obj
def restore(session: Session, folder: Path) -> None:
    """Make the memory, where there is none yet, from the backup in FOLDER, which stays as it is.

    \b
    Example:
      fluxmem --memory ./again restore backups/monday
    """
    # Here, because help should not load the whole system.
    from fluxmem_local.agent.agent import FluxMemAgent

    _tell(session, FluxMemAgent.restore(folder, session.directory))


def _tell(session: Session, report: BackupReport) -> None:
    if session.as_json:
        print_json(report)
    else:
        click.echo(f"{report.path}: {count_of(report.num_nodes, 'memory', 'memories')}, {report.size_bytes:,} bytes")


COMMANDS = {"backup": backup, "restore": restore}
