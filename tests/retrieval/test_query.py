from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.graph import SemanticNode
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.retrieval.query import Query
from fluxmem_local.types import FloatArray

EAST, NORTH = np.float32([1, 0]), np.float32([0, 1])


class Faint(BaseEmbedder):
    """Finds in all texts next to no similarity, 0.1, to a question."""

    dimension = 2

    async def embed_text(self, text: str) -> FloatArray:
        return EAST

    async def embed_batch(self, texts: Sequence[str]) -> FloatArray:
        return np.stack([EAST if text.endswith("?") else np.float32([0.1, 0.99**0.5]) for text in texts])


def _node(vector: Any) -> SemanticNode:
    return SemanticNode(content="a", embedding=vector)


def test_a_missing_vector_counts_as_the_mean_of_the_others() -> None:
    query = Query(text="a", vector=EAST)
    cosines = query.cosines([_node(EAST), _node(None), _node(NORTH), _node(-EAST), _node(None)])
    np.testing.assert_allclose(cosines, [1, 1 / 3, 0, 0, 1 / 3], rtol=1e-6)
    np.testing.assert_array_equal(query.cosines([_node(None)]), [0])
    assert query.cosines([]).shape == (0,)
    assert Query(text="a", vector=None).cosines([_node(EAST)]) is None


async def test_a_fact_without_a_vector_that_holds_the_words_comes_first(tmp_path: Path) -> None:
    with FluxMemAgent(None, None, path=tmp_path) as agent:
        await agent.add_knowledge("The gate code is 4711.")
    with FluxMemAgent(None, Faint(), path=tmp_path) as agent:
        for other in ("Pigeons eat bread.", "Rent costs 900.", "Violins need strings.", "Comets return."):
            await agent.add_knowledge(other)
        hits = await agent.retrieve("Gate code?", top_k=2)
        assert hits[0].node.content == "The gate code is 4711."
        np.testing.assert_allclose([hit.signals["dense"] for hit in hits], [0.1, 0.1], rtol=1e-5)
        assert hits[0].score > hits[1].score
