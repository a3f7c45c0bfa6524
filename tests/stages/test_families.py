"""Which episodes teach which skill, whatever the clusters are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluxmem_local.graph import EpisodicNode, ProceduralNode
from fluxmem_local.memory_store import Outcome
from fluxmem_local.stages.families import Family, find_families, is_induced
from fluxmem_local.types import FloatArray, NodeState, Scope


def at(degrees: float) -> FloatArray:
    angle = np.radians(degrees)
    return np.array([np.cos(angle), np.sin(angle)], np.float32)


DEGREES = {"a1": 0.0, "a2": 10.0, "a3": 20.0, "b1": 120.0, "b2": 125.0, "b3": 130.0, "near": 25.0, "far": 85.0}
SHARED = Scope()
VECTORS = {id: at(degrees) for id, degrees in DEGREES.items()}


def lived(id: str, *, success: bool = True, scope: Scope = SHARED) -> EpisodicNode:
    return EpisodicNode(
        id=id, task_description=id, trajectory=(("", id),), success=success, created_at=1.0, scope=scope
    )


def skill(id: str, *sources: str, failed: Sequence[str] = (), scope: Scope = SHARED) -> ProceduralNode:
    return ProceduralNode(
        id=id,
        skill_text=id,
        source_episode_ids=sources,
        metadata={"structure": {}, "failed_episode_ids": list(failed)},
        scope=scope,
    )


def families(
    clusters: Sequence[Sequence[EpisodicNode]], *skills: ProceduralNode, trust_clusters: bool = False
) -> list[Family]:
    return find_families(clusters, skills, VECTORS, min_support=3, trust_clusters=trust_clusters)


def names(found: Sequence[Family]) -> list[tuple[str | None, list[str], list[str]]]:
    return [
        (
            None if family.skill is None else family.skill.id,
            [episode.id for episode in family.successes],
            [episode.id for episode in family.failures],
        )
        for family in found
    ]


def clustered(*groups: str) -> list[list[EpisodicNode]]:
    return [[lived(id) for id in group.split()] for group in groups]


def test_new_clusters_with_enough_support_are_families() -> None:
    assert names(families(clustered("a1 a2 a3", "b1 b2"))) == [(None, ["a1", "a2", "a3"], [])]


def test_a_split_cluster_leaves_its_skill_whole() -> None:
    found = families(clustered("a1 a2", "a3"), skill("s", "a1", "a2", "a3"))
    assert names(found) == [("s", ["a1", "a2", "a3"], [])]


def test_clusters_that_fell_together_leave_their_skills_apart_and_news_go_to_the_nearer() -> None:
    found = families(clustered("a1 a2 a3 b1 b2 b3 near"), skill("a", "a1", "a2", "a3"), skill("b", "b1", "b2", "b3"))
    assert names(found) == [("a", ["a1", "a2", "a3", "near"], []), ("b", ["b1", "b2", "b3"], [])]


def test_an_episode_in_a_cluster_of_its_own_still_goes_to_the_skill_that_it_is_like() -> None:
    assert names(families(clustered("a1 a2 a3", "near"), skill("s", "a1", "a2", "a3"))) == [
        ("s", ["a1", "a2", "a3", "near"], [])
    ]


def test_a_stranger_does_not() -> None:
    assert names(families(clustered("a1 a2 a3 far"), skill("s", "a1", "a2", "a3"))) == [("s", ["a1", "a2", "a3"], [])]


def test_a_number_of_clusters_that_the_user_gave_is_trusted() -> None:
    found = families(clustered("a1 a2 a3 far"), skill("s", "a1", "a2", "a3"), trust_clusters=True)
    assert names(found) == [("s", ["a1", "a2", "a3", "far"], [])]


def test_another_kind_within_the_cluster_makes_a_skill_of_its_own() -> None:
    assert names(families(clustered("a1 a2 a3 b1 b2 b3"), skill("s", "a1", "a2", "a3"))) == [
        ("s", ["a1", "a2", "a3"], []),
        (None, ["b1", "b2", "b3"], []),
    ]


def test_failures_go_to_the_family_that_they_are_like_and_stay_there() -> None:
    cluster = [*clustered("a1 a2 a3")[0], lived("near", success=False), lived("b1", success=False)]
    assert names(families([cluster])) == [(None, ["a1", "a2", "a3"], ["near"])]
    moved = [clustered("a1 a2 a3")[0], [lived("near", success=False)]]
    assert names(families(moved, skill("s", "a1", "a2", "a3", failed=["near"]))) == [
        ("s", ["a1", "a2", "a3"], ["near"])
    ]


def test_a_skill_of_another_user_takes_no_episode() -> None:
    ada, ben = Scope(user="ada"), Scope(user="ben")
    clusters = [[lived(id, scope=ada) for id in ("a1", "a2", "a3")], [lived("near", scope=ben)]]
    found = families(clusters, skill("s", "a1", "a2", "a3", scope=ada))
    assert names(found) == [("s", ["a1", "a2", "a3"], [])]


def test_a_skill_whose_episodes_are_gone_is_left_alone() -> None:
    assert families(clustered("b1 b2"), skill("s", "gone")) == []


def test_only_what_consolidation_made_is_an_induced_skill() -> None:
    assert is_induced(skill("s", "a1"))
    assert not is_induced(ProceduralNode(skill_text="written by hand"))
    assert not is_induced(ProceduralNode(skill_text="version", metadata={"structure": {}}, variant_of="s"))
    assert not is_induced(ProceduralNode(skill_text="version", metadata={"structure": {}}, state=NodeState.TRIAL))


def test_the_digest_changes_with_all_that_counts_and_with_nothing_else() -> None:
    one, two = (lived(id) for id in ("a1", "a2"))
    used = (Outcome(node_id="s", episode_id="x", helped=1),)
    base = Family(skill=None, successes=(one, two), failures=())
    digest = base.digest((), replayed=False)
    assert digest == Family(skill=skill("s", "a1"), successes=(two, one), failures=()).digest((), replayed=False)
    others = {
        base.digest(used, replayed=False),
        base.digest((), replayed=True),
        Family(skill=None, successes=(one,), failures=()).digest((), replayed=False),
        Family(skill=None, successes=(one,), failures=(two,)).digest((), replayed=False),
    }
    assert len(others | {digest}) == 5
