"""What was known, and what holds, at a moment."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import EpisodicNode, ProceduralNode, SemanticNode
from fluxmem_local.testing import HashEmbedder

DAY = 86_400
NOW = time.time()


def day(offset: float) -> datetime:
    return datetime.fromtimestamp(NOW + offset * DAY, timezone.utc)


@pytest.fixture(params=["words", "vectors", "both"])
async def agent(request: pytest.FixtureRequest) -> AsyncIterator[FluxMemAgent]:
    embedder = None if request.param == "words" else HashEmbedder(256)
    weights = {"words": (0, 1), "vectors": (1, 0), "both": (1, 1)}[request.param]
    config = FluxMemConfig(dense_weight=weights[0], bm25_weight=weights[1])
    async with FluxMemAgent(None, embedder, config) as agent:
        yield agent


async def found(agent: FluxMemAgent, query: str, **options: Any) -> list[str]:
    return [hit.node.content for hit in await agent.retrieve(query, top_k=9, **options)]


async def test_only_what_holds_is_found_unless_asked_for(agent: FluxMemAgent) -> None:
    await agent.add_knowledge("The rent is 800 euros.", metadata={"valid_to": day(-2).isoformat()})
    await agent.add_knowledge("The rent is 900 euros.", metadata={"valid_from": day(-2).isoformat()})
    await agent.add_knowledge("The rent is 950 euros.", metadata={"valid_from": day(2).isoformat()})
    assert await found(agent, "rent in euros") == ["The rent is 900 euros."]
    assert set(await found(agent, "rent in euros", as_of=day(3))) == {
        "The rent is 900 euros.",
        "The rent is 950 euros.",
    }
    assert len(await found(agent, "rent in euros", as_of="any")) == 3
    # Nothing was stored yet.
    assert await found(agent, "rent in euros", as_of=day(-3)) == []
    assert "900" in await agent.context("What is the rent in euros?")
    assert "800" not in await agent.context("What is the rent in euros?")
    assert "800" in await agent.context("What is the rent in euros?", as_of="any")


async def test_what_was_stored_later_was_not_known(agent: FluxMemAgent) -> None:
    await agent.add_knowledge_nodes(
        [
            SemanticNode(id="old", content="The key is with Ada.", created_at=NOW - 10 * DAY),
            SemanticNode(id="new", content="The key is with Ben.", created_at=NOW - DAY),
        ]
    )
    assert set(await found(agent, "key")) == {"The key is with Ada.", "The key is with Ben."}
    assert await found(agent, "key", as_of=day(-5)) == ["The key is with Ada."]
    assert await found(agent, "key", as_of=day(-5).isoformat()) == ["The key is with Ada."]
    assert await found(agent, "key", as_of=NOW - 5 * DAY) == ["The key is with Ada."]
    assert await found(agent, "key", as_of=day(-20).date()) == []


async def test_what_was_changed_later_is_found_as_it_was(agent: FluxMemAgent) -> None:
    (id,) = await agent.add_knowledge("The capital of Wonderland is Teapot.")
    await agent.add_knowledge("The weather is fine.")
    between = time.time()
    await agent.update(id, "Wonderland moved its seat to Chess.")
    later = time.time()
    await agent.update(id, "Alice rules from Croquet.")
    assert (await found(agent, "teapot", as_of=between))[0] == "The capital of Wonderland is Teapot."
    assert (await found(agent, "chess", as_of=later))[0] == "Wonderland moved its seat to Chess."
    assert (await found(agent, "croquet"))[0] == "Alice rules from Croquet."
    (hit, *_) = await agent.retrieve("teapot", top_k=1, as_of=between)
    assert hit.node.id == id
    assert max(hit.signals[name] for name in ("dense", "bm25") if name in hit.signals) > 0.3
    assert "Teapot" in await agent.context("Where is the teapot?", as_of=between)
    assert "Alice" not in await agent.context("Where is the teapot?", as_of=between)
    # Nothing of it stays: the memory is as it was.
    assert agent.get(id).content == "Alice rules from Croquet."
    assert agent.verify().problems == ()


async def test_a_change_before_the_scope_and_filters_are_those_of_the_question(agent: FluxMemAgent) -> None:
    (id,) = await agent.add_knowledge("The plan is teapot.", metadata={"n": 1}, scope={"user": "ada"})
    between = time.time()
    await agent.update(id, "The plan is chess.")
    assert await found(agent, "teapot", as_of=between, scope={"user": "ada"}, filters={"n": 1}) == [
        "The plan is teapot."
    ]
    assert await found(agent, "teapot", as_of=between, scope={"user": "ben"}) == []
    assert await found(agent, "teapot", as_of=between, filters={"n": 2}) == []


async def test_a_skill_of_another_version_and_an_episode(agent: FluxMemAgent) -> None:
    await agent.add_knowledge_nodes(
        [
            ProceduralNode(id="s", skill_text="Boil the kettle first.", created_at=NOW - 9 * DAY),
            EpisodicNode(id="e", task_description="make tea", success=True, created_at=NOW - 9 * DAY),
        ]
    )
    await agent.update("s", "Warm the pot first.")
    await agent.update("e", "brew coffee")
    (skill,) = await agent.retrieve("kettle", layers=("procedural",), as_of=day(-1))
    assert isinstance(skill.node, ProceduralNode)
    assert (skill.node.skill_text, skill.node.content) == ("Boil the kettle first.", "Boil the kettle first.")
    (episode,) = await agent.retrieve("tea", layers=("episodic",), as_of=day(-1))
    assert isinstance(episode.node, EpisodicNode)
    assert episode.node.task_description == "make tea"


async def test_contents_from_before_another_embedder_are_embedded_when_asked_for() -> None:
    async with FluxMemAgent(None, HashEmbedder(64)) as agent:
        (id,) = await agent.add_knowledge("The capital is Teapot.")
        between = time.time()
        await agent.update(id, "The seat is Chess.")
        agent.store.begin_reembedding("hash-64-again", 64)
        agent.store.reembed(agent.store.not_reembedded(9), np.ones((1, 64)))
        assert agent.store.end_reembedding()
        await agent.reindex()
        (hit,) = await agent.retrieve("teapot", top_k=1, as_of=between)
        assert hit.signals["dense"] > 0.3


@pytest.mark.parametrize("as_of", ["", "yesterday", True, [], float("inf"), "2026-02-30"])
async def test_what_is_no_time_is_refused(agent: FluxMemAgent, as_of: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"as_of=.* is no time.* give ISO 8601"):
        await agent.retrieve("x", as_of=as_of)
    with pytest.raises(InvalidInputError, match=r"as_of=.* is no time"):
        await agent.context("x", as_of=as_of)
