"""The labelled failures of our own, the environment that plays them, and what a language model's word does to them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.interfaces import BaseLLM
from fluxmem_local.testing import HashEmbedder, ScriptedLLM

SCRIPTS = Path(__file__).parents[2] / "scripts"
CASES = SCRIPTS / "evaluation" / "repair_cases.jsonl"
CONFIG = FluxMemConfig(llm_model="none")


@pytest.fixture(scope="module")
def repair() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPTS))
    try:
        from evaluation import repair

        yield repair
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def lives(repair: ModuleType) -> ModuleType:
    from evaluation import repair_lives

    return repair_lives  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def cases(repair: ModuleType) -> list[Any]:
    return list(repair.load_cases(CASES))


def one(cases: list[Any], label: str) -> Any:
    return next(case for case in cases if case.label == label)


def test_there_are_six_cases_a_label_and_each_key_fits_its_label(cases: list[Any]) -> None:
    assert Counter(case.label for case in cases) == dict.fromkeys(("expand", "prune", "reshape", "none"), 6)
    assert len({case.domain for case in cases}) == 8
    for case in cases:
        inside, outside = set(case.context_ids), case.items.keys() - set(case.context_ids)
        assert len(inside) == len(case.context_ids)
        assert inside <= case.items.keys()
        keys = (bool(case.needed), bool(case.noise), bool(case.reshape), case.granularity is not None)
        assert (
            keys
            == {
                "expand": (True, False, False, False),
                "prune": (True, True, False, False),
                "reshape": (False, False, True, True),
                "none": (False, False, False, False),
            }[case.label]
        )
        assert case.needed <= (outside if case.label == "expand" else inside)
        assert case.noise | case.reshape <= inside


def test_each_case_has_one_rewording_that_is_another_text(repair: ModuleType, cases: list[Any]) -> None:
    rewordings = repair.load_rewordings(repair.REWORDINGS)
    assert len(rewordings) == 72
    assert len(set(rewordings.values())) == 72
    for case in cases:
        assert rewordings[case.id] != case.task


async def _world(repair: ModuleType, case: Any, **settings: Any) -> Any:
    memory = await repair.Memory.holding(case.items, HashEmbedder(64), None, CONFIG)
    return repair.World(case, memory.store, **settings)


async def test_the_world_goes_by_the_key(repair: ModuleType, cases: list[Any]) -> None:
    expand, prune = one(cases, "expand"), one(cases, "prune")
    world = await _world(repair, expand)
    assert not world.is_right(expand.context_ids)
    assert world.is_right([*expand.context_ids, *expand.needed])
    world = await _world(repair, prune)
    rest = [id for id in prune.context_ids if id not in prune.noise]
    assert not world.is_right(prune.context_ids)
    assert world.is_right(rest)
    assert not world.is_right([id for id in rest if id not in prune.needed])
    none = one(cases, "none")
    assert not (await _world(repair, none)).is_right(list(none.items))


async def test_a_mistaken_world_calls_failures_successes_from_an_execution_on(
    repair: ModuleType, cases: list[Any]
) -> None:
    world = await _world(repair, one(cases, "none"), mistaken_at=2)
    said = [(await world.execute(""))[2] for _ in range(3)]
    assert said == [False, True, True]
    assert not world.was_right


class _Word(ScriptedLLM):
    """Says of each failure what a function of the case being played says."""

    def __init__(self, accuracy: float) -> None:
        super().__init__({"attribute_failure": lambda **_: self.word})
        self.attribution_accuracy = accuracy
        self.writes_memories = False
        self.word: dict[str, Any] = {}


def _right(case: Any) -> dict[str, Any]:
    targets = sorted(case.noise or case.reshape)
    kind = {"reshape": "unit", "none": "none"}.get(case.label, "connection")
    return {"type": kind, "action": case.label, "targets": targets, "granularity": case.granularity, "details": ""}


def _wrong(case: Any) -> dict[str, Any]:
    action = {"expand": "prune", "prune": "expand", "reshape": "prune", "none": "expand"}[case.label]
    right = case.noise | case.reshape | case.needed
    targets = [id for id in case.context_ids if id not in right][:1] if action == "prune" else []
    return {"type": "connection", "action": action, "targets": targets, "granularity": None, "details": ""}


async def _play(repair: ModuleType, cases: list[Any], llm: BaseLLM | None, word: Any = None) -> dict[str, float]:
    embedder = HashEmbedder(256)
    played = []
    for case in cases:
        if isinstance(llm, _Word):
            llm.word = word(case)
        played.append(await repair.play(case, None, embedder, llm, CONFIG))
    return {
        "solved": sum(each.result.success for each in played),
        "repairs": sum(each.repairs for each in played if each.result.success),
        "named": sum(each.first_action == each.case.label for each in played),
        "harm": sum(bool(each.harmed) for each in played),
    }


async def test_a_model_that_is_right_does_better_than_the_rules_and_one_that_is_wrong_no_harm(
    repair: ModuleType, cases: list[Any]
) -> None:
    rules = await _play(repair, cases, None)
    right = await _play(repair, cases, _Word(accuracy=0.95), _right)
    wrong = await _play(repair, cases, _Word(accuracy=0.35), _wrong)
    chance = await _play(repair, cases, _Word(accuracy=0.25), _wrong)
    assert rules["harm"] == right["harm"] == wrong["harm"] == 0
    assert chance == rules
    assert right["named"] == len(cases)
    assert right["solved"] >= rules["solved"]
    assert wrong["solved"] >= rules["solved"]


async def test_solved_cases_come_back_and_no_other_loses(
    lives: ModuleType, repair: ModuleType, cases: list[Any]
) -> None:
    some = cases[:6]
    rewordings = {case.id: f"{case.task} Again, please." for case in some}
    found = await lives.live_together(some, rewordings, HashEmbedder(256), None, CONFIG)
    assert found["verified"]
    assert found["solved"] >= 3
    assert found["second_time_at_once"] == found["second_time_at_the_end"] == 1.0
    assert found["others_lost"] == []


@pytest.mark.parametrize(("share", "mistaken"), [(0.0, False), (1.0, True)])
async def test_mistakes_are_counted_and_only_made_when_asked_for(
    lives: ModuleType, cases: list[Any], share: float, mistaken: bool
) -> None:
    found = await lives.live_with_mistakes(
        [one(cases, "prune")], {}, HashEmbedder(256), None, CONFIG, share=share, seed=1
    )
    assert found["runs"] == lives.VISITS
    assert (found["mistaken_runs"] > 0) is mistaken
    assert found["first_try_by_visit"][0] == 0
