"""`fluxmem init` and `fluxmem add`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fluxmem_local.agent.knowledge import IngestReport
from fluxmem_local.errors import FluxMemError, ImportFormatError, InvalidInputError, ModelError, StorageError
from fluxmem_local.types import Origin, Scope

from .conditions import added_by_option
from .output import BAD_INPUT, note, print_json
from .progress import progress
from .session import Session, Verb, scope_options
from .sources import STDIN, find_files, read_source, readable_name

__all__ = ["COMMANDS"]


@click.command(cls=Verb)
@click.pass_obj
def init(session: Session) -> None:
    """Make an empty memory; one that is there already stays as it is.

    \b
    Example:
      fluxmem --memory ./memory init
    """
    existed = (session.directory / "memory.sqlite3").exists()
    with session.open(create=True) as agent:
        stats = agent.stats
    if session.as_json:
        print_json({"memory": session.directory, "created": not existed, **stats})
    else:
        click.echo(f"{'there is a memory already' if existed else 'made an empty memory'} in {session.directory}")


@click.command(cls=Verb)
@click.argument("paths", metavar="FILE|DIR|-...", nargs=-1, required=True)
@click.option("--source", help="Name the facts' source; else each file's path, and 'stdin'.")
@click.option("--chunk-size", type=int, help="Characters of a fact at most; else the setting chunk_size.")
@click.option("--metadata", metavar="JSON", help="A JSON object that each fact's metadata begins with.")
@click.option("--jsonl", is_flag=True, help="Read as JSON Lines whatever the suffix, stdin too.")
@added_by_option
@scope_options
@click.pass_obj
def add(
    session: Session,
    paths: tuple[str, ...],
    source: str | None,
    chunk_size: int | None,
    metadata: str | None,
    jsonl: bool,
    added_by: str,
    scope: Scope | None,
) -> None:
    """Add files, folders with all below them, or stdin (-) to the memory.

    Text and Markdown are cut into facts. A .jsonl file holds a fact a line, {"content": ..., "metadata": {...},
    "source": ..., "id": ...}, or a chat message, {"speaker": ..., "text": ..., "time": ...}. A file that was added
    before and has not changed is left alone; of one that has changed, facts that are gone are forgotten. A fact that is
    known already takes over new metadata keys, and from its first source also other values; its history says so. In
    folders, hidden files, binary and blank ones, and those whose suffix is not one of text are passed over.

    \b
    Examples:
      fluxmem add notes.md handbook/
      echo "The lease ends in May." | fluxmem add -
      fluxmem add chat.jsonl --user ada
    """
    if not all(path.strip() for path in paths):
        # Path("") would be the current folder, with all below it.
        raise InvalidInputError("a path is blank; name a file, a folder, or - for stdin")
    named = find_files([Path(path) for path in paths if path != "-"])
    entries: list[tuple[str, Callable[[], bytes]]] = [(readable_name(file), file.read_bytes) for file in named.files]
    if "-" in paths:
        entries.append((STDIN, sys.stdin.buffer.read))
    settings: dict[str, Any] = {
        "scope": scope or Scope(),
        "metadata": _json_object(metadata),
        "source": source,
        "lines": jsonl or None,
        "added_by": Origin(added_by),
    }
    reports: list[IngestReport] = []
    errors: list[str] = []
    with session.open(embedder=True, create=True, chunk_size=chunk_size) as agent:
        try:
            for number, (name, read) in enumerate(entries, start=1):
                try:
                    found = read_source(name, read(), chunk_size=agent.config.chunk_size, **settings)
                    with progress(f"{number}/{len(entries)} {Path(name).name}", len(found.facts)) as advance:
                        coming = agent.ingest(name, found.facts, found.digest, scope, on_progress=advance)
                        reports.append(asyncio.run(coming))
                except (FluxMemError, OSError) as error:
                    if isinstance(error, (ModelError, StorageError)) and not isinstance(error, ImportFormatError):
                        # A model or memory that cannot be used: no further file would fare better, nor wait less long.
                        raise
                    message = " ".join(str(error).split())
                    errors.append(message if name in message else f"{name}: {message}")
        # Ctrl-C too: what was stored until then stays, and is told before the word on why it ended.
        except BaseException:
            if reports or errors:
                _print_reports(session, reports, errors, named.num_passed_over, num_all=len(entries))
                note("stopped before the end; the same command goes on where it stopped")
            raise
    _print_reports(session, reports, errors, named.num_passed_over, num_all=len(entries))
    if errors:
        sys.exit(BAD_INPUT)


def _json_object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"--metadata is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInputError('--metadata must be a JSON object, such as {"team": "ops"}')
    return value


def _print_reports(
    session: Session, reports: list[IngestReport], errors: list[str], num_passed_over: int, *, num_all: int
) -> None:
    for message in errors:
        note(f"error: {message}")
    num_unchanged = sum(report.unchanged for report in reports)
    totals = {
        "num_sources": len(reports) - num_unchanged,
        "num_facts": sum(len(report.ids) for report in reports),
        "num_new": sum(report.num_new for report in reports),
        "num_updated": sum(len(report.updated) for report in reports),
        "num_removed": sum(len(report.removed) for report in reports),
        "num_unchanged_sources": num_unchanged,
        "num_passed_over": num_passed_over,
        "num_not_reached": num_all - len(reports) - len(errors),
    }
    if session.as_json:
        print_json({**totals, "sources": reports, "errors": errors})
        return
    named = {
        "facts": totals["num_facts"],
        "new": totals["num_new"],
        "sources": totals["num_sources"],
        "updated": totals["num_updated"],
        "outdated and forgotten": totals["num_removed"],
        "sources unchanged": num_unchanged,
        "files passed over": num_passed_over,
        "sources not reached": totals["num_not_reached"],
    }
    always = ("facts", "new", "sources")
    click.echo(", ".join(f"{what}: {number}" for what, number in named.items() if number or what in always))


COMMANDS = {"init": init, "add": add}
