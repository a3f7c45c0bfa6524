"""What an agent wrote by itself counts less and is marked, until a success or the owner confirms it."""

from __future__ import annotations

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import InvalidInputError, NotFoundError
from fluxmem_local.retrieval.ranking import signal_weights
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Origin

GATE = "The north gate opens with the green key."
MARK = 'added_by="agent" confirmed="false"'


async def test_of_two_alike_the_owners_comes_first(agent: FluxMemAgent) -> None:
    (mine,) = await agent.add_knowledge("The gate opens with the red key.", added_by="agent")
    (yours,) = await agent.add_knowledge("The gate opens with the sad key.")
    found = await agent.retrieve("gate key", verify=False, explain=True)
    assert [hit.node.id for hit in found] == [yours, mine]
    assert [hit.signals["trust"] for hit in found] == [0.0, -1.0]
    assert found[0].score > found[1].score
    assert found[0].explanation is not None
    assert found[0].explanation.weights["trust"] == signal_weights(agent.config)["trust"] == 0.05
    told = [hit.to_dict() for hit in found]
    assert [(hit["added_by"], hit["trusted"]) for hit in told] == [("user", True), ("agent", False)]
    assert agent.confirm(mine) == [mine]
    equal = await agent.retrieve("gate key", verify=False)
    assert [set(hit.signals) & {"trust"} for hit in equal] == [set(), set()]


async def test_a_much_better_match_stays_first(agent: FluxMemAgent) -> None:
    (mine,) = await agent.add_knowledge(GATE, added_by="agent")
    await agent.add_knowledge("The south door is painted white.")
    assert (await agent.retrieve("north gate green key", top_k=1, verify=False))[0].node.id == mine


async def test_where_all_is_the_owners_nothing_changes(embedder: HashEmbedder) -> None:
    texts = [GATE, "The lease ends in May.", "Keys hang by the door.", "Bread is in the box."]
    scores = []
    for config in ({}, {"trust_weight": 5.0}):
        async with FluxMemAgent(None, embedder, FluxMemConfig(**config)) as agent:
            for text in texts:
                await agent.add_knowledge(text)
            hits = await agent.retrieve("the green key")
            scores.append({hit.node.content: (hit.score, hit.signals) for hit in hits})
    assert scores[0] == scores[1]


async def test_a_context_marks_it_as_a_claim(agent: FluxMemAgent) -> None:
    (id,) = await agent.add_knowledge(GATE, source='x" onload="y', added_by="agent")
    marked = await agent.context("open the north gate")
    assert f'source="x&quot; onload=&quot;y" {MARK}>{GATE}</fact>' in marked
    agent.confirm([id])
    assert MARK not in await agent.context("open the north gate")


async def test_a_task_that_succeeds_with_it_confirms_it(agent: FluxMemAgent) -> None:
    (id,) = await agent.add_knowledge(GATE, added_by="agent")

    async def fails(context: str) -> tuple[str, str, bool]:
        assert MARK in context
        return "stood there", "the gate is shut", False

    async def works(context: str) -> tuple[str, str, bool]:
        return "opened it", "", True

    await agent.run_task("open the north gate", fails)
    assert not agent.get(id).trusted
    await agent.run_task("open the north gate", works)
    assert agent.get(id).trusted
    assert agent.get(id).added_by is Origin.AGENT


async def test_a_recorded_success_confirms_what_it_used(agent: FluxMemAgent) -> None:
    (used,) = await agent.add_knowledge(GATE, added_by="agent")
    (other,) = await agent.add_knowledge("x y", added_by="agent")
    id = await agent.record_episode("open the gate", [("", "turn")], True, used_ids=[used], added_by="user")
    assert [agent.get(each).trusted for each in (used, other)] == [True, False]
    assert agent.get(id).added_by is Origin.USER


async def test_the_owner_says_the_same(agent: FluxMemAgent) -> None:
    (id,) = await agent.add_knowledge(GATE, added_by="agent")
    assert await agent.add_knowledge(GATE, added_by="agent") == [id]
    assert not agent.get(id).trusted
    assert await agent.add_knowledge(GATE) == [id]
    assert agent.get(id).trusted


async def test_who_updates_a_fact_answers_for_it(agent: FluxMemAgent) -> None:
    (id,) = await agent.add_knowledge(GATE)
    assert not (await agent.update(id, "The gate opens with no key.", added_by="agent")).trusted
    node = await agent.update(id, GATE)
    assert (node.added_by, node.trusted) == (Origin.USER, True)


async def test_nobody_and_unknown_ids_are_refused(agent: FluxMemAgent) -> None:
    (id,) = await agent.add_knowledge(GATE, added_by="agent")
    with pytest.raises(InvalidInputError, match="added_by='me' is nobody known; give one of user, agent"):
        await agent.add_knowledge("x", added_by="me")
    with pytest.raises(InvalidInputError, match="added_by=None is nobody known"):
        await agent.update(id, "x", added_by=None)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="nobody"):
        agent.confirm([id, "nobody"])
    assert not agent.get(id).trusted
