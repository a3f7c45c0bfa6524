"""Redaction: what was forgotten is taken out of the episodes, skills and histories that quote it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from fluxmem_local.storage.codec import decode_json, encode_json
from fluxmem_local.storage.rows import derived_columns
from fluxmem_local.text.quotes import Quotes

__all__ = ["quoting_facts", "redact", "texts_of_episode"]

_BATCH = 500
_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_FEW = 64
# What is no text of anybody, or holds ids that other rules look after.
_KEPT = ("status", "source_episode_ids")


def redact(
    connection: sqlite3.Connection,
    quotes: Quotes,
    ids: Collection[str],
    begin_revision: Callable[[], int],
    *,
    among: Collection[str] | None = None,
) -> dict[str, str]:
    """Put a mark where episodes and skills quote, take forgotten ids out of their metadata; return whom it changed.

    It says of each, by its id, whether it "quoted it" or only "named it".

    Histories of all nodes and the metadata of edges are cleaned, too. A changed content loses its vector, which belongs
    to what was said before. ``among`` limits it to these nodes.
    """
    told = ((row["id"], _clean_node(connection, row, quotes, ids, begin_revision)) for row in _noted(connection, among))
    changed = {id: how for id, how in told if how is not None}
    if among is None:
        _clean_texts(connection, quotes, "versions", ("old_content", "reason"), "old_metadata")
        _clean_texts(connection, quotes, "edges", (), "metadata")
    return changed


def quoting_facts(connection: sqlite3.Connection, quotes: Quotes) -> list[str]:
    """List the facts that quote: they were stated on their own, and stay."""
    rows = connection.execute("SELECT id, content FROM nodes WHERE layer = 'semantic' ORDER BY key")
    return [row["id"] for row in rows if quotes.found_in(row["content"])]


def texts_of_episode(content: str, payload: Mapping[str, Any]) -> Iterator[str]:
    """Go through what an episode says: its task, what was seen and done, and the feedback."""
    yield from (content, payload.get("task_description", ""), payload.get("feedback", ""))
    for pair in payload.get("trajectory", ()):
        yield from pair


def _noted(connection: sqlite3.Connection, among: Collection[str] | None) -> Iterator[sqlite3.Row]:
    last = -1
    while rows := connection.execute(
        "SELECT key, id, content, payload, metadata FROM nodes WHERE layer != 'semantic' AND key > ? "
        "ORDER BY key LIMIT ?",
        (last, _BATCH),
    ).fetchall():
        yield from (row for row in rows if among is None or row["id"] in among)
        last = rows[-1]["key"]


def _clean_node(
    connection: sqlite3.Connection,
    row: sqlite3.Row,
    quotes: Quotes,
    ids: Collection[str],
    begin_revision: Callable[[], int],
) -> str | None:
    # An escape in JSON, as \\n, stands at a word without a space between.
    whole = "\n".join((row["content"], *(_ESCAPE.sub(" ", row[name]) for name in ("payload", "metadata"))))
    if not quotes.may_be_in(whole) and not _may_name(row["metadata"], ids):
        return None
    what = f"node {row['id']!r}"
    payload, metadata = (decode_json(row[name], what) for name in ("payload", "metadata"))
    content = quotes.redacted(row["content"])
    said = {name: value if name in _KEPT else _without(value, quotes, ()) for name, value in payload.items()}
    noted = _without(metadata, quotes, ())
    quoted = (content, said, noted) != (row["content"], payload, metadata)
    noted = _without(noted, Quotes(()), ids)
    if not quoted and noted == metadata:
        return None
    columns: dict[str, Any] = {"payload": encode_json(said, what), "metadata": encode_json(noted, what)}
    if content != row["content"]:
        columns |= {"content": content} | derived_columns(row["id"], content, None, begin_revision())
    connection.execute(
        f"UPDATE nodes SET {', '.join(f'{name} = :{name}' for name in columns)} WHERE key = :key",
        columns | {"key": row["key"]},
    )
    return "quoted it" if quoted else "named it"


def _may_name(metadata: str, ids: Collection[str]) -> bool:
    # Of many ids, reading the metadata is the faster way to find out.
    return metadata != "{}" and (len(ids) > _FEW or any(id in metadata for id in ids))


def _clean_texts(
    connection: sqlite3.Connection, quotes: Quotes, table: str, texts: tuple[str, ...], json_column: str
) -> None:
    names = (*texts, json_column)
    rows = connection.execute(f"SELECT key, {', '.join(names)} FROM {table}").fetchall()
    for row in rows:
        if not quotes.may_be_in("\n".join((*(row[name] for name in texts), _ESCAPE.sub(" ", row[json_column])))):
            continue
        values: dict[str, str | None] = {name: quotes.redacted(row[name]) for name in texts}
        noted = decode_json(row[json_column], f"a row of {table}")
        values[json_column] = encode_json(_without(noted, quotes, ()), f"a row of {table}")
        if table == "versions" and values["old_content"] != row["old_content"]:
            values["old_embedding"] = None
        if any(value != row[name] for name, value in values.items() if name != "old_embedding"):
            connection.execute(
                f"UPDATE {table} SET {', '.join(f'{name} = :{name}' for name in values)} WHERE key = :key",
                {**values, "key": row["key"]},
            )


def _without(value: Any, quotes: Quotes, ids: Collection[str]) -> Any:
    """Copy a JSON value with quotes marked, forgotten ids taken out, and without what only those vouch for."""
    if isinstance(value, str):
        return quotes.redacted(value)
    if isinstance(value, Mapping):
        return {key: _without(each, quotes, ids) for key, each in value.items()}
    if isinstance(value, list):
        return [
            _without(each, quotes, ids)
            for each in value
            if not (isinstance(each, str) and each in ids) and not (isinstance(each, Mapping) and _is_of(each, ids))
        ]
    return value


def _is_of(entry: Mapping[str, Any], ids: Collection[str]) -> bool:
    """Tell whether an entry of a list names nodes, and all that it names are forgotten."""
    named = [
        id
        for name, value in entry.items()
        if isinstance(value, list) and (name.endswith("_ids") or name in ("succeeded", "failed"))
        for id in value
    ]
    return bool(named) and all(id in ids for id in named)
