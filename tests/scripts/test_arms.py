"""The comparison of a benchmark's arms, against values worked by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "evaluation" / "arms.py"


@pytest.fixture(scope="module")
def arms() -> ModuleType:
    spec = importlib.util.spec_from_file_location("arms", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["arms"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def test_means_are_by_arm_and_deaths_stand_only_where_a_game_can_be_lost(arms: ModuleType) -> None:
    games = {
        "none": [arms.Played(success=False, score=0.25, steps=30), arms.Played(success=True, score=1.0, steps=20)],
        "all": [
            arms.Played(success=True, score=1.0, steps=10, calls=4, context_tokens=100, died=False),
            arms.Played(success=False, score=0.5, steps=12, calls=8, context_tokens=300, died=True),
        ],
    }
    measured = arms.figures(games, [("all", "none")])
    assert measured["arms"] == [
        {"arm": "none", "n": 2, "success": 0.5, "score": 0.625, "steps": 25.0, "calls": 0.0, "context_tokens": 0.0},
        {
            "arm": "all",
            "n": 2,
            "success": 0.5,
            "score": 0.75,
            "steps": 11.0,
            "calls": 6.0,
            "context_tokens": 200.0,
            "deaths": 0.5,
        },
    ]
    (compared,) = measured["differences"]
    assert (compared["arm"], compared["against"], compared["measure"]) == ("all", "none", "success")
    assert (compared["mean"], compared["low"], compared["high"]) == (0.0, -1.0, 1.0)


def test_the_interval_is_that_of_the_pairs(arms: ModuleType) -> None:
    # The same gain in each game is certain, however much the games differ.
    games = {
        "one": [arms.Played(success=False, score=value + 0.25, steps=1) for value in (0.0, 0.5, 0.75)],
        "other": [arms.Played(success=False, score=value, steps=1) for value in (0.0, 0.5, 0.75)],
    }
    each = arms.difference(games, "one", "other", "score")
    assert (each.mean, each.low, each.high) == (0.25, 0.25, 0.25)
    # Of 100 games, 60 won more: 0.6 with a standard error of 0.049.
    games = {
        "one": [arms.Played(success=True, score=1.0, steps=1)] * 100,
        "other": [arms.Played(success=place < 40, score=1.0, steps=1) for place in range(100)],
    }
    each = arms.difference(games, "one", "other")
    assert each.mean == pytest.approx(0.6)
    assert each.low == pytest.approx(0.6 - 1.96 * 0.049, abs=0.015)
    assert each.high == pytest.approx(0.6 + 1.96 * 0.049, abs=0.015)


def test_arms_of_other_lengths_are_refused(arms: ModuleType) -> None:
    game = arms.Played(success=True, score=1.0, steps=1)
    with pytest.raises(ValueError, match="longer than argument 1"):
        arms.difference({"one": [game], "other": [game, game]}, "one", "other")


def test_the_table_prints_every_arm(arms: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    games = {"none": [arms.Played(success=True, score=0.5, steps=20, calls=3, context_tokens=700, died=True)]}
    arms.show(arms.figures(games, [("none", "none")]))
    assert capsys.readouterr().out.splitlines() == [
        "arm       n  success   score  steps  calls  tokens  deaths",
        "none      1    1.000   0.500   20.0    3.0     700    1.00",
        "none - none: success +0.000 [+0.000, +0.000]",
    ]
