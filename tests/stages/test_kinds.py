from __future__ import annotations

from collections.abc import Sequence

from fluxmem_local.graph import EpisodicNode
from fluxmem_local.stages.kinds import regroup_by_kind
from fluxmem_local.types import Scope


def episode(task: str, action: str, *, user: str | None = None, success: bool = True) -> EpisodicNode:
    return EpisodicNode(
        task_description=task,
        trajectory=(("", action), ("", "wait")),
        success=success,
        status="succeeded" if success else "failed",
        scope=Scope(user=user),
    )


def tasks(clusters: Sequence[Sequence[EpisodicNode]]) -> list[list[str]]:
    return [[each.task_description for each in cluster] for cluster in clusters]


MELT = [episode(f"Melt the {thing}.", f"heat {thing}") for thing in ("lead", "ice", "wax")]
FREEZE = [episode(f"Freeze the {thing}.", f"cool {thing}") for thing in ("lead", "ice", "wax")]


def test_what_is_acted_on_is_a_value_and_what_is_not_is_a_kind() -> None:
    by_thing = [list(pair) for pair in zip(MELT, FREEZE, strict=True)]
    assert tasks(regroup_by_kind(by_thing, min_support=3)) == [
        ["Melt the lead.", "Melt the ice.", "Melt the wax."],
        ["Freeze the lead.", "Freeze the ice.", "Freeze the wax."],
    ]


def test_a_kind_with_too_few_successes_stays_where_it_was() -> None:
    failed = episode("Freeze the tin.", "cool tin", success=False)
    clusters = [[MELT[0], FREEZE[0]], [MELT[1], FREEZE[1], failed], [MELT[2]]]
    assert tasks(regroup_by_kind(clusters, min_support=3)) == [
        ["Melt the lead.", "Melt the ice.", "Melt the wax."],
        ["Freeze the lead."],
        ["Freeze the ice.", "Freeze the tin."],
    ]


def test_numbers_are_values() -> None:
    hot = [episode(f"Heat water to {degrees} degrees.", "heat water") for degrees in ("50", "70.5", "90")]
    assert tasks(regroup_by_kind([[each] for each in hot], min_support=3)) == [[each.task_description for each in hot]]


def test_scopes_stay_apart() -> None:
    theirs = [episode(f"Melt the {thing}.", f"heat {thing}", user="eve") for thing in ("lead", "ice", "wax")]
    regrouped = regroup_by_kind([MELT, theirs], min_support=3)
    assert [{each.scope.user for each in cluster} for cluster in regrouped] == [{None}, {"eve"}]


def test_tasks_whose_words_are_all_acted_on_stay_in_their_clusters() -> None:
    nginx = [episode(f"Restart nginx on web{i}.", "systemctl restart nginx") for i in range(3)]
    logs = [episode(f"Rotate logs on db{i}.", "systemctl rotate logs") for i in range(3)]
    hosts = [episode(f"Open web{i} and db{i}.", f"ssh web{i} db{i} open") for i in range(3)]
    assert tasks(regroup_by_kind([nginx, logs, hosts], min_support=3)) == tasks([nginx, logs, hosts])
