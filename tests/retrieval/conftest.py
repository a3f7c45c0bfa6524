"""A small memory to search, filled by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import Edge, Edit, EpisodicNode, Node, ProceduralNode, SemanticNode
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.retrieval import Retriever
from fluxmem_local.testing import HashEmbedder


class Shelf:
    """A memory in RAM with short ways to fill it."""

    def __init__(self, embedder: BaseEmbedder | None) -> None:
        self.embedder = embedder
        self.store = MemoryStore.open(
            None,
            dimension=None if embedder is None else embedder.dimension,
            fingerprint=None if embedder is None else embedder.fingerprint,
        )

    def retriever(self, llm: BaseLLM | None = None, **settings: Any) -> Retriever:
        return Retriever(self.store, self.embedder, llm, FluxMemConfig(**settings))

    async def put(self, *nodes: Node, trial_of: str | None = None) -> None:
        if self.embedder is not None:
            vectors = await self.embedder.embed_batch([node.content for node in nodes])
            nodes = tuple(replace(node, embedding=vector) for node, vector in zip(nodes, vectors, strict=True))
        with self.store.transaction() as transaction:
            transaction.add_nodes(nodes, trial_of=trial_of)

    async def facts(self, **contents: str) -> None:
        await self.put(*[SemanticNode(id=id, content=content) for id, content in contents.items()])

    async def episode(self, id: str, task: str, success: bool | None = True, **fields: Any) -> None:
        await self.put(EpisodicNode(id=id, task_description=task, success=success, **fields))

    async def skill(self, id: str, text: str, **fields: Any) -> None:
        await self.put(ProceduralNode(id=id, skill_text=text, **fields))

    def link(self, *edges: Edge) -> None:
        with self.store.transaction() as transaction:
            transaction.add_edges(edges)

    def outcome(self, episode_id: str, *, helped: Sequence[str] = (), hurt: Sequence[str] = ()) -> None:
        outcomes = [Outcome(node_id=id, episode_id=episode_id, helped=1) for id in helped]
        outcomes += [Outcome(node_id=id, episode_id=episode_id, hurt=1) for id in hurt]
        with self.store.transaction() as transaction:
            transaction.record_outcomes(outcomes)

    def edit(self, kind: str, episode_id: str, *targets: str, kept: bool | None = True, **fields: Any) -> None:
        edit = Edit(kind=kind, targets=targets, reason="test", kept=kept, episode_id=episode_id, **fields)
        with self.store.transaction() as transaction:
            transaction.put_edit(edit)


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    made = Shelf(HashEmbedder(256))
    yield made
    made.store.close()


@pytest.fixture
def wordy_shelf() -> Iterator[Shelf]:
    """A memory without an embedder."""
    made = Shelf(None)
    yield made
    made.store.close()
