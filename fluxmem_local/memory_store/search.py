"""Search of one layer under conditions: few matching nodes are scored one by one, many are filtered from the index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence

import numpy as np

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.index import ExactVectorStore, LexicalIndex, TermStatistics
from fluxmem_local.storage.codec import unit_vector, vector_of
from fluxmem_local.storage.filters import Condition
from fluxmem_local.storage.rows import stored_dimension
from fluxmem_local.text import tokenize_query
from fluxmem_local.types import FloatArray

from .layer_index import LayerIndex

__all__ = ["lexical_hits", "nearest_hits", "term_statistics"]

Hits = list[tuple[str, float]]

# Up to here comparing each matching vector costs a few milliseconds, and is exact.
_FEW = 4096


def nearest_hits(
    connection: sqlite3.Connection,
    index: LayerIndex | None,
    vector: FloatArray,
    top_k: int,
    condition: Condition,
    narrow: bool,
    num_excluded: int,
) -> Hits:
    """Find the nearest nodes that meet a condition; ``index`` None scores the rows themselves."""
    _check_top_k(top_k)
    dimension = stored_dimension(connection)
    query = unit_vector(vector, dimension, "the embedding of the query")
    if top_k == 0 or dimension is None:
        return []
    keys = None
    if index is None or narrow:
        keys = _matching_keys(connection, condition, "embedding IS NOT NULL", None if index is None else _FEW)
    if keys is not None:
        # What is in memory needs no vectors from rows; for a few hits, though, an index is not read first.
        loaded = None if index is None else index.loaded_vectors(connection)
        if loaded is not None:
            return loaded.search_among(_ids_of(connection, keys), query, top_k)
        return _exact(connection, keys, query, top_k)
    assert index is not None
    store = index.vectors(connection)
    return _filtered(
        connection, lambda number: store.search(query, number), len(store), top_k, top_k + num_excluded, condition
    )


def lexical_hits(
    connection: sqlite3.Connection,
    index: LayerIndex,
    dirty: bool,
    text: str,
    top_k: int,
    condition: Condition,
    narrow: bool,
    num_excluded: int,
) -> Hits:
    """Find the best nodes by BM25 that meet a condition."""
    _check_top_k(top_k)
    words = _words(connection, index, dirty)
    tokens = tokenize_query(text)
    if top_k == 0 or not tokens:
        return []
    keys = _matching_keys(connection, condition, "1", _FEW) if narrow else None
    if keys is not None:
        return words.search(tokens, top_k, among=_ids_of(connection, keys))
    return _filtered(
        connection, lambda number: words.search(tokens, number), len(words), top_k, top_k + num_excluded, condition
    )


def term_statistics(
    connection: sqlite3.Connection, index: LayerIndex, dirty: bool, tokens: Sequence[str], ids: Sequence[str]
) -> TermStatistics:
    """Return what the BM25 scores of the given ids are computed from."""
    return _words(connection, index, dirty).statistics(tokens, ids)


def _words(connection: sqlite3.Connection, index: LayerIndex, dirty: bool) -> LexicalIndex:
    # What may still be rolled back goes into an index of its own.
    return LayerIndex(index.layer, None, None).words(connection) if dirty else index.words(connection)


def _filtered(
    connection: sqlite3.Connection,
    search: Callable[[int], Hits],
    total: int,
    top_k: int,
    first: int,
    condition: Condition,
) -> Hits:
    """Ask for more and more hits until enough of them meet the condition, or none are left."""
    sql, values = condition
    asked = min(first, total)
    while asked:
        hits = search(asked)
        listed = json.dumps([id for id, _ in hits])
        # The cross join fixes the order: each hit is looked up, where SQLite might read the whole layer.
        rows = connection.execute(
            "SELECT nodes.id FROM (SELECT value AS hit FROM json_each(?)) CROSS JOIN nodes ON nodes.id = hit "
            f"WHERE {sql}",
            [listed, *values],
        ).fetchall()
        allowed = {row["id"] for row in rows}
        kept = [hit for hit in hits if hit[0] in allowed]
        if len(kept) >= top_k or len(hits) < asked or asked >= total:
            return kept[:top_k]
        asked = min(4 * asked, total)
    return []


def _matching_keys(
    connection: sqlite3.Connection, condition: Condition, more: str, at_most: int | None
) -> list[int] | None:
    """List the rows that meet a condition, or return None when they are more than ``at_most``."""
    sql, values = condition
    limit = "" if at_most is None else f"LIMIT {at_most + 1}"
    rows = connection.execute(f"SELECT key FROM nodes WHERE {sql} AND {more} {limit}", values).fetchall()
    return None if at_most is not None and len(rows) > at_most else [row["key"] for row in rows]


def _ids_of(connection: sqlite3.Connection, keys: Sequence[int]) -> list[str]:
    rows = connection.execute(
        "SELECT id FROM nodes WHERE key IN (SELECT value FROM json_each(?))", (json.dumps(keys),)
    ).fetchall()
    return [row["id"] for row in rows]


def _exact(connection: sqlite3.Connection, keys: Sequence[int], query: FloatArray, top_k: int) -> Hits:
    rows = connection.execute(
        "SELECT id, embedding, vector_sum FROM nodes WHERE key IN (SELECT value FROM json_each(?))", (json.dumps(keys),)
    ).fetchall()
    if not rows:
        return []
    store = ExactVectorStore(len(query))
    store.add([row["id"] for row in rows], np.stack([vector for row in rows if (vector := vector_of(row)) is not None]))
    return store.search(query, top_k)


def _check_top_k(top_k: int) -> None:
    if isinstance(top_k, bool) or not isinstance(top_k, (int, np.integer)) or top_k < 0:
        raise InvalidInputError(f"top_k={top_k!r} is no number of results; give a whole number of at least 0")
