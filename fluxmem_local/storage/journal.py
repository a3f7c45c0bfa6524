"""The journal: edits with their reasons, and what became of a node over time."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fluxmem_local.errors import NotFoundError
from fluxmem_local.graph import Edit
from fluxmem_local.text.quotes import Quotes

from .codec import decode_json, encode_json
from .records import HistoryEntry
from .rows import IN_LIST

__all__ = ["edit_without", "forget_in_edits", "read_edits", "read_history", "record_version", "write_edit"]

_EDIT_COLUMNS = "id, kind, reason, granularity, round, kept, episode_id, before, after, created_at"
_ACTIONS = {"expand": "expanded into a context", "prune": "pruned from a context"}


def write_edit(connection: sqlite3.Connection, edit: Edit) -> None:
    """Store an edit; one with the same id is overwritten."""
    what = f"edit {edit.id!r}"
    values = (
        edit.id,
        edit.kind,
        edit.reason,
        edit.granularity,
        edit.round,
        None if edit.kept is None else int(edit.kept),
        edit.episode_id,
        encode_json(edit.before, what),
        encode_json(edit.after, what),
        edit.created_at,
    )
    names = _EDIT_COLUMNS.split(", ")
    connection.execute(
        f"INSERT INTO edits ({_EDIT_COLUMNS}) VALUES ({', '.join('?' * len(names))}) ON CONFLICT (id) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in names[1:]),
        values,
    )
    connection.execute("DELETE FROM edit_targets WHERE edit_id = ?", (edit.id,))
    connection.executemany(
        "INSERT INTO edit_targets VALUES (?, ?, ?)",
        [(edit.id, position, target) for position, target in enumerate(edit.targets)],
    )


def read_edits(
    connection: sqlite3.Connection,
    *,
    edit_id: str | None = None,
    node_id: str | None = None,
    episode_ids: Collection[str] | None = None,
) -> list[Edit]:
    """List edits, oldest first; the given conditions are joined by AND."""
    conditions, values = ["1"], []
    for condition, value in (
        ("id = ?", edit_id),
        ("id IN (SELECT edit_id FROM edit_targets WHERE node_id = ?)", node_id),
        (f"episode_id {IN_LIST}", None if episode_ids is None else json.dumps(list(episode_ids))),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    rows = connection.execute(
        f"SELECT {_EDIT_COLUMNS} FROM edits WHERE {' AND '.join(conditions)} ORDER BY key", values
    ).fetchall()
    return [_edit(connection, row) for row in rows]


def record_version(connection: sqlite3.Connection, old: sqlite3.Row, *, new_content: str, reason: str) -> None:
    """Keep the content and metadata that a node, given by its row, is about to lose."""
    last = connection.execute(
        # The content before this one; a version of the same content is one of metadata.
        "SELECT old_content FROM versions WHERE node_id = ? AND old_content != ? ORDER BY key DESC LIMIT 1",
        (old["id"], old["content"]),
    ).fetchone()
    action = "reverted" if last is not None and last[0] == new_content else "updated"
    connection.execute(
        "INSERT INTO versions (node_id, action, at, reason, old_content, old_metadata, old_embedding) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (old["id"], action, time.time(), reason, old["content"], old["metadata"], old["embedding"]),
    )


def read_history(connection: sqlite3.Connection, node_id: str) -> list[HistoryEntry]:
    """List what became of a node, oldest first.

    Raises:
        NotFoundError: no such node.
    """
    node = connection.execute("SELECT content, metadata, created_at FROM nodes WHERE id = ?", (node_id,)).fetchone()
    if node is None:
        raise NotFoundError(f"no node {node_id!r} in this memory; list the ids with: fluxmem search")
    versions = connection.execute("SELECT * FROM versions WHERE node_id = ? ORDER BY key", (node_id,)).fetchall()
    # A version row holds what the change replaced; the content after it stands in the next row, or in the node.
    contents = [*((row["old_content"], row["old_metadata"]) for row in versions), (node["content"], node["metadata"])]
    events = [("added", node["created_at"], ""), *((row["action"], row["at"], row["reason"]) for row in versions)]
    entries = [
        HistoryEntry(
            node_id=node_id,
            action=action,
            at=at,
            content=content,
            reason=reason,
            metadata=decode_json(metadata, f"the history of node {node_id!r}"),
        )
        for (action, at, reason), (content, metadata) in zip(events, contents, strict=True)
    ]
    edits = read_edits(connection, node_id=node_id)
    reshapes = [edit for edit in edits if edit.kind == "reshape"]
    by_variant = {variant: edit for edit in reshapes for variant in _variant_ids(edit)}
    variants = connection.execute(
        "SELECT id, content, created_at FROM nodes WHERE variant_of = ? AND state != 'trial' ORDER BY key", (node_id,)
    )
    later = []
    for row in variants.fetchall():
        edit = by_variant.get(row["id"])
        later.append(
            HistoryEntry(
                node_id=node_id,
                action="reshaped into",
                at=row["created_at"],
                content=row["content"],
                reason=edit.reason if edit else "",
                metadata={"variant": row["id"]},
                edit_id=edit.id if edit else None,
            )
        )
    later += [
        HistoryEntry(
            node_id=node_id,
            action="reshape undone",
            at=edit.created_at,
            content=node["content"],
            reason=edit.reason,
            edit_id=edit.id,
        )
        for edit in reshapes
        if edit.kept is False
    ]
    for edit in edits:
        undone_at = edit.after.get("undone_at")
        # What its own task rolled back left nothing behind, so it is no part of the node's history.
        if edit.kind == "reshape" or not (edit.kept or undone_at is not None):
            continue
        told = [(_ACTIONS[edit.kind], edit.created_at)]
        if undone_at is not None:
            told.append((f"{edit.kind} undone", undone_at))
        later += [
            HistoryEntry(node_id=node_id, action=action, at=at, reason=edit.reason, edit_id=edit.id)
            for action, at in told
        ]
    return [entries[0], *sorted([*entries[1:], *later], key=lambda entry: entry.at)]


def forget_in_edits(connection: sqlite3.Connection, ids: Collection[str], quotes: Quotes) -> int:
    """Delete the edits that concern these nodes only, take ids and quotes out of the others; return how many it met."""
    gone = json.dumps(list(ids))
    met = connection.execute(
        f"SELECT {_EDIT_COLUMNS} FROM edits WHERE episode_id IN (SELECT value FROM json_each(:ids)) OR id IN "
        "(SELECT edit_id FROM edit_targets WHERE node_id IN (SELECT value FROM json_each(:ids)))",
        {"ids": gone},
    ).fetchall()
    known = {row["id"] for row in met}
    # A quote may stand in an edit of other nodes too, and forgetting has to find it.
    rest = connection.execute(f"SELECT {_EDIT_COLUMNS} FROM edits").fetchall()
    changed = 0
    for row in (*met, *(row for row in rest if row["id"] not in known)):
        edit = _edit(connection, row)
        cleaned = edit_without(edit, ids, quotes)
        if cleaned is None:
            connection.execute("DELETE FROM edits WHERE id = ?", (edit.id,))
            changed += 1
        elif cleaned != edit:
            write_edit(connection, cleaned)
            changed += 1
    return changed


def edit_without(edit: Edit, ids: Collection[str], quotes: Quotes) -> Edit | None:
    """Take nodes and what quotes their texts out of an edit; None when it concerns nothing else."""
    targets = tuple(target for target in edit.targets if target not in ids)
    if edit.targets and not targets:
        return None
    return replace(
        edit,
        targets=targets,
        reason=_without(edit.reason, ids, quotes) or "",
        episode_id=None if edit.episode_id in ids else edit.episode_id,
        before=_without(edit.before, ids, quotes),
        after=_without(edit.after, ids, quotes),
    )


def _edit(connection: sqlite3.Connection, row: sqlite3.Row) -> Edit:
    targets = connection.execute(
        "SELECT node_id FROM edit_targets WHERE edit_id = ? ORDER BY position", (row["id"],)
    ).fetchall()
    what = f"edit {row['id']!r}"
    return Edit(
        id=row["id"],
        kind=row["kind"],
        targets=tuple(target[0] for target in targets),
        reason=row["reason"],
        granularity=row["granularity"],
        round=row["round"],
        kept=None if row["kept"] is None else bool(row["kept"]),
        episode_id=row["episode_id"],
        before=decode_json(row["before"], what),
        after=decode_json(row["after"], what),
        created_at=row["created_at"],
    )


def _variant_ids(edit: Edit) -> Sequence[str]:
    variants = edit.after.get("variants", {})
    return list(variants.values()) if isinstance(variants, Mapping) else []


def _without(value: Any, ids: Collection[str], quotes: Quotes) -> Any:
    """Copy a JSON value without the given ids, and with None in place of texts that quote."""
    if isinstance(value, str):
        return None if value in ids or quotes.found_in(value) else value
    if isinstance(value, Mapping):
        return {
            key: _without(each, ids, quotes)
            for key, each in value.items()
            if key not in ids and not (isinstance(each, str) and each in ids)
        }
    if isinstance(value, (list, tuple)):
        return [_without(each, ids, quotes) for each in value if not (isinstance(each, str) and each in ids)]
    return value
