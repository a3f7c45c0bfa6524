"""Rows to values and back: nodes, edges, embeddings, JSON."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fluxmem_local.errors import DimensionError, InvalidInputError, MemoryDamagedError
from fluxmem_local.graph import (
    DistillEdge,
    Edge,
    EpisodicNode,
    GroundEdge,
    Node,
    ProceduralNode,
    SemanticNode,
    SkillVersion,
    StepLinkEdge,
)
from fluxmem_local.types import FloatArray, Layer, NodeState, Origin, Scope

__all__ = [
    "EDGE_COLUMNS",
    "NODE_COLUMNS",
    "content_sum",
    "decode_json",
    "edge_from_row",
    "edge_to_row",
    "encode_json",
    "node_from_row",
    "payload_of",
    "scope_key",
    "unit_vector",
    "vector_from_blob",
    "vector_of",
    "vector_sum",
    "vector_to_blob",
]

NODE_COLUMNS = (
    "key, id, layer, state, scope_user, scope_agent, scope_session, variant_of, source, chunk_index, count, "
    "created_at, metadata, content, embedding, payload, content_sum, vector_sum, added_by, confirmed_at"
)
EDGE_COLUMNS = "id, kind, source_id, target_id, weight, created_at, metadata, success_count, failure_count, step_index"
_OTHER_EMBEDDER = (
    "nothing was stored; check the embedder, use the one that the memory was made with, or run: fluxmem reindex"
)
_EDGE_TYPES: dict[str, type[GroundEdge] | type[DistillEdge]] = {"ground": GroundEdge, "distill": DistillEdge}


def encode_json(value: Any, what: str) -> str:
    """Write a value as compact JSON.

    Raises:
        InvalidInputError: it holds something that JSON does not have.
    """
    if isinstance(value, Mapping):
        value = dict(value)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{what} cannot be stored as JSON ({error}); "
            "use texts, finite numbers, booleans, None, and lists and dicts of them"
        ) from error
    return text


def decode_json(text: str, what: str) -> Any:
    """Read stored JSON.

    Raises:
        MemoryDamagedError: it is none.
    """
    if text == "{}":  # of most facts, twice a row
        return {}
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise MemoryDamagedError(f"{what} is unreadable in the database ({error}); run: fluxmem verify") from error


def unit_vector(vector: Any, dimension: int | None, whose: str, remedy: str = _OTHER_EMBEDDER) -> FloatArray:
    """Return a vector, shape ``(d,)``, as float32 of unit length; ``dimension`` None takes any size.

    Raises:
        DimensionError: another shape or size, NaN or infinity, or length zero; it names ``whose`` and the ``remedy``.
    """
    try:
        wide = np.asarray(vector, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DimensionError(f"{whose} is no array of numbers; {remedy}") from error
    if wide.ndim != 1 or wide.size == 0 or (dimension is not None and wide.size != dimension):
        needed = "one row of numbers" if dimension is None else f"({dimension},)"
        raise DimensionError(f"{whose} has shape {wide.shape}, and {needed} is needed; {remedy}")
    norm = np.linalg.norm(wide)
    # Also of finite numbers, the length may be beyond any.
    if not np.isfinite(norm):
        raise DimensionError(f"{whose} holds NaN or infinity; {remedy}")
    if norm == 0:
        raise DimensionError(f"{whose} holds only zeros: length zero, and so no direction; {remedy}")
    # A vector that is of unit length already keeps its bytes, so that storing it again changes nothing.
    unit: FloatArray = (wide if abs(norm - 1.0) < 1e-6 else wide / norm).astype(np.float32)
    return unit


def vector_to_blob(vector: FloatArray) -> bytes:
    """Write a vector as little-endian float32."""
    return vector.astype("<f4").tobytes()


def vector_from_blob(blob: bytes) -> FloatArray:
    """Read a vector, shape ``(d,)``."""
    return np.frombuffer(blob, dtype="<f4").astype(np.float32)


def content_sum(id: str, content: str) -> int:
    """Return the checksum that a node's row keeps of its id and content, since SQLite has none of its pages."""
    return zlib.crc32(f"{id}\0{content}".encode())


def vector_sum(id: str, blob: bytes | None) -> int | None:
    """Return the checksum that a node's row keeps of its id and vector."""
    return None if blob is None else zlib.crc32(blob, zlib.crc32(id.encode()))


