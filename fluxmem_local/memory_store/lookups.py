"""What filters and times are looked up in, compared with the metadata that it follows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.storage.times import validity

__all__ = ["differing_lookups", "renew_lookups"]

_COLUMNS = "name, type, value, node"


def differing_lookups(connection: sqlite3.Connection) -> list[str]:
    """List the nodes whose looked-up metadata or validity is not what their metadata says."""
    rows = connection.execute(
        f"SELECT DISTINCT id FROM nodes WHERE key IN (SELECT node FROM (SELECT {_COLUMNS} FROM attributes EXCEPT "
        f"SELECT {_COLUMNS} FROM attributes_of)) OR key IN (SELECT node FROM (SELECT {_COLUMNS} FROM attributes_of "
        f"EXCEPT SELECT {_COLUMNS} FROM attributes))"
    ).fetchall()
    bounds = connection.execute(
        "SELECT id, metadata, valid_from, valid_to FROM nodes LEFT JOIN validity ON node = key "
        "WHERE node IS NOT NULL OR metadata LIKE '%\"valid_%'"
    ).fetchall()
    wrong = [row["id"] for row in bounds if (row["valid_from"], row["valid_to"]) != _validity(row["metadata"])]
    return list(dict.fromkeys([*(row["id"] for row in rows), *wrong]))


def renew_lookups(connection: sqlite3.Connection, id: str) -> None:
    """Make what a node is looked up by anew from its metadata."""
    key, metadata = connection.execute("SELECT key, metadata FROM nodes WHERE id = ?", (id,)).fetchone()
    for table in ("attributes", "validity"):
        connection.execute(f"DELETE FROM {table} WHERE node = ?", (key,))
    connection.execute(f"INSERT OR IGNORE INTO attributes SELECT {_COLUMNS} FROM attributes_of WHERE node = ?", (key,))
    bounds = _validity(metadata)
    if bounds != (None, None):
        connection.execute("INSERT INTO validity VALUES (?, ?, ?)", (key, *bounds))


def _validity(metadata: str) -> tuple[float | None, float | None]:
    # A memory of an early version may name no time there, and damaged JSON is a problem of its own.
    with suppress(InvalidInputError, ValueError, AttributeError):
        return validity(json.loads(metadata), "it")
    return None, None
