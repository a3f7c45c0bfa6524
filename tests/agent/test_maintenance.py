from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.errors import EmbedderMismatchError, ModelError
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.testing import HashEmbedder


class Relabelled(HashEmbedder):
    """The same size as its base, other weights."""

    @property
    def fingerprint(self) -> str:
        return "relabelled-hash"

    def _embed(self, text: str) -> Any:
        return super()._embed(text)[::-1]


async def _fill(folder: Path) -> None:
    with FluxMemAgent(None, HashEmbedder(64), path=folder) as agent:
        for text in ("The lease ends in May.", "Pigeons eat bread.", "Rent is 900."):
            await agent.add_knowledge(text)


@pytest.mark.parametrize("other", [HashEmbedder(32), Relabelled(64)])
async def test_another_embedder_is_an_error_until_reindex(tmp_path: Path, other: HashEmbedder) -> None:
    await _fill(tmp_path / "m")
    with pytest.raises(EmbedderMismatchError) as caught:
        FluxMemAgent(None, other, path=tmp_path / "m")
    assert HashEmbedder(64).fingerprint in str(caught.value)
    assert other.fingerprint in str(caught.value)
    assert "fluxmem reindex" in str(caught.value)
    with FluxMemAgent(None, other, path=tmp_path / "m", accept_other_embedder=True) as agent:
        done: list[int] = []
        report = await agent.reindex(on_progress=done.append)
        assert (report.num_embedded, done) == (3, [3])
        assert (report.fingerprint_before, report.fingerprint) == (HashEmbedder(64).fingerprint, other.fingerprint)
    with FluxMemAgent(None, other, path=tmp_path / "m") as agent:
        assert agent.stats["num_semantic_nodes"] == 3
        assert agent.stats["num_unembedded"] == 0
        assert agent.verify().problems == ()
        assert [hit.node.content for hit in await agent.retrieve("lease May", top_k=1)] == ["The lease ends in May."]


async def test_reindex_with_an_embedder_that_fails_keeps_the_old_vectors(tmp_path: Path) -> None:
    await _fill(tmp_path / "m")

    class Broken(BaseEmbedder):
        dimension = 4

        async def embed_text(self, text: str) -> Any:
            raise ModelError("no weights")

        async def embed_batch(self, texts: Sequence[str]) -> Any:
            raise ModelError("no weights")

    broken = FluxMemAgent(None, Broken(), path=tmp_path / "m", accept_other_embedder=True)
    with broken, pytest.raises(ModelError, match="no weights"):
        await broken.reindex()
    with FluxMemAgent(None, HashEmbedder(64), path=tmp_path / "m") as agent:
        assert agent.stats["num_unembedded"] == 0


async def test_what_was_added_without_an_embedder_is_embedded_by_reindex(tmp_path: Path) -> None:
    with FluxMemAgent(None, None, path=tmp_path / "m") as agent:
        await agent.add_knowledge("The lease ends in May.")
        await agent.add_knowledge("Pigeons eat bread.")
        assert [hit.node.content for hit in await agent.retrieve("lease")] == ["The lease ends in May."]
        assert agent.stats["num_unembedded"] == 2
        with pytest.raises(ModelError, match="embedder"):
            await agent.reindex()
    with FluxMemAgent(None, HashEmbedder(64), path=tmp_path / "m") as agent:
        assert (await agent.reindex()).num_embedded == 2
        assert agent.stats["num_unembedded"] == 0
        assert (await agent.reindex()).num_embedded == 0
        (hit,) = await agent.retrieve("Pigeons eat bread.", top_k=1)
        assert np.isclose(hit.signals["dense"], 1, atol=1e-5)
