"""Small facts with vectors for the tests of storage."""

from __future__ import annotations

from typing import Any

import pytest

from fluxmem_local.graph import EpisodicNode, SemanticNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import FloatArray


class Maker:
    """Makes embedded nodes, and opens memories of the same embedder."""

    def __init__(self) -> None:
        self.embedder = HashEmbedder(32)

    def vector(self, text: str) -> FloatArray:
        return self.embedder._embed(text)

    def fact(self, text: str, **fields: Any) -> SemanticNode:
        return SemanticNode(content=text, embedding=self.vector(text), **fields)

    def episode(self, text: str, **fields: Any) -> EpisodicNode:
        return EpisodicNode(content=text, embedding=self.vector(text), **fields)

    def open(self, path: Any, **options: Any) -> MemoryStore:
        options.setdefault("fingerprint", self.embedder.fingerprint)
        options.setdefault("dimension", 32)
        return MemoryStore.open(path, **options)

    def filled(self, path: Any, *texts: str) -> MemoryStore:
        store = self.open(path)
        with store.transaction() as transaction:
            transaction.add_nodes([self.fact(text) for text in texts])
        return store


@pytest.fixture
def make() -> Maker:
    return Maker()
