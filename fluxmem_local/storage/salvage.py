"""Salvage: what can still be read of a damaged memory, row by row, as a new memory elsewhere."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxmem_local.errors import MemoryDamagedError, MemoryNotFoundError, StorageError
from fluxmem_local.types import NodeState

from .backup import empty_place
from .codec import NODE_COLUMNS, decode_json, edge_from_row, node_from_row, vector_of
from .database import DATABASE_NAME, Database
from .database_file import log_of
from .raw_pages import Record, records
from .refusals import KINDS
from .rows import read_fact, set_fact
from .schema import migrate

__all__ = ["Salvaged", "salvage"]

# The tables that cannot be made anew from others.
_TABLES = (
    *("nodes", "edges", "versions", "edits"),
    *("mentions", "outcomes", "edit_targets", "meta", "ingested", "forgotten"),
)
_TYPES: dict[str, tuple[type, ...]] = {"TEXT": (str,), "INTEGER": (int,), "REAL": (int, float), "BLOB": (bytes,)}
_NO_IDS = ("number", "text", "item", "true", "false", "null", "array", "object", *NodeState)
_FACTS = ("fingerprint", "dimension", "tokenizer")
# (table, column) that must hold an id of `nodes`
_REFERENCES = (
    *(("edges", "source_id"), ("edges", "target_id"), ("outcomes", "node_id"), ("outcomes", "episode_id")),
    *(("mentions", "node_id"), ("versions", "node_id")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What was copied, and how much of it had to be left: texts that are damaged, and nodes that only links name."""

    num_nodes: int
    num_edges: int
    num_damaged: int
    num_missing: int
    num_unembedded: int


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    types: tuple[type, ...]
    nullable: bool
    is_row_number: bool


def salvage(folder: Path, target: Path) -> Salvaged:
    """Copy all whole rows of a damaged memory into a new one; the damaged one is only read.

    Raises:
        MemoryNotFoundError: there is no memory.
        MemoryDamagedError: nothing of it can be read; nothing was made.
        InvalidInputError: there is a memory at the target.
        StorageError: a file cannot be read, or the target not be written.
    """
    source = folder / DATABASE_NAME
    if not source.exists() and not log_of(source).exists():
        raise MemoryNotFoundError(f"there is no memory at {folder}; name the folder of the damaged one")
    layouts = _layouts()
    try:
        if not any(table == "nodes" for table, _ in _rows(source, layouts)):
            raise MemoryDamagedError(f"no memory can be read any more in {source}; bring it back from a backup")
        empty_place(target)
        with closing(Database(target, create=True, lock_timeout_s=1.0)) as database, database.write() as connection:
            # The order of the rows is that of the pages; at the end all must fit.
            connection.execute("PRAGMA defer_foreign_keys = ON")
            for table, row in _rows(source, layouts):
                names = ", ".join(row)
                places = ", ".join("?" * len(row))
                connection.execute(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({places})", list(row.values()))
            return _cleaned(connection)
    except OSError as error:
        raise StorageError(f"cannot read {source}: {error.strerror or error}; check the folder's rights") from error


def _layouts() -> dict[str, list[_Column]]:
    """Describe the records of each table, in the order in which they are stored."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        layouts = {}
        for table in _TABLES:
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            has_number = any(kind == "INTEGER" and key == 1 for _, _, kind, _, _, key in columns)
            if not has_number:
                # Tables without row numbers store the parts of their key first.
                columns.sort(key=lambda column: (column[5] == 0, column[5] or column[0]))
            layouts[table] = [
                _Column(name, _TYPES[kind], not required, has_number and key == 1)
                for _, name, kind, required, _, key in columns
            ]
        return layouts


def _rows(source: Path, layouts: Mapping[str, list[_Column]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give each record the table whose form it has; what indices hold has none, or is sorted out by its values."""
    for record in records(source):
        for table, columns in layouts.items():
            row = _fitting(record, columns)
            if row is not None and _is_likely(table, row):
                yield table, row
                break


def _fitting(record: Record, columns: list[_Column]) -> dict[str, Any] | None:
    number, values = record
    if (number is not None) != columns[0].is_row_number or not 1 < len(values) <= len(columns):
        return None
    # What a later version added may be missing at the end.
    if not all(column.nullable for column in columns[len(values) :]):
        return None
    row = {}
    for column, value in zip(columns, values, strict=False):
        if column.is_row_number:
            value = number
        elif value is None:
            if not column.nullable:
                return None
        elif not isinstance(value, column.types):
            return None
        row[column.name] = value
    return row


def _is_likely(table: str, row: dict[str, Any]) -> bool:
    if table == "meta":
        return row["key"] in _FACTS or row["key"].startswith("user:")
    if table == "outcomes":
        # Rows of `attributes` and of the index by state have the same form.
        return row["episode_id"] not in _NO_IDS
    if table == "forgotten":
        return row["kind"] in KINDS
    if table == "ingested":
        with suppress(ValueError):
            return len(json.loads(row["scope"])) == 3
        return False
    return True


def _cleaned(connection: sqlite3.Connection) -> Salvaged:
    """Take out what is damaged and what leads nowhere, and count."""
    run = connection.execute
    dimension = read_fact(connection, "dimension")
    trusted = read_fact(connection, "fingerprint") is not None and dimension is not None and dimension.isdecimal()
    num_damaged, last_revision = 0, 0
    for row in run(f"SELECT {NODE_COLUMNS}, rev FROM nodes").fetchall():
        last_revision = max(last_revision, row["rev"])
        try:
            node_from_row({**dict(row), "embedding": None})
        except MemoryDamagedError:
            num_damaged += 1
            run("DELETE FROM nodes WHERE key = ?", (row["key"],))
            continue
        try:
            vector = vector_of(row)
        except MemoryDamagedError:
            vector = None
        # Without the word of which embedder they are, vectors are worth nothing.
        if vector is None or not trusted or len(vector) != int(dimension or 0):
            run("UPDATE nodes SET embedding = NULL WHERE key = ?", (row["key"],))
    missing: Counter[str] = Counter()
    for table, column in _REFERENCES:
        wrong = f"FROM {table} WHERE {column} NOT IN (SELECT id FROM nodes)"
        missing.update(row[0] for row in run(f"SELECT {column} {wrong}"))
        run(f"DELETE {wrong}")
    for table, readable in (("edges", edge_from_row), ("edits", _check_edit), ("versions", _check_version)):
        for row in run(f"SELECT * FROM {table}").fetchall():
            try:
                readable(row)
            except MemoryDamagedError:
                run(f"DELETE FROM {table} WHERE key = ?", (row["key"],))
    run("DELETE FROM edit_targets WHERE edit_id NOT IN (SELECT id FROM edits)")
    set_fact(connection, "generation", str(last_revision + 1))

    def count(what: str) -> int:
        return int(run(f"SELECT COUNT(*) FROM {what}").fetchone()[0])

    return Salvaged(
        num_nodes=count("nodes"),
        num_edges=count("edges"),
        num_damaged=num_damaged,
        num_missing=max(0, len(missing) - num_damaged),
        num_unembedded=count("nodes WHERE embedding IS NULL"),
    )


def _check_edit(row: sqlite3.Row) -> None:
    for name in ("before", "after"):
        decode_json(row[name], "an edit")


def _check_version(row: sqlite3.Row) -> None:
    decode_json(row["old_metadata"], "a version")
