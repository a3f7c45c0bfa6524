from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import BlankTextError, NotFoundError
from fluxmem_local.graph import DistillEdge, ProceduralNode, StepLinkEdge
from fluxmem_local.stages.formation import StageI, step_links
from fluxmem_local.testing import HashEmbedder, ScriptedLLM
from fluxmem_local.types import NodeState
from tests.retrieval.conftest import Shelf


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    made = Shelf(HashEmbedder(256))
    yield made
    made.store.close()


def stage(shelf: Shelf, llm: ScriptedLLM | None = None, **settings: int) -> StageI:
    return StageI(shelf.retriever(llm, **settings), FluxMemConfig(**settings))


async def bakery(shelf: Shelf) -> None:
    await shelf.facts(yeast="bread needs yeast", oven="the oven takes an hour to bake", comet="the comet returns")
    await shelf.episode("bread", "bake a bread")
    await shelf.episode("burnt", "bake a bread roll", success=False)
    await shelf.skill("slow", "let the dough rest first")
    await shelf.skill("hasty", "raise the heat")
    shelf.link(
        DistillEdge(source_id="bread", target_id="slow"),
        DistillEdge(source_id="burnt", target_id="hasty"),
    )


async def test_the_three_layers(shelf: Shelf) -> None:
    await bakery(shelf)
    formation = await stage(shelf, top_k_semantic=2, top_k_episodic=2).form("bake a bread", "an oven")
    subgraph = formation.subgraph
    assert {node.id for node in subgraph.semantic} == {"yeast", "oven"}
    assert [node.id for node in subgraph.episodic] == ["bread", "burnt"]
    # Skills come from episodes that succeeded.
    assert [node.id for node in subgraph.procedural] == ["slow"]
    assert (subgraph.task, subgraph.observation) == ("bake a bread", "an oven")
    assert tuple(hit.node.id for hit in formation.hits) == subgraph.ids


async def test_weights_of_facts_do_not_choose_episodes_or_skills(shelf: Shelf) -> None:
    await bakery(shelf)
    await shelf.episode("aaa", "tune the violin")
    formation = await stage(shelf, top_k_episodic=1, dense_weight=0).form("bake a bread")
    assert [node.id for node in formation.subgraph.episodic] == ["bread"]
    # Its episode's cosine, and what the link taught: 0.5 of evidence against a prior of 1.
    assert formation.hits[-1].score == pytest.approx(1.0 + 0.5 / 1.5, abs=1e-5)
    assert formation.hits[-1].node.id == "slow"


async def test_given_ids_are_taken_as_they_are(shelf: Shelf) -> None:
    await bakery(shelf)
    formation = await stage(shelf).form("bake a bread", context_ids=["hasty", "comet", "yeast", "comet"])
    assert [node.id for node in formation.subgraph.semantic] == ["comet", "yeast"]
    assert formation.subgraph.ids == ("comet", "yeast", "hasty")
    assert (await stage(shelf).form("bake", context_ids=[])).subgraph.ids == ()
    with pytest.raises(NotFoundError, match="nowhere"):
        await stage(shelf).form("bake a bread", context_ids=["yeast", "nowhere"])


async def test_one_verification_a_step(shelf: Shelf) -> None:
    await bakery(shelf)
    llm = ScriptedLLM()
    await stage(shelf, llm).form("bake a bread", "an oven")
    assert len(llm.calls_of("verify_batch")) == 1


async def test_the_running_episode_is_not_in_its_own_context(shelf: Shelf) -> None:
    await bakery(shelf)
    await shelf.episode("now", "bake a bread", success=None)
    formation = await stage(shelf).form("bake a bread", episode_id="now")
    assert "now" not in formation.subgraph.ids


