"""Verbs on single memories: `fluxmem show`, `history`, `undo`, `update` and `forget`."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fluxmem_local.errors import InvalidInputError, NotFoundError
from fluxmem_local.types import Scope

from .conditions import filter_option
from .output import FAILED, count_of, note, print_json, print_table, shortened, to_data, visible
from .session import Session, Verb, read_text, scope_options

if TYPE_CHECKING:
    from fluxmem_local.agent.agent import FluxMemAgent

__all__ = ["COMMANDS"]


@click.command(cls=Verb)
@click.argument("id")
@scope_options
@click.pass_obj
def show(session: Session, id: str, scope: Scope | None) -> None:
    """Show the memory ID: its content, its fields, and its links.

    \b
    Example:
      fluxmem show 3f0c9d2b5e6a4c1d8b7f0a9e2d4c6b81
    """
    # Here, because help should not load the whole system.
    from fluxmem_local.agent.sight import links_seen

    with session.open() as agent:
        node = agent.get(id, scope=scope)
        edges, variants = links_seen(agent.store, id, scope)
    if session.as_json:
        links = [{"kind": edge.kind, **to_data(edge)} for edge in edges]
        print_json({**to_data(node), "edges": links, "variants": [variant.id for variant in variants]})
        return
    click.echo(visible(node.content))
    click.echo()
    fields = {name: value for name, value in to_data(node).items() if value not in (None, "", [], {})}
    fields["created_at"] = when(node.created_at)
    fields["scope"] = " ".join(f"{part}={name}" for part, name in fields["scope"].items() if name is not None) or None
    fields = {name: value for name, value in fields.items() if value is not None}
    print_table(["field", "value"], [[name, shortened(str(fields[name]))] for name in fields if name != "content"])
    if edges:
        click.echo()
        rows = [
            [
                f"{edge.kind} to" if edge.source_id == id else f"{edge.kind} from",
                edge.target_id if edge.source_id == id else edge.source_id,
                f"{edge.weight:.2f}",
                edge.success_count,
                edge.failure_count,
            ]
            for edge in edges
        ]
        print_table(["link", "memory", "weight", "worked", "failed"], rows)
    if variants:
        click.echo()
        print_table(["version", "content"], [[variant.id, shortened(variant.content)] for variant in variants])


@click.command(cls=Verb)
@click.argument("id")
@scope_options
@click.pass_obj
def history(session: Session, id: str, scope: Scope | None) -> None:
    """Show what happened to the memory ID, oldest first.

    \b
    Example:
      fluxmem history 3f0c9d2b5e6a4c1d8b7f0a9e2d4c6b81
    """
    with session.open() as agent:
        entries = agent.history(id, scope=scope)
    if session.as_json:
        print_json(entries)
    else:
        rows = [
            [
                when(entry.at),
                shortened(f"{entry.action}: {entry.reason}" if entry.reason else entry.action, 140),
                shortened(entry.content),
                entry.edit_id,
            ]
            for entry in entries
        ]
        print_table(["when", "what", "content", "edit"], rows)


@click.command(cls=Verb)
@click.argument("edit")
@click.pass_obj
def undo(session: Session, edit: str) -> None:
    """Take the repair EDIT of the graph back; `history` and `run` name its id.

    \b
    Example:
      fluxmem undo 9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d
    """
    with session.open() as agent:
        undone = agent.undo(edit)
    if session.as_json:
        print_json(undone)
    else:
        click.echo(f"undone: {undone.kind} of {', '.join(undone.targets)} ({shortened(undone.reason)})")


@click.command(cls=Verb)
@click.argument("id")
@click.argument("text")
@click.pass_obj
def update(session: Session, id: str, text: str) -> None:
    """Give the memory ID the new content TEXT (- for stdin); its metadata and links stay.

    \b
    Example:
      fluxmem update 3f0c9d2b5e6a4c1d8b7f0a9e2d4c6b81 "The lease ends in June."
    """
    content = read_text(text)
    with session.open(embedder=True) as agent:
        node = asyncio.run(agent.update(id, content))
    if session.as_json:
        print_json(node)
    else:
        click.echo(f"updated {node.id}")


@click.command(cls=Verb)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--source", help="Forget all that came from this source alone, such as a file that was added.")
@filter_option
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@scope_options
@click.pass_obj
def forget(
    session: Session,
    ids: tuple[str, ...],
    source: str | None,
    filters: dict[str, Any] | None,
    dry_run: bool,
    yes: bool,
    scope: Scope | None,
) -> None:
    """Remove memories with their vectors, links and versions: by ID, or by --source, --filter, --user and the like.

    \b
    Examples:
      fluxmem forget --source notes.md --dry-run
      fluxmem forget --user ada --filter "year<2020" --yes
    """
    if source is not None and not source.strip():
        # It would be the source of every fact that names none.
        raise InvalidInputError("--source is blank; name a source, or the ids to forget")
    with session.open() as agent:
        source = source and _as_added(agent, source, scope)
        planned = asyncio.run(agent.forget(ids or None, source=source, filters=filters, scope=scope, dry_run=True))
        if dry_run:
            receipt = planned
        else:
            planned_count = count_of(len(planned.removed), "memory", "memories")
            if not yes and not _agreed(f"Remove {planned_count} for good?"):
                note("nothing was removed")
                sys.exit(FAILED)
            receipt = asyncio.run(agent.forget(ids or None, source=source, filters=filters, scope=scope))
    if session.as_json:
        print_json({**receipt.to_dict(), "dry_run": dry_run})
        return
    memories = count_of(len(receipt.removed), "memory", "memories")
    click.echo(f"{'would remove' if dry_run else 'removed'} {memories}, {count_of(receipt.num_edges, 'link')}")
    for id, why in receipt.kept:
        note(f"kept {id}: {why}")


def _agreed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        # Where no one types, an end of input is what no answer looks like.
        raise InvalidInputError("stdin gives no answer, so nothing was removed; give --yes to not be asked") from None


def _as_added(agent: FluxMemAgent, source: str, scope: Scope | None) -> str:
    """Return a source as `add` recorded it: a file's is its whole path, whatever it was called on the command line."""
    whole = str(Path(source).resolve())
    for name in (source, whole):
        with suppress(NotFoundError):
            asyncio.run(agent.forget(source=name, scope=scope, dry_run=True))
            return name
    return source


def when(seconds: float) -> str:
    """Write a time as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


COMMANDS = {"show": show, "history": history, "undo": undo, "update": update, "forget": forget}
