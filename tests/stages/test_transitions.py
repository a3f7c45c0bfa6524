from __future__ import annotations

from collections.abc import Sequence

import pytest

from fluxmem_local import FluxMemAgent, FluxMemConfig
from fluxmem_local.graph import EpisodicNode, SemanticNode
from fluxmem_local.stages.transitions import find_transitions
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer, Origin

WALKS = [
    ["go to hall", "go to attic", "take key", "go to hall"],
    ["go to cellar", "take rope", "go to hall", "go to attic"],
    ["go to hall", "go to cellar", "take lamp"],
]
FACTS = [
    'After "go to attic" can be done: "go to hall"',
    'After "go to cellar" can be done: "go to hall"',
    'After "go to hall" can be done: "go to attic", "go to cellar"',
]


def episode(actions: Sequence[str], task: str = "walk") -> EpisodicNode:
    return EpisodicNode(task_description=task, trajectory=tuple(("", action) for action in actions), success=True)


def texts(walks: Sequence[Sequence[str]], min_support: int = 3) -> list[str]:
    return [found.text for found in find_transitions([episode(walk) for walk in walks], min_support=min_support)]


def test_places_lead_where_episodes_went() -> None:
    assert texts(WALKS) == FACTS


def test_the_episodes_that_show_it_are_named() -> None:
    episodes = [episode(walk) for walk in WALKS]
    attic, cellar, hall = find_transitions(episodes, min_support=3)
    assert attic.episode_ids == (episodes[0].id,)
    assert cellar.episode_ids == (episodes[1].id,)
    assert hall.episode_ids == tuple(sorted(each.id for each in episodes))


def test_what_has_no_way_back_is_no_place() -> None:
    assert texts([["take pot", "take lid", "take spoon"]] * 3) == []


def test_two_episodes_are_too_few() -> None:
    assert texts(WALKS[:2]) == []


def test_what_is_done_to_each_place_on_the_way_says_nothing_more() -> None:
    walks = [[step for action in walk for step in (action.replace("go to", "open door to"), action)] for walk in WALKS]
    assert texts(walks) == FACTS


@pytest.fixture
def agent() -> FluxMemAgent:
    return FluxMemAgent(None, HashEmbedder(), FluxMemConfig(llm_model="none"))


async def record(agent: FluxMemAgent) -> list[str]:
    return [
        await agent.record_episode(f"walk {n}", [("", each) for each in walk], True) for n, walk in enumerate(WALKS)
    ]


def facts(agent: FluxMemAgent) -> list[SemanticNode]:
    return [node for node in agent._store.select(layers=(Layer.SEMANTIC,)) if isinstance(node, SemanticNode)]


async def test_consolidation_writes_them_once(agent: FluxMemAgent) -> None:
    await record(agent)
    first = await agent.consolidate()
    assert [node.content for node in facts(agent)] == FACTS
    assert {node.added_by for node in facts(agent)} == {Origin.DERIVED}
    assert first.learned_facts == tuple(node.id for node in facts(agent))
    second = await agent.consolidate()
    assert second.learned_facts == ()
    assert [node.content for node in facts(agent)] == FACTS
    assert agent.verify().ok


async def test_a_dry_run_only_tells(agent: FluxMemAgent) -> None:
    await record(agent)
    report = await agent.consolidate(dry_run=True)
    assert len(report.learned_facts) == 3
    assert facts(agent) == []


async def test_new_episodes_change_what_is_known(agent: FluxMemAgent) -> None:
    await record(agent)
    await agent.consolidate()
    await agent.record_episode("walk far", [("", "go to hall"), ("", "go to roof"), ("", "go to hall")], True)
    await agent.consolidate()
    assert sorted(node.content for node in facts(agent)) == [
        *FACTS[:2],
        'After "go to hall" can be done: "go to attic", "go to cellar", "go to roof"',
        'After "go to roof" can be done: "go to hall"',
    ]


async def test_a_forgotten_episode_takes_what_it_alone_showed_with_it(agent: FluxMemAgent) -> None:
    ids = await record(agent)
    await agent.consolidate()
    await agent.forget([ids[1]])
    # Only the second walk came back from the cellar.
    assert [node.content for node in facts(agent)] == [FACTS[0], FACTS[2]]
    assert agent.verify().ok
    known = [node.id for node in facts(agent)]
    report = await agent.consolidate()
    # Two walks are too few.
    assert facts(agent) == []
    assert report.dropped == tuple((id, "its episodes show it no longer") for id in known)


async def test_what_was_forgotten_is_not_learned_again(agent: FluxMemAgent) -> None:
    await record(agent)
    await agent.consolidate()
    await agent.forget([facts(agent)[0].id])
    report = await agent.consolidate()
    assert report.learned_facts == ()
    assert [node.content for node in facts(agent)] == FACTS[1:]
