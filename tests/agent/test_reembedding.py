"""Changing the embedder: the old vectors serve until all new ones are there, also over a kill in the middle."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluxmem_local.agent import maintenance
from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.errors import DimensionError, EmbedderMismatchError
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import FloatArray

from .test_maintenance import Relabelled

OLD = HashEmbedder(64)
TEXTS = [f"fact {number} about the {thing}" for number, thing in enumerate(["gate", "door", "well", "chest"] * 10)]
KILLED = """
import asyncio, os, signal, sys
from fluxmem_local.agent import maintenance
from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.testing import HashEmbedder
maintenance._NODES_AT_ONCE = 8
done = []
def advance(number):
    done.append(number)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
agent = FluxMemAgent(None, HashEmbedder(32), path=sys.argv[1], accept_other_embedder=True)
asyncio.run(agent.reindex(on_progress=advance))
"""


class Counting(HashEmbedder):
    """Keeps the texts that it was asked for in batches."""

    def __init__(self, dimension: int = 32) -> None:
        super().__init__(dimension)
        self.asked: list[str] = []

    async def embed_batch(self, texts: Sequence[str]) -> FloatArray:
        self.asked += texts
        return await super().embed_batch(texts)


async def filled(folder: Path | None, embedder: HashEmbedder = OLD) -> FluxMemAgent:
    agent = FluxMemAgent(None, embedder, path=folder)
    for text in TEXTS:
        await agent.add_knowledge(text)
    return agent


async def found(agent: FluxMemAgent) -> list[Any]:
    hits = [await agent.retrieve(query, top_k=40) for query in ("fact 3 about the chest", "the well", "gate fact 8")]
    # Equal scores stand by their ids, which are random.
    return [sorted((-round(hit.score, 5), hit.node.content) for hit in each) for each in hits]


async def test_a_killed_reindex_leaves_the_memory_usable_and_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await filled(tmp_path / "m") as agent:
        before = await found(agent)
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "m")], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    async with FluxMemAgent(None, OLD, path=tmp_path / "m") as agent:
        assert await found(agent) == before
        report = agent.verify()
        assert (report.problems, report.notes) == (
            (),
            (
                "24 of 40 memories are embedded by hash-embedder-1/32, which is to take over; go on with: "
                "fluxmem reindex --embedder MODEL",
            ),
        )
    new = Counting()
    monkeypatch.setattr(maintenance, "_NODES_AT_ONCE", 8)
    async with FluxMemAgent(None, new, path=tmp_path / "m", accept_other_embedder=True) as agent:
        assert (await agent.reindex()).num_embedded == 16
        assert new.asked == TEXTS[24:]
        async with await filled(None, HashEmbedder(32)) as fresh:
            assert await found(agent) == await found(fresh)
        assert (agent.verify().problems, agent.verify().notes) == ((), ())
        assert agent.store._rows("SELECT COUNT(*) FROM reembedded", [])[0][0] == 0


@pytest.mark.parametrize("new", [HashEmbedder(32), Relabelled(64)], ids=["another size", "the same size"])
async def test_what_changes_meanwhile_is_embedded_too_and_the_old_embedder_ends_with_the_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: HashEmbedder
) -> None:
    monkeypatch.setattr(maintenance, "_NODES_AT_ONCE", 8)
    async with await filled(tmp_path / "m") as old:
        seen = []
        by_text = {node.content: node.id for node in old.store.select()}

        async def work(turn: int) -> None:
            if turn == 2:
                await old.add_knowledge("a fact that came in between")
                await old.update(by_text[TEXTS[0]], "the first fact, as it is now")
                await old.update(by_text[TEXTS[39]], "the last fact, as it is now")
                await old.forget([by_text[TEXTS[1]]])
            seen.append([hit.node.content for hit in await old.retrieve(TEXTS[7], top_k=1)])

        turns = iter(range(100))

        def advance(_number: int) -> None:
            waiting.append(asyncio.ensure_future(work(next(turns))))

        waiting: list[asyncio.Future[None]] = []
        async with FluxMemAgent(None, new, path=tmp_path / "m", accept_other_embedder=True) as agent:

            async def embed_batch(texts: Sequence[str]) -> FloatArray:
                for future in waiting:
                    await future
                return await HashEmbedder.embed_batch(new, texts)

            monkeypatch.setattr(new, "embed_batch", embed_batch)
            await agent.reindex(on_progress=advance)
            contents = {node.content for node in agent.store.select()}
            assert contents == {*TEXTS[2:39], *(f"the {place} fact, as it is now" for place in ("first", "last"))} | {
                "a fact that came in between"
            }
            for node in agent.store.select():
                assert node.embedding is not None
                assert np.allclose(node.embedding, new._embed(node.content), atol=1e-6)
            assert agent.verify().problems == ()
        assert seen[:5] == [[TEXTS[7]]] * 5
        with pytest.raises(EmbedderMismatchError if new.dimension == 64 else DimensionError):
            await old.retrieve("gate")
        with pytest.raises(EmbedderMismatchError, match="fluxmem reindex"):
            await old.add_knowledge("too late")


async def test_another_embedder_than_the_one_under_way_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await filled(tmp_path / "m") as agent:
        agent.store.begin_reembedding("half-way", 8)
        agent.store.reembed(agent.store.not_reembedded(5), HashEmbedder(8)._bag(["x"])[None, :].repeat(5, axis=0))
        assert len(agent.store.not_reembedded(99)) == 35
    new = Counting()
    async with FluxMemAgent(None, new, path=tmp_path / "m", accept_other_embedder=True) as agent:
        assert (await agent.reindex()).num_embedded == 40
        assert new.asked == TEXTS
