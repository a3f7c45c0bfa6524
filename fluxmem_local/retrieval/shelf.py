"""CaseShelf: the cases of skills, ready to be compared with a question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np

from fluxmem_local.graph import Node, ProceduralNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import FloatArray

from .cases import CaseIndex, case_episodes
from .query import Query

__all__ = ["CaseShelf"]

_MOST_KEPT = 64


class CaseShelf:
    """Keeps the cases of the skills that were asked for last.

    ``embed`` gives unit vectors of texts, None for each where there is no embedder.
    """

    def __init__(self, store: MemoryStore, embed: Callable[[list[str]], Awaitable[list[FloatArray | None]]]) -> None:
        self._store = store
        self._embed = embed
        self._known: dict[str, tuple[tuple[object, ...], CaseIndex]] = {}

    async def present(self, query: Query, node: Node) -> Node:
        """Let a skill show the cases that fit a question."""
        if not isinstance(node, ProceduralNode) or not (ids := case_episodes(node)):
            return node
        index = await self._index(node, ids)
        task = query.task or query.text
        given = index.given_in(task)
        return index.present(
            node,
            task=task,
            seen=query.text,
            vector=query.task_vector if query.task else query.vector,
            given_vector=(await self._embed([given]))[0] if given else None,
        )

    async def _index(self, node: ProceduralNode, ids: list[str]) -> CaseIndex:
        # An episode that was forgotten tells nothing any more.
        there = self._store.present(ids)
        key = (node.version, node.metadata.get("digest"), len(there))
        kept = self._known.pop(node.id, None)
        if kept is None or kept[0] != key:
            none = np.zeros(self._store.dimension or 0, np.float32)
            vectors = self._store.present_embeddings(there)
            index = CaseIndex(node, {id: none if row is None else row for id, row in sorted(vectors.items())})
            texts = index.sought_texts
            meanings = await self._embed(texts) if texts else []
            index.learn_meanings({text: row for text, row in zip(texts, meanings, strict=True) if row is not None})
            kept = (key, index)
        self._known[node.id] = kept
        if len(self._known) > _MOST_KEPT:
            self._known.pop(next(iter(self._known)))
        return kept[1]
