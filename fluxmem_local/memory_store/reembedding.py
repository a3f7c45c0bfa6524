"""Re-embedding: the vectors of a coming embedder are gathered beside the present ones, and replace them all at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from fluxmem_local.graph import Node
from fluxmem_local.storage.codec import NODE_COLUMNS, node_from_row, unit_vector, vector_sum, vector_to_blob
from fluxmem_local.storage.rows import next_generation, read_fact, set_fact
from fluxmem_local.types import FloatArray

__all__ = ["Coming", "begin", "coming", "keep_vectors", "swap", "without_vector"]

_FINGERPRINT, _DIMENSION = "coming_fingerprint", "coming_dimension"
_MISSING = "FROM nodes WHERE NOT EXISTS (SELECT 1 FROM reembedded WHERE node = nodes.key)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """The embedder that a memory is being re-embedded for, and how many of its nodes have their new vector."""

    fingerprint: str
    dimension: int
    num_done: int


def coming(connection: sqlite3.Connection) -> Coming | None:
    """Return how far a re-embedding has come, or None when none is under way."""
    fingerprint = read_fact(connection, _FINGERPRINT)
    if fingerprint is None:
        return None
    done = connection.execute("SELECT COUNT(*) FROM reembedded").fetchone()[0]
    return Coming(fingerprint=fingerprint, dimension=int(read_fact(connection, _DIMENSION) or 0), num_done=int(done))


def begin(connection: sqlite3.Connection, fingerprint: str, dimension: int) -> None:
    """Begin, or go on where the same embedder was stopped; what another one had made goes."""
    underway = coming(connection)
    if underway is not None and (underway.fingerprint, underway.dimension) == (fingerprint, dimension):
        return
    connection.execute("DELETE FROM reembedded")
    set_fact(connection, _FINGERPRINT, fingerprint)
    set_fact(connection, _DIMENSION, str(dimension))


def without_vector(connection: sqlite3.Connection, limit: int) -> list[Node]:
    """List up to ``limit`` nodes that have no vector of the coming embedder yet, oldest first."""
    rows = connection.execute(f"SELECT {NODE_COLUMNS} {_MISSING} ORDER BY key LIMIT ?", (limit,)).fetchall()
    return [node_from_row(row) for row in rows]


def keep_vectors(connection: sqlite3.Connection, nodes: Sequence[Node], vectors: FloatArray, dimension: int) -> None:
    """Keep new vectors, shape ``(n, d)``, of n nodes, except of those that are gone or say something else by now.

    Raises:
        DimensionError: vectors of the wrong size, with NaN or infinity, or of length zero.
    """
    ready = [
        vector_to_blob(unit_vector(vector, dimension, f"the embedding of node {node.id!r}"))
        for node, vector in zip(nodes, vectors, strict=True)
    ]
    connection.executemany(
        "INSERT OR REPLACE INTO reembedded SELECT key, ? FROM nodes WHERE id = ? AND content = ?",
        [(blob, node.id, node.content) for node, blob in zip(nodes, ready, strict=True)],
    )


def swap(connection: sqlite3.Connection, fingerprint: str, dimension: int) -> bool:
    """Let the new vectors take the place of the old ones; False, and nothing done, when some are missing still."""
    if connection.execute(f"SELECT EXISTS (SELECT 1 {_MISSING})").fetchone()[0]:
        return False
    revision = next_generation(connection)
    last = -1
    while rows := connection.execute(
        "SELECT node, id, reembedded.embedding FROM reembedded JOIN nodes ON node = nodes.key WHERE node > ? "
        "ORDER BY node LIMIT 1000",
        (last,),
    ).fetchall():
        connection.executemany(
            "UPDATE nodes SET embedding = ?, vector_sum = ?, rev = ? WHERE key = ?",
            [(row["embedding"], vector_sum(row["id"], row["embedding"]), revision, row["node"]) for row in rows],
        )
        last = rows[-1]["node"]
    # Of contents that were replaced before nobody asked the new embedder.
    connection.execute("UPDATE versions SET old_embedding = NULL WHERE old_embedding IS NOT NULL")
    connection.execute("DELETE FROM reembedded")
    connection.execute("DELETE FROM meta WHERE key IN (?, ?)", (_FINGERPRINT, _DIMENSION))
    set_fact(connection, "fingerprint", fingerprint)
    set_fact(connection, "dimension", str(dimension))
    return True
