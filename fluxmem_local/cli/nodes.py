"""Verbs on single memories: `fluxmem show`, `history`, `undo`, `update` and `forget`."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fluxmem_local.errors import InvalidInputError, NotFoundError
from fluxmem_local.retention import age
from fluxmem_local.types import Scope

from .conditions import added_by_option, filter_option
from .output import FAILED, count_of, note, print_json, print_table, shortened, to_data, visible
from .session import Session, Verb, read_text, scope_options

if TYPE_CHECKING:
    from fluxmem_local.agent.agent import FluxMemAgent
    from fluxmem_local.memory_store import Receipt

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
@added_by_option
@click.pass_obj
def update(session: Session, id: str, text: str, added_by: str) -> None:
    """Give the memory ID the new content TEXT (- for stdin); its metadata and links stay.

    \b
    Example:
      fluxmem update 3f0c9d2b5e6a4c1d8b7f0a9e2d4c6b81 "The lease ends in June."
    """
    content = read_text(text)
    with session.open(embedder=True) as agent:
        node = asyncio.run(agent.update(id, content, added_by=added_by))
    if session.as_json:
        print_json(node)
    else:
        click.echo(f"updated {node.id}")


@click.command(cls=Verb)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.pass_obj
def confirm(session: Session, ids: tuple[str, ...]) -> None:
    """Trust what an agent wrote by itself: it then counts as much as what you added.

    \b
    Example:
      fluxmem confirm 3f0c9d2b5e6a4c1d8b7f0a9e2d4c6b81
    """
    with session.open() as agent:
        confirmed = agent.confirm(ids)
    if session.as_json:
        print_json({"confirmed": confirmed})
    else:
        click.echo(f"confirmed {count_of(len(confirmed), 'memory', 'memories')}")


@click.command(cls=Verb)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--source", help="Forget all that came from this source alone, such as a file that was added.")
@filter_option
@click.option("--older-than", metavar="AGE", help="Forget what was stored longer ago: 90d, 36h, 8w or 2y.")
@click.option("--before", metavar="TIME", help="Forget what was stored before this time, as 2026-05-31.")
@click.option(
    "--purge",
    is_flag=True,
    help="Leave no byte of it in any file; alone, of what was forgotten before. The database is written anew for that.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@scope_options
@click.pass_obj
def forget(
    session: Session,
    ids: tuple[str, ...],
    source: str | None,
    filters: dict[str, Any] | None,
    older_than: str | None,
    before: str | None,
    purge: bool,
    dry_run: bool,
    yes: bool,
    scope: Scope | None,
) -> None:
    """Remove memories with all derived from them: by ID, or by --source, --filter, --older-than, --user and the like.

    What was distilled from them alone goes, too, and what quotes them is changed; the answer says what went, what was
    changed, and what stays and why. Ends with 1 when a purge has to wait for another program that still reads.

    \b
    Examples:
      fluxmem forget --source notes.md --dry-run
      fluxmem forget --user ada --filter "year<2020" --yes
      fluxmem forget --user ada --older-than 90d --purge
    """
    if source is not None and not source.strip():
        # It would be the source of every fact that names none.
        raise InvalidInputError("--source is blank; name a source, or the ids to forget")
    if older_than is not None and before is not None:
        raise InvalidInputError("--older-than and --before are two words for one thing; give one of them")
    oldest = before if older_than is None else time.time() - age(older_than, "--older-than")
    chosen: dict[str, Any] = {"source": source, "filters": filters, "scope": scope, "before": oldest}
    only_purge = purge and not ids and all(value is None for value in chosen.values())
    with session.open() as agent:
        chosen["source"] = source and _as_added(agent, source, scope)
        planned = asyncio.run(agent.forget(ids or None, **chosen, purge=purge, dry_run=True))
        if dry_run:
            receipt = planned
        else:
            planned_count = count_of(len(planned.removed), "memory", "memories")
            if not yes and not only_purge and not _agreed(f"Remove {planned_count} for good?"):
                note("nothing was removed")
                sys.exit(FAILED)
            receipt = asyncio.run(agent.forget(ids or None, **chosen, purge=purge))
        unembedded = [id for id, _ in receipt.changed if not dry_run and agent.get(id).embedding is None]
    if session.as_json:
        print_json({**receipt.to_dict(), "dry_run": dry_run})
    else:
        _print_receipt(receipt, dry_run=dry_run)
        if unembedded:
            note("what lost words is found by the others only, until it is embedded again: fluxmem reindex")
    if receipt.purged is False:
        sys.exit(FAILED)


def _print_receipt(receipt: Receipt, *, dry_run: bool) -> None:
    went = [
        count_of(len(receipt.removed), "memory", "memories"),
        count_of(receipt.num_edges, "link"),
        *([count_of(receipt.num_versions, "earlier version")] if receipt.num_versions else []),
        *([count_of(receipt.num_edits, "repair") + " (or its quotes)"] if receipt.num_edits else []),
    ]
    click.echo(f"{'would remove' if dry_run else 'removed'} {', '.join(went)}")
    for id, why in receipt.changed:
        note(f"{'would change' if dry_run else 'changed'} {id}: {why}")
    for id, why in receipt.kept:
        note(f"{'would keep' if dry_run else 'kept'} {id}: {why}")
    if receipt.purged:
        but = ", but in what was kept" if receipt.kept else ""
        click.echo(f"no byte of it is left in any file of the memory{but}")
    elif receipt.purged is False:
        note("another program still reads an older state; the rest goes when the memory is next opened after that")


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


COMMANDS = {
    "show": show,
    "history": history,
    "undo": undo,
    "update": update,
    "confirm": confirm,
    "forget": forget,
}
