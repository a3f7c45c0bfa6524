"""Export and import as JSON Lines, a form that any program can read.

The first line is the header: ``{"type": "header", "format": "fluxmem-local", "version": 1, …}`` with the embedder's
``fingerprint`` and ``dimension``. The last one is ``{"type": "end", "lines": n}``, n being the number of lines before
it, so that a cut-off file is noticed. Between them stand, in this order and each in order of storing: ``node`` (with
``embedding``: base64 of little-endian float32, or null; and with who added it: ``added_by``, and ``confirmed_at``, the
time from which an agent's own word is trusted), ``mention`` (where a fact was seen), ``edge``, ``outcome``,
``version`` (a content that an update replaced, with its ``old_embedding``), ``edit``, ``ingested`` (digest of a
source's content), ``forgotten`` (what must not come back: see ``storage/refusals.py``) and ``fact``.
Exporting what was imported into an empty memory gives the same bytes.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from .codec import EDGE_COLUMNS, decode_json
from .database import Database
from .portable_import import FORMAT, VERSION, Importer, ImportReport
from .rows import read_fact

__all__ = ["ImportReport", "export_lines", "import_lines"]


class _Memory(Protocol):
    @property
    def database(self) -> Database: ...


def export_lines(store: _Memory) -> Iterator[str]:
    """Write a memory's one committed state as lines, without line ends."""
    if store.database.folder is None:
        # Its one connection must not stay taken while the caller does other things.
        with store.database.read() as connection:
            return iter(list(_lines(connection)))
    return _streamed(store.database)


def _streamed(database: Database) -> Iterator[str]:
    with database.read() as connection:
        yield from _lines(connection)


def _lines(connection: sqlite3.Connection) -> Iterator[str]:
    number = 0
    for record in _records(connection):
        yield json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        number += 1
    yield json.dumps({"type": "end", "lines": number}, separators=(",", ":"))


def import_lines(store: _Memory, lines: Iterable[str]) -> ImportReport:
    """Take in what ``export_lines`` wrote, all or nothing.

    A node whose id, or whose content in its scope, is there already is not doubled; counts then become the larger of
    the two, so that importing twice changes nothing. What was forgotten here stays away, with its links, until it is
    added anew, and so does what a task that is over here left unfinished. Vectors of another embedder are left out:
    ``fluxmem reindex`` makes new ones.

    Raises:
        ImportFormatError: a line that cannot be read; the message gives its number, and nothing was imported.
    """
    with store.database.write() as connection:
        return Importer(connection).run(lines)


def _records(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    dimension = read_fact(connection, "dimension")
    yield {
        "type": "header",
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": read_fact(connection, "fingerprint"),
        "dimension": None if dimension is None else int(dimension),
    }
    for row in connection.execute("SELECT * FROM nodes ORDER BY key"):
        yield _node(row)
    for row in connection.execute(
        "SELECT mentions.* FROM mentions JOIN nodes ON nodes.id = node_id ORDER BY nodes.key, mentions.source, "
        "mentions.chunk_index"
    ):
        yield {"type": "mention", **dict(row)}
    for row in connection.execute(f"SELECT {EDGE_COLUMNS} FROM edges ORDER BY key"):
        yield {"type": "edge", **dict(row), "metadata": decode_json(row["metadata"], f"edge {row['id']!r}")}
    for row in connection.execute("SELECT * FROM outcomes ORDER BY episode_id, node_id"):
        yield {"type": "outcome", **dict(row)}
    for row in connection.execute(
        "SELECT node_id, action, at, reason, old_content, old_metadata, old_embedding FROM versions ORDER BY key"
    ):
        what = f"the history of node {row['node_id']!r}"
        yield {
            "type": "version",
            **dict(row),
            "old_metadata": decode_json(row["old_metadata"], what),
            "old_embedding": _text_of(row["old_embedding"]),
        }
    for row in connection.execute("SELECT * FROM edits ORDER BY key"):
        targets = connection.execute(
            "SELECT node_id FROM edit_targets WHERE edit_id = ? ORDER BY position", (row["id"],)
        ).fetchall()
        record = {name: row[name] for name in row.keys() if name != "key"}  # noqa: SIM118
        for name in ("before", "after"):
            record[name] = decode_json(row[name], f"edit {row['id']!r}")
        record["kept"] = None if row["kept"] is None else bool(row["kept"])
        yield {"type": "edit", **record, "targets": [target[0] for target in targets]}
    for row in connection.execute("SELECT * FROM ingested ORDER BY source, scope"):
        yield {"type": "ingested", **dict(row)}
    for row in connection.execute("SELECT * FROM forgotten ORDER BY kind, key"):
        yield {"type": "forgotten", **dict(row)}
    for row in connection.execute("SELECT key, value FROM meta WHERE key LIKE 'user:%' ORDER BY key"):
        yield {"type": "fact", "key": row["key"].removeprefix("user:"), "value": row["value"]}


def _node(row: sqlite3.Row) -> dict[str, Any]:
    what = f"node {row['id']!r}"
    named = (
        "id",
        "layer",
        "state",
        "trial_of",
        "variant_of",
        "source",
        "chunk_index",
        "count",
        "created_at",
        "added_by",
        "confirmed_at",
        "content",
    )
    return {
        "type": "node",
        **{name: row[name] for name in named},
        "scope": {part: row[f"scope_{part}"] for part in ("user", "agent", "session")},
        "metadata": decode_json(row["metadata"], what),
        "payload": decode_json(row["payload"], what),
        "embedding": _text_of(row["embedding"]),
    }


def _text_of(vector: bytes | None) -> str | None:
    return None if vector is None else base64.b64encode(vector).decode("ascii")