async def test_what_misled_a_similar_task_is_hidden_in_every_layer(shelf: Shelf) -> None:
    await bakery(shelf)
    await shelf.skill("own", "bake a bread by eye")
    shelf.outcome("bread", hurt=["oven", "burnt", "slow", "own"])
    subgraph = (await stage(shelf).form("bake a bread", "an oven that is hot and an hour to wait")).subgraph
    assert not {"oven", "burnt", "slow", "own"} & set(subgraph.ids)
    assert {"yeast", "bread"} <= set(subgraph.ids)


async def test_the_task_finds_its_like_however_long_the_observation(shelf: Shelf) -> None:
    await bakery(shelf)
    shelf.edit("expand", "bread", "comet")
    page = " ".join(f"line{number}" for number in range(300))
    assert "comet" in (await stage(shelf, top_k_semantic=2).form("bake a bread", page)).subgraph.ids


async def test_a_skill_without_an_episode_is_seen_by_its_own_words(shelf: Shelf) -> None:
    await shelf.put(*[ProceduralNode(id=f"s{number}", skill_text=f"bake a bread way {number}") for number in range(5)])
    await shelf.skill("far", "tune the violin")
    shown = (await stage(shelf).form("bake a bread")).subgraph.procedural
    assert len(shown) == 2
    assert "far" not in {node.id for node in shown}


async def test_a_proved_version_of_a_skill_is_inherited(shelf: Shelf) -> None:
    await bakery(shelf)
    await shelf.skill("slower", "let the dough rest overnight", variant_of="slow")
    assert [node.id for node in (await stage(shelf).form("bake a bread")).subgraph.procedural] == ["slow"]
    shelf.outcome("bread", helped=["slower"])
    assert [node.id for node in (await stage(shelf).form("bake a bread")).subgraph.procedural] == ["slower"]


async def test_a_weak_link_counts_less(shelf: Shelf) -> None:
    await bakery(shelf)
    await shelf.skill("shaky", "knead and hope")
    shelf.link(DistillEdge(source_id="bread", target_id="shaky", failure_count=4))
    formation = await stage(shelf).form("bake a bread")
    assert [node.id for node in formation.subgraph.procedural] == ["slow", "shaky"]


async def test_demoted_skills_and_no_episodes(shelf: Shelf) -> None:
    await bakery(shelf)
    with shelf.store.transaction() as transaction:
        transaction.set_state(["slow"], NodeState.DEMOTED)
    assert (await stage(shelf).form("bake a bread")).subgraph.procedural == ()
    assert (await stage(shelf, top_k_episodic=0).form("bake a bread")).subgraph.episodic == ()


async def test_a_blank_task_is_refused(shelf: Shelf) -> None:
    with pytest.raises(BlankTextError):
        await stage(shelf).form(" ", "")


async def test_step_links_go_from_the_episode_to_what_it_activated(shelf: Shelf) -> None:
    await bakery(shelf)
    subgraph = (await stage(shelf).form("bake a bread", context_ids=["yeast", "slow"])).subgraph
    links = step_links("now", subgraph, 3)
    assert [(type(link), link.source_id, link.target_id, link.step_index) for link in links] == [
        (StepLinkEdge, "now", "yeast", 3),
        (StepLinkEdge, "now", "slow", 3),
    ]


async def test_a_mature_skill_stands_in_for_its_episodes(shelf: Shelf) -> None:
    await bakery(shelf)
    young = await stage(shelf, top_k_episodic=2).form("bake a bread", "an oven")
    skill = shelf.store.get("slow")
    assert isinstance(skill, ProceduralNode)
    with shelf.store.transaction() as change:
        change.replace(replace(skill, source_episode_ids=("bread",), metadata={"converged": True}))
    mature = await stage(shelf, top_k_episodic=2).form("bake a bread", "an oven")
    assert [node.id for node in young.subgraph.episodic] == ["bread", "burnt"]
    assert [node.id for node in mature.subgraph.episodic] == ["burnt"]
    assert [node.id for node in mature.subgraph.procedural] == ["slow"]
