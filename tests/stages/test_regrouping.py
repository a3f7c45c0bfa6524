"""Families are split where one skill serves only a part of them, and merged where two skills are one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fluxmem_local.graph import EpisodicNode, ProceduralNode
from fluxmem_local.stages.families import Family
from fluxmem_local.stages.induction import induce_skill
from fluxmem_local.stages.regrouping import merge_families, split_family
from fluxmem_local.types import FloatArray, Scope


def lived(id: str, task: str, *actions: str, scope: Scope | None = None) -> EpisodicNode:
    return EpisodicNode(
        id=id,
        task_description=task,
        trajectory=tuple(("", action) for action in actions),
        success=True,
        created_at=float(id[1:]),
        scope=scope or Scope(),
    )


def at(degrees: float) -> FloatArray:
    angle = np.radians(degrees)
    return np.array([np.cos(angle), np.sin(angle)], np.float32)


METALS = [lived(f"m{n}", f"melt the {it}", f"take {it}", "light stove") for n, it in enumerate(("tin", "lead", "zinc"))]
ICE = [lived(f"i{n}", f"melt the {it}", f"wait for {it}", "open window") for n, it in enumerate(("ice", "snow", "wax"))]
FAMILY = Family(skill=None, successes=(*METALS, *ICE), failures=())
STRUCTURE = induce_skill(METALS)
APART = {**{each.id: at(n) for n, each in enumerate(METALS)}, **{each.id: at(90 + n) for n, each in enumerate(ICE)}}
TOGETHER = {id: at(0) for id in APART}


def split(failed: set[str], vectors: dict[str, FloatArray], min_support: int = 3) -> list[list[str]] | None:
    parts = split_family(FAMILY, STRUCTURE, failed, vectors, min_support=min_support, seed=0)
    return None if parts is None else [[episode.id for episode in part.successes] for part in parts]


class TestSplit:
    def test_a_sub_group_that_fails_and_goes_another_way_gets_its_own(self) -> None:
        assert split({"i0", "i1", "i2"}, APART) == [["m0", "m1", "m2"], ["i0", "i1", "i2"]]

    def test_where_the_tasks_are_alike_success_itself_tells_the_groups(self) -> None:
        assert split({"i0", "i1", "i2"}, TOGETHER) == [["m0", "m1", "m2"], ["i0", "i1", "i2"]]

    def test_too_few_episodes_are_no_group(self) -> None:
        assert split({"i0", "i1"}, APART) is None
        assert split({"i0", "i1", "i2"}, APART, min_support=4) is None

    def test_the_same_success_everywhere_is_no_reason(self) -> None:
        assert split(set(), APART) is None
        assert split({episode.id for episode in FAMILY.successes}, APART) is None

    def test_failing_at_the_same_way_is_no_reason(self) -> None:
        metals = [lived(f"m{n}", f"melt the {it}", f"take {it}", "light stove") for n, it in enumerate("abcdef")]
        family = Family(skill=None, successes=tuple(metals), failures=())
        vectors = {episode.id: at(30.0 * n) for n, episode in enumerate(metals)}
        failed = {"m3", "m4", "m5"}
        assert split_family(family, induce_skill(metals), failed, vectors, min_support=3, seed=0) is None

    def test_failures_go_to_the_nearer_part(self) -> None:
        burnt = replace(lived("x1", "melt the gold", "eat it"), success=False, status="failed")
        family = replace(FAMILY, failures=(burnt,))
        parts = split_family(family, STRUCTURE, {"i0", "i1", "i2"}, {**APART, "x1": at(80)}, min_support=3, seed=0)
        assert parts is not None
        assert [len(part.failures) for part in parts] == [0, 1]


def stored(id: str, episodes: list[EpisodicNode], created_at: float) -> ProceduralNode:
    return ProceduralNode(
        id=id,
        skill_text=id,
        source_episode_ids=tuple(each.id for each in episodes),
        metadata={"structure": induce_skill(episodes).to_dict()},
        created_at=created_at,
    )


def deployed(prefix: str, start: int, *apps: str, then: str = "make deploy") -> list[EpisodicNode]:
    return [lived(f"{prefix}{start + n}", f"deploy {app}", f"cd {app}", then) for n, app in enumerate(apps)]


class TestMerge:
    ONE = deployed("d", 0, "shop", "blog", "wiki")
    TWO = deployed("d", 5, "mail", "chat", "news")

    def families(self, *groups: list[EpisodicNode]) -> list[Family]:
        return [
            Family(skill=stored(f"s{n}", group, 9.0 - n), successes=tuple(group), failures=())
            for n, group in enumerate(groups)
        ]

    def test_two_skills_of_one_way_are_one_and_the_oldest_stays(self) -> None:
        (family,) = merge_families(self.families(self.ONE, self.TWO))
        assert family.skill is not None
        assert (family.skill.id, [skill.id for skill in family.absorbed]) == ("s1", ["s0"])
        assert [episode.id for episode in family.successes] == ["d0", "d1", "d2", "d5", "d6", "d7"]

    def test_a_word_that_would_be_lost_keeps_them_apart(self) -> None:
        other = deployed("d", 5, "mail", "chat", "news", then="make deploy staging")
        assert [len(family.absorbed) for family in merge_families(self.families(self.ONE, other))] == [0, 0]

    def test_scopes_stay_apart(self) -> None:
        theirs = [replace(episode, scope=Scope(user="ada")) for episode in self.TWO]
        assert len(merge_families(self.families(self.ONE, theirs))) == 2

    def test_a_new_family_joins_the_skill_there_is(self) -> None:
        known, fresh = self.families(self.ONE, self.TWO)
        (family,) = merge_families([known, replace(fresh, skill=None)])
        assert (family.skill, family.absorbed, len(family.successes)) == (known.skill, (), 6)
