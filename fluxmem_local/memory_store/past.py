"""PastStore: a memory as it stood at a time, for searching."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fluxmem_local.graph import EpisodicNode, Node, ProceduralNode
from fluxmem_local.index import TermStatistics
from fluxmem_local.storage.codec import vector_from_blob
from fluxmem_local.text import tokenize, tokenize_query
from fluxmem_local.types import FloatArray, Layer

from .store import MemoryStore

__all__ = ["PastStore", "Replaced", "replaced_since"]

_Hits = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Replaced:
    """A content that a node had before it was replaced, and its vector ``(d,)`` where it is known."""

    content: str
    embedding: FloatArray | None


def replaced_since(store: MemoryStore, time_s: float) -> dict[str, Replaced]:
    """Return by id what the contents were, at ``time_s`` (seconds since 1970, UTC), of nodes that got others since."""
    with store.database.read() as connection:
        rows = connection.execute(
            # What only got other metadata since, or its content back, is as it was.
            "SELECT node_id, old_content, old_embedding FROM versions JOIN nodes ON nodes.id = node_id "
            "WHERE old_content != content AND versions.key IN "
            "(SELECT MIN(versions.key) FROM versions JOIN nodes ON nodes.id = node_id "
            "WHERE at > ? AND created_at <= ? GROUP BY node_id)",
            (time_s, time_s),
        ).fetchall()
    return {
        row["node_id"]: Replaced(
            row["old_content"], None if row["old_embedding"] is None else vector_from_blob(row["old_embedding"])
        )
        for row in rows
    }


class PastStore(MemoryStore):
    """The same memory, in which some nodes have the contents that they had before; it is only to be read.

    Words weigh what they weigh today, since the rest of the memory is the same.
    """

    def __init__(self, store: MemoryStore, replaced: Mapping[str, Replaced]) -> None:
        # The same connections and indices, of which the given store stays the owner.
        self.__dict__.update(store.__dict__)
        self._replaced = replaced
        self._tokens = {id: tokenize(past.content) for id, past in replaced.items()}

    def get_many(self, ids: Sequence[str]) -> list[Node]:
        """Return nodes in the asked order, with their contents of that time."""
        return [self._then(node) for node in super().get_many(ids)]

    def select(self, **conditions: Any) -> list[Node]:
        """List the nodes that meet all conditions, which are about today, with their contents of that time."""
        return [self._then(node) for node in super().select(**conditions)]

    def iterate(self, **conditions: Any) -> Iterator[Node]:
        """Go through what ``select`` would list."""
        return (self._then(node) for node in super().iterate(**conditions))

    def nearest(self, layer: Layer, vector: FloatArray, top_k: int, **conditions: Any) -> _Hits:
        """Return up to ``top_k`` pairs of id and cosine similarity, nearest first, by the vectors of that time."""
        vectors = {id: past.embedding for id, past in self._replaced.items() if past.embedding is not None}
        found = super().nearest(layer, vector, top_k, **self._unchanged(conditions))
        scores = {id: float(vectors[id] @ vector) for id in self._visible(layer, list(vectors), conditions)}
        return _best([*found, *scores.items()], top_k)

    def lexical(self, layer: Layer, text: str, top_k: int, **conditions: Any) -> _Hits:
        """Return up to ``top_k`` pairs of id and BM25 score, best first, by the words of that time."""
        tokens = set(tokenize_query(text))
        found = super().lexical(layer, text, top_k, **self._unchanged(conditions))
        matched = [id for id, words in self._tokens.items() if not tokens.isdisjoint(words)]
        visible = self._visible(layer, matched, conditions)
        scores = self.lexical_scores(layer, text, visible)
        return _best([*found, *zip(visible, scores.tolist(), strict=True)], top_k)

    def term_statistics(self, layer: Layer, tokens: Sequence[str], ids: Sequence[str]) -> TermStatistics:
        """Return the counts and lengths from which BM25 scores n nodes by the given tokens."""
        known = super().term_statistics(layer, tokens, ids)
        counts, lengths = known.counts.copy(), known.lengths.copy()
        for place, id in enumerate(ids):
            if id in self._tokens:
                held = Counter(self._tokens[id])
                counts[place] = [held[term] for term in known.terms]
                lengths[place] = len(self._tokens[id])
        return replace(known, counts=counts, lengths=lengths)

    def _then(self, node: Node) -> Node:
        past = self._replaced.get(node.id)
        if past is None:
            return node
        if isinstance(node, ProceduralNode):
            return replace(node, content=past.content, skill_text=past.content, embedding=past.embedding)
        if isinstance(node, EpisodicNode) and node.task_description == node.content:
            return replace(node, content=past.content, task_description=past.content, embedding=past.embedding)
        return replace(node, content=past.content, embedding=past.embedding)

    def _unchanged(self, conditions: Mapping[str, Any]) -> dict[str, Any]:
        return {**conditions, "exclude": [*conditions.get("exclude", ()), *self._replaced]}

    def _visible(self, layer: Layer, ids: Sequence[str], conditions: Mapping[str, Any]) -> list[str]:
        wanted = [id for id in ids if id not in conditions.get("exclude", ())]
        if not wanted:
            return []
        limits = {name: value for name, value in conditions.items() if name in ("scope", "valid_at", "known_at")}
        also = [conditions["filters"]] if conditions.get("filters") else []
        nodes = super().select(layers=(layer,), filters={"and": [{"id": {"in": wanted}}, *also]}, **limits)
        return [node.id for node in nodes]


def _best(hits: _Hits, top_k: int) -> _Hits:
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:top_k]