def vector_of(row: sqlite3.Row | Mapping[str, Any]) -> FloatArray | None:
    """Read the vector, shape ``(d,)``, of a row that has ``id``, ``embedding`` and ``vector_sum``.

    Raises:
        MemoryDamagedError: it is not the one that was stored with this id.
    """
    blob = row["embedding"]
    if blob is None:
        return None
    try:
        if row["vector_sum"] in (None, vector_sum(row["id"], blob)):
            return vector_from_blob(blob)
    except (AttributeError, TypeError, ValueError):
        pass
    raise MemoryDamagedError(
        f"the vector of node {row['id']!r:.200} is damaged in the database; to have it made anew: "
        "fluxmem verify --fix, then fluxmem reindex"
    )


def scope_key(scope: Scope) -> str:
    """Write a scope as one text, for keys."""
    return encode_json([scope.user, scope.agent, scope.session], "a scope")


def payload_of(node: Node) -> str:
    """Write what only this layer's nodes have, as JSON."""
    if isinstance(node, EpisodicNode):
        payload: dict[str, Any] = {
            "task_description": node.task_description,
            "trajectory": node.trajectory,
            "success": node.success,
            "feedback": node.feedback,
            "status": node.status,
        }
    elif isinstance(node, ProceduralNode):
        payload = {
            "skill_text": node.skill_text,
            "version": node.version,
            "version_history": [
                {
                    "version": past.version,
                    "skill_text": past.skill_text,
                    "pems_score": past.pems_score,
                    "created_at": past.created_at,
                    "ended_because": past.ended_because,
                }
                for past in node.version_history
            ],
            "source_episode_ids": node.source_episode_ids,
            "pems_score": node.pems_score,
        }
    else:
        payload = {}
    return encode_json(payload, f"node {node.id!r}")


def node_from_row(row: sqlite3.Row | Mapping[str, Any]) -> Node:
    """Read a node from the columns ``NODE_COLUMNS``.

    Raises:
        MemoryDamagedError: the row is none that this package wrote.
    """
    what = f"node {row['id']!r:.200}"
    payload = decode_json(row["payload"], what)
    try:
        if row["content_sum"] not in (None, content_sum(row["id"], row["content"])):
            raise ValueError("its text is not the one that was stored under this id")
        common: dict[str, Any] = {
            "id": row["id"],
            "content": row["content"],
            "embedding": vector_of(row),
            "metadata": decode_json(row["metadata"], what),
            "created_at": row["created_at"],
            "scope": Scope(row["scope_user"], row["scope_agent"], row["scope_session"]),
            "state": NodeState(row["state"]),
            "variant_of": row["variant_of"],
            # A salvaged row may lack it.
            "added_by": Origin(row["added_by"] or Origin.IMPORT),
            "confirmed_at": row["confirmed_at"],
        }
        layer = Layer(row["layer"])
        if layer is Layer.SEMANTIC:
            return SemanticNode(**common, source=row["source"], chunk_index=row["chunk_index"], count=row["count"])
        if layer is Layer.EPISODIC:
            payload["trajectory"] = tuple((seen, done) for seen, done in payload["trajectory"])
            return EpisodicNode(**common, **payload)
        payload["version_history"] = tuple(SkillVersion(**past) for past in payload["version_history"])
        payload["source_episode_ids"] = tuple(payload["source_episode_ids"])
        return ProceduralNode(**common, **payload)
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise MemoryDamagedError(f"{what} is unreadable in the database ({error}); run: fluxmem verify") from error


def edge_to_row(edge: Edge) -> tuple[Any, ...]:
    """Write an edge in the order of ``EDGE_COLUMNS``."""
    return (
        edge.id,
        edge.kind,
        edge.source_id,
        edge.target_id,
        float(edge.weight),
        float(edge.created_at),
        encode_json(edge.metadata, f"the metadata of edge {edge.id!r}"),
        edge.success_count,
        edge.failure_count,
        edge.step_index if isinstance(edge, StepLinkEdge) else 0,
    )


def edge_from_row(row: sqlite3.Row) -> Edge:
    """Read an edge from the columns ``EDGE_COLUMNS``."""
    common: dict[str, Any] = {
        "id": row["id"],
        "source_id": row["source_id"],
        "target_id": row["target_id"],
        "weight": row["weight"],
        "created_at": row["created_at"],
        "metadata": decode_json(row["metadata"], f"edge {row['id']!r}"),
        "success_count": row["success_count"],
        "failure_count": row["failure_count"],
    }
    if row["kind"] in _EDGE_TYPES:
        return _EDGE_TYPES[row["kind"]](**common)
    return StepLinkEdge(**common, step_index=row["step_index"])
