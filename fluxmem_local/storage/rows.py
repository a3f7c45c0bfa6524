"""Rows of nodes and facts about the memory: the statements that every writer shares."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from fluxmem_local.graph import Node, SemanticNode
from fluxmem_local.text import content_key, tokenize
from fluxmem_local.types import FloatArray, Scope

from .codec import content_sum, vector_sum, vector_to_blob
from .times import validity

__all__ = [
    "IN_LIST",
    "add_mention",
    "confirm",
    "derived_columns",
    "find_twin",
    "generation_of",
    "insert_node",
    "mismatch_message",
    "next_generation",
    "node_columns",
    "read_fact",
    "set_fact",
    "set_validity",
    "stored_dimension",
]

# Completes "WHERE column …" with one parameter, a JSON list.
IN_LIST = "IN (SELECT value FROM json_each(?))"


def read_fact(connection: sqlite3.Connection, key: str) -> str | None:
    """Return a fact about the memory, or None."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def set_fact(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Store a fact about the memory."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def generation_of(connection: sqlite3.Connection) -> int:
    """Return the number of the last commit that touched nodes."""
    return int(read_fact(connection, "generation") or 0)


def next_generation(connection: sqlite3.Connection) -> int:
    """Begin a new generation in this transaction, and return its number."""
    revision = generation_of(connection) + 1
    set_fact(connection, "generation", str(revision))
    return revision


def stored_dimension(connection: sqlite3.Connection) -> int | None:
    """Return the size of the memory's vectors, or None before the first one."""
    value = read_fact(connection, "dimension")
    return None if value is None else int(value)


def mismatch_message(stored: str, given: str) -> str:
    """Say that a memory and an embedder do not fit, and what to do."""
    return (
        f"this memory's vectors were made by {stored}, the embedder given is {given}; "
        "use the first one, or re-embed everything: fluxmem reindex"
    )


def node_columns(node: Node, metadata: str, payload: str) -> dict[str, Any]:
    """Return what a node's row holds by itself; ``derived_columns`` adds what follows from its content."""
    fact = node if isinstance(node, SemanticNode) else SemanticNode(content="")
    return {
        "id": node.id,
        "layer": str(node.layer),
        "state": str(node.state),
        "scope_user": node.scope.user,
        "scope_agent": node.scope.agent,
        "scope_session": node.scope.session,
        "variant_of": node.variant_of,
        "source": fact.source,
        "chunk_index": fact.chunk_index,
        "count": fact.count,
        "created_at": float(node.created_at),
        "added_by": str(node.added_by),
        "confirmed_at": None if node.confirmed_at is None else float(node.confirmed_at),
        "metadata": metadata,
        "content": node.content,
        "payload": payload,
    }


def derived_columns(id: str, content: str, vector: FloatArray | None, revision: int) -> dict[str, Any]:
    """Return what changes together with a content, and the generation of that change."""
    blob = None if vector is None else vector_to_blob(vector)
    return {
        "rev": revision,
        "content_key": content_key(content),
        "embedding": blob,
        "terms": "\n".join(tokenize(content)),
        "content_sum": content_sum(id, content),
        "vector_sum": vector_sum(id, blob),
    }


def insert_node(connection: sqlite3.Connection, columns: dict[str, Any]) -> None:
    """Insert a row, and take its id out of the list of deleted ones."""
    connection.execute(
        f"INSERT INTO nodes ({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})", columns
    )
    connection.execute("DELETE FROM deleted WHERE id = ?", (columns["id"],))
    set_validity(connection, columns["id"], columns["metadata"])


def set_validity(connection: sqlite3.Connection, id: str, metadata: str) -> None:
    """Keep from when and until when a node holds, by its metadata as JSON, where a search can look it up."""
    bounds = validity(json.loads(metadata), f"node {id!r}") if '"valid_' in metadata else (None, None)
    connection.execute("DELETE FROM validity WHERE node = (SELECT key FROM nodes WHERE id = ?)", (id,))
    if bounds != (None, None):
        connection.execute("INSERT INTO validity SELECT key, ?, ? FROM nodes WHERE id = ?", (*bounds, id))


def confirm(connection: sqlite3.Connection, ids: Sequence[str], at: float) -> None:
    """Trust from now on what an agent wrote by itself among these nodes."""
    connection.execute(
        f"UPDATE nodes SET confirmed_at = ? WHERE added_by = 'agent' AND confirmed_at IS NULL AND id {IN_LIST}",
        (float(at), json.dumps(list(ids))),
    )


def find_twin(connection: sqlite3.Connection, key: str, scope: Scope) -> sqlite3.Row | None:
    """Return the row of the fact with this content key in this very scope, or None; active ones first."""
    row: sqlite3.Row | None = connection.execute(
        # Named, because without statistics SQLite may take an index that reads the whole layer.
        "SELECT * FROM nodes INDEXED BY nodes_by_content WHERE layer = 'semantic' AND content_key = ? "
        "AND state != 'trial' "
        "AND scope_user IS ? AND scope_agent IS ? AND scope_session IS ? ORDER BY state != 'active', key LIMIT 1",
        (key, scope.user, scope.agent, scope.session),
    ).fetchone()
    return row


def add_mention(
    connection: sqlite3.Connection, node_id: str, source: str, chunk_index: int, times: int, at: float
) -> None:
    """Remember where a fact was seen, and how often there."""
    connection.execute(
        "INSERT INTO mentions VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (node_id, source, chunk_index) DO UPDATE SET times = times + excluded.times",
        (node_id, source, chunk_index, times, float(at)),
    )
