"""Tidying: fading edges, duplicate facts, skills that don't generalise, what dead tasks leave."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import (
    DistillEdge,
    Edit,
    EpisodicNode,
    GroundEdge,
    Node,
    ProceduralNode,
    SemanticNode,
    StepLinkEdge,
)
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.stages.tidying import DAY_S, TidyPlan, apply_tidying, plan_tidying
from fluxmem_local.storage.owner_process import OWNER, this_process
from fluxmem_local.text import near_key
from fluxmem_local.types import NodeState, Scope

NOW = 2_000_000_000.0
CONFIG = FluxMemConfig()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore.open(None)


def put(store: MemoryStore, *values: Any) -> None:
    with store.transaction() as change:
        change.add_nodes([value for value in values if isinstance(value, Node)])
        change.add_edges([value for value in values if isinstance(value, (GroundEdge, DistillEdge, StepLinkEdge))])
        change.record_outcomes([value for value in values if isinstance(value, Outcome)])
        for value in values:
            if isinstance(value, Edit):
                change.put_edit(value)


def tidy(store: MemoryStore, *, now: float = NOW) -> TidyPlan:
    with store.transaction() as change:
        plan = plan_tidying(store, CONFIG, now=now)
        apply_tidying(change, plan, store)
    return plan


def fact(id: str, content: str = "", **settings: Any) -> SemanticNode:
    return SemanticNode(id=id, content=content or f"fact {id}", created_at=NOW - 500 * DAY_S, **settings)


def episode(id: str, **settings: Any) -> EpisodicNode:
    return EpisodicNode(**({"id": id, "task_description": f"task {id}", "success": True, "created_at": NOW} | settings))


def weights(store: MemoryStore) -> dict[str, float]:
    return {edge.id: edge.weight for edge in store.edges()}


class TestEdges:
    def ground(self, id: str, source: str, *, days: float, **settings: Any) -> GroundEdge:
        return GroundEdge(id=id, source_id=source, target_id="e", created_at=NOW - days * DAY_S, **settings)

    def test_weights_halve_in_ninety_unused_days_and_success_slows_it(self, store: MemoryStore) -> None:
        put(
            store,
            *map(fact, "abc"),
            episode("e"),
            self.ground("new", "a", days=0.5),
            self.ground("old", "b", days=90),
            self.ground("used", "c", days=90, success_count=1),
        )
        tidy(store)
        assert weights(store) == pytest.approx({"new": 1, "old": 0.5, "used": 0.5**0.5})

    def test_tidying_again_on_the_same_day_changes_nothing(self, store: MemoryStore) -> None:
        put(store, fact("a"), episode("e"), self.ground("old", "a", days=90))
        tidy(store)
        before = (weights(store), store.stats()["generation"], store.meta("tidied_at"))
        plan = tidy(store, now=NOW + 3600)
        assert (plan.weights, plan.pruned_edges) == ({}, ())
        assert (weights(store), store.stats()["generation"], store.meta("tidied_at")) == before

    def test_tidying_often_decays_no_faster_than_tidying_once(self, store: MemoryStore) -> None:
        put(store, fact("a"), episode("e"), self.ground("old", "a", days=0))
        for hours in range(0, 90 * 24 + 1, 9):
            tidy(store, now=NOW + hours * 3600)
        assert weights(store)["old"] == pytest.approx(0.5)

    def test_faded_edges_go_but_not_young_or_useful_ones_nor_provenance(self, store: MemoryStore) -> None:
        skill = ProceduralNode(id="s", skill_text="do it", source_episode_ids=("e",))
        put(
            store,
            *map(fact, "abc"),
            episode("e"),
            episode("used"),
            skill,
            self.ground("faded", "a", days=400),
            self.ground("young", "b", days=29, weight=0.01),
            self.ground("useful", "c", days=400, success_count=1),
            DistillEdge(id="provenance", source_id="e", target_id="s", created_at=NOW - 400 * DAY_S),
            DistillEdge(id="tried", source_id="used", target_id="s", created_at=NOW - 400 * DAY_S),
        )
        plan = tidy(store)
        assert {id for id, _ in plan.pruned_edges} == {"faded", "tried"}
        assert dict(plan.pruned_edges)["faded"] == "ground edge: no success in 400 days"
        assert set(weights(store)) == {"young", "useful", "provenance"}


class TestDuplicates:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("Coats hang in the wardrobe.", "coats  hang in the wardrobe"),
            ("It was called “Aurora”!", "It was called 'Aurora'."),
            ("The height is 5.", "the height is 5"),
        ],
    )
    def test_texts_equal_up_to_case_spacing_and_punctuation_are_one(self, one: str, other: str) -> None:
        assert near_key(one) == near_key(other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("The limit is 5", "The limit is -5"),
            ("The limit is 1.5", "The limit is 15"),
            ("The limit is 10", "The limit is 1 0"),
            ("The limit is .5", "The limit is 5"),
            ("The limit is 5%", "The limit is 5"),
            ("It is written in C", "It is written in C++"),
            ("Ada likes tea", "Ida likes tea"),
            ("José won", "Jose won"),
            ("He won.", "He won?"),
            ("see re-sign", "see resign"),
        ],
    )
    def test_texts_that_say_something_else_stay_two(self, one: str, other: str) -> None:
        assert near_key(one) != near_key(other)

    def test_the_oldest_takes_over_links_counts_and_metadata(self, store: MemoryStore) -> None:
        put(
            store,
            replace(fact("new", "Coats hang in the wardrobe."), created_at=NOW, metadata={"page": 3}),
            replace(fact("old", "coats hang in the wardrobe"), count=2, metadata={"lang": "en"}),
            episode("e"),
            GroundEdge(source_id="new", target_id="e", created_at=NOW),
        )
        tidy(store)
        (kept,) = store.select(layers=("semantic",))
        assert isinstance(kept, SemanticNode)
        assert (kept.id, kept.count, dict(kept.metadata)) == ("old", 3, {"lang": "en", "page": 3})
        assert [edge.source_id for edge in store.edges()] == ["old"]
        assert store.verify().ok

    def test_scopes_and_contradicting_metadata_keep_facts_apart(self, store: MemoryStore) -> None:
        put(
            store,
            fact("a", "Tea is hot", scope=Scope(user="ada")),
            fact("b", "Tea is hot.", scope=Scope(user="ben")),
            fact("c", "Tea is hot", metadata={"page": 1}),
            fact("d", "Tea is hot!", metadata={"page": 2}),
        )
        assert tidy(store).merges == ()
        assert store.count() == 4

    def test_a_version_that_says_the_same_goes_into_its_original(self, store: MemoryStore) -> None:
        put(store, fact("original", "Tea is hot"))
        put(store, replace(fact("variant", "tea is hot."), variant_of="original", created_at=0.0))
        tidy(store)
        assert [node.id for node in store.select()] == ["original"]

    def test_signs_alone_are_no_text_to_compare(self, store: MemoryStore) -> None:
        put(store, fact("a", "..."), fact("b", "!!"))
        assert tidy(store).merges == ()


class TestSkills:
    def outcomes(self, skill_id: str, helped: int, hurt: int) -> list[Any]:
        results = [1] * helped + [0] * hurt
        names = [f"{skill_id}{number}" for number in range(len(results))]
        return [
            *(episode(name) for name in names),
            *(
                Outcome(node_id=skill_id, episode_id=name, helped=result, hurt=1 - result)
                for name, result in zip(names, results, strict=True)
            ),
        ]

    def test_skills_that_seldom_help_are_demoted_and_not_deleted(self, store: MemoryStore) -> None:
        put(store, *(ProceduralNode(id=id, skill_text=f"skill {id}") for id in ("bad", "good", "few")))
        put(store, *self.outcomes("bad", 1, 4), *self.outcomes("good", 2, 3), *self.outcomes("few", 0, 4))
        plan = tidy(store)
        assert plan.demoted == (("bad", "helped in 1 of the 5 tasks that used it"),)
        assert [store.get(id).state for id in ("bad", "good", "few")] == [
            NodeState.DEMOTED,
            NodeState.ACTIVE,
            NodeState.ACTIVE,
        ]
        assert tidy(store).demoted == ()

    def test_an_induced_skill_with_one_instance_left_is_demoted_a_written_one_is_not(self, store: MemoryStore) -> None:
        put(store, episode("e"))
        put(
            store,
            ProceduralNode(id="induced", skill_text="one", metadata={"structure": {}}, source_episode_ids=("e",)),
            ProceduralNode(id="written", skill_text="two", source_episode_ids=("e",)),
        )
        assert tidy(store).demoted == (("induced", "1 source episodes are left, 2 are needed"),)


class TestDeadTasks:
    def test_a_task_whose_process_is_gone_is_ended_at_once(self, store: MemoryStore) -> None:
        ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
        gone = {**this_process(), "pid": int(ended.stdout)}
        owners = {"gone": gone, "mine": this_process(), "elsewhere": {**gone, "host": "another"}, "unknown": "?"}
        for name, owner in owners.items():
            put(store, episode(name, created_at=NOW, success=None, status="running", metadata={OWNER: owner}))
        tidy(store)
        statuses = {name: store.get(name).status for name in owners}  # type: ignore[union-attr]
        assert statuses == {"gone": "interrupted", "mine": "running", "elsewhere": "running", "unknown": "running"}

    def test_a_task_that_was_killed_is_ended_with_all_that_it_left(self, store: MemoryStore) -> None:
        running = {"success": None, "status": "running"}
        put(store, fact("f"), episode("dead", created_at=NOW - 2 * DAY_S, **running), episode("live", **running))
        with store.transaction() as change:
            change.add_nodes([fact("trial", "a finer fact", variant_of="f")], trial_of="dead")
        put(
            store,
            StepLinkEdge(id="of dead", source_id="dead", target_id="f", created_at=NOW - 2 * DAY_S),
            StepLinkEdge(id="of live", source_id="live", target_id="f", created_at=NOW),
            Edit(
                id="x",
                kind="reshape",
                targets=("f",),
                reason="r",
                episode_id="dead",
                after={"variants": {"f": "trial"}},
            ),
        )
        plan = tidy(store)
        assert (plan.step_edges, plan.trial_nodes) == (("of dead",), ("trial",))
        ended = store.get("dead")
        assert isinstance(ended, EpisodicNode)
        assert (ended.status, ended.success) == ("interrupted", False)
        assert store.get_edit("x").kept is False
        assert [edge.id for edge in store.edges()] == ["of live"]
        assert {node.id for node in store.select(states=tuple(NodeState))} == {"f", "dead", "live"}
        assert store.verify().ok

    def test_a_long_task_that_still_takes_steps_goes_on(self, store: MemoryStore) -> None:
        put(store, fact("f"), episode("long", created_at=NOW - 9 * DAY_S, success=None, status="running"))
        put(store, StepLinkEdge(source_id="long", target_id="f", created_at=NOW - 60))
        assert tidy(store).interrupted == ()
        assert len(store.edges()) == 1

    def test_step_links_of_finished_tasks_are_collected(self, store: MemoryStore) -> None:
        put(store, fact("f"), episode("done"))
        put(store, StepLinkEdge(id="left", source_id="done", target_id="f", created_at=NOW))
        assert tidy(store).step_edges == ("left",)
        assert store.edges() == []
