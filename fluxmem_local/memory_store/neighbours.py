"""Neighbours: the chunks that stand beside a chunk in its source."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection

from fluxmem_local.storage.filters import Condition
from fluxmem_local.storage.rows import IN_LIST

__all__ = ["find_neighbours"]

_AT_PLACE = (
    "FROM nodes AS other WHERE other.source = chunk.source AND other.chunk_index = chunk.chunk_index + offset.value"
)
_AFTER = f"(SELECT MIN(other.key) {_AT_PLACE} AND other.key > chunk.key)"
_BEFORE = f"(SELECT MAX(other.key) {_AT_PLACE} AND other.key < chunk.key)"
_PLACES = f"""
SELECT beside.id, beside.offset, beside.key FROM (
    SELECT chunk.id AS id, offset.value AS offset, chunk.key AS own, chunk.source AS source, chunk.chunk_index AS place,
        CASE WHEN offset.value > 0 THEN COALESCE({_AFTER}, {_BEFORE}) ELSE COALESCE({_BEFORE}, {_AFTER}) END AS key
    FROM json_each(?) AS asked CROSS JOIN nodes AS chunk ON chunk.id = asked.value CROSS JOIN json_each(?) AS offset
    WHERE chunk.source != '' AND chunk.layer = 'semantic'
) AS beside
WHERE beside.key IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM nodes AS twin WHERE twin.source = beside.source AND twin.chunk_index = beside.place
    AND twin.key > MIN(beside.own, beside.key) AND twin.key < MAX(beside.own, beside.key)
)
"""


def find_neighbours(
    connection: sqlite3.Connection, ids: Collection[str], reach: int, condition: Condition
) -> dict[str, dict[int, str]]:
    """Find what stands up to ``reach`` places before and after each fact in its source, by id and offset.

    Several texts may come from one source, each numbered from 0, and are told apart by the order of storing: a chunk's
    neighbour is the nearest one after it (before it, for a negative offset), and no other chunk of the same place
    stands between the two. Where a document was edited, later chunks may have been stored first. A gap ends the row:
    beyond it something is missing.
    """
    offsets = [offset for offset in range(-reach, reach + 1) if offset]
    rows = connection.execute(_PLACES, [json.dumps(list(ids)), json.dumps(offsets)]).fetchall()
    sql, values = condition
    keys = list({row["key"] for row in rows})
    visible = {
        row["key"]: str(row["id"])
        for row in connection.execute(
            f"SELECT key, id FROM nodes WHERE key {IN_LIST} AND {sql}",
            [json.dumps(keys), *values],
        )
    }
    found: dict[str, dict[int, str]] = {}
    for row in rows:
        if row["key"] in visible:
            found.setdefault(row["id"], {})[row["offset"]] = visible[row["key"]]
    return {id: _unbroken(beside, reach) for id, beside in found.items()}


def _unbroken(beside: dict[int, str], reach: int) -> dict[int, str]:
    kept: dict[int, str] = {}
    for direction in (-1, 1):
        for distance in range(1, reach + 1):
            if direction * distance not in beside:
                break
            kept[direction * distance] = beside[direction * distance]
    return kept
