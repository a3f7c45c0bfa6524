"""PEMS against numbers worked by hand, and the properties that its formula promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxmem_local.errors import DimensionError, InvalidInputError
from fluxmem_local.metrics import embedding_shift, graph_pems, skill_pems

# η, ℓ, δ and p_v worked out on paper with ln 3 = 1.098612, ln 10 = 2.302585, ln 20 = 2.995732, ln 50 = 3.912023,
# ln 100 = 4.605170, ln 1000 = 6.907755.
BY_HAND = [
    (1.0, 10, 0.0, 0.434294),
    (1.0, 100, 0.0, 0.217147),
    (0.5, 100, 0.0, 0.108574),
    (1.0, 100, 0.2, 0.173718),
    (0.75, 20, 0.1, 0.225321),
    (1.0, 3, 0.0, 0.910239),
    (1.0, 2, 0.0, 0.910239),
    (1.0, 0, 0.0, 0.910239),
    (0.0, 50, 0.3, 0.0),
    (0.8, 50, 1.0, 0.0),
    (0.8, 50, 1.5, -0.102249),
    (1.0, 1000, 2.0, -0.144765),
    (2 / 3, 1000, 0.05, 0.091685),
]

rates = st.floats(0.01, 1)
tokens = st.integers(0, 100_000)
shifts = st.floats(0, 2)
skills = st.tuples(rates, tokens, shifts)


@pytest.mark.parametrize(("rate", "length", "shift", "expected"), BY_HAND)
def test_values_worked_by_hand(rate: float, length: int, shift: float, expected: float) -> None:
    assert skill_pems([rate], [length], [shift])[0] == pytest.approx(expected, abs=1e-6)


def test_all_skills_at_once_equal_each_alone() -> None:
    columns = list(zip(*BY_HAND, strict=True))
    assert skill_pems(*columns[:3]) == pytest.approx(columns[3], abs=1e-6)


def test_ten_thousand_skills_are_one_array_operation() -> None:
    p = skill_pems(np.full(10_000, 0.5), np.full(10_000, 100), np.zeros(10_000))
    assert p.shape == (10_000,)
    assert graph_pems(p) == pytest.approx(0.5 / math.log(100))


def test_no_skills_give_nothing() -> None:
    assert skill_pems([], [], []).shape == (0,)
    assert graph_pems([]) == 0.0


def test_the_graphs_value_is_the_sum_of_its_skills_shares() -> None:
    p = skill_pems([1, 1, 0.5], [10, 100, 100], [0, 0, 0])
    assert graph_pems(p) == pytest.approx(sum(value / 3 for value in p))


@given(skills, st.integers(1, 100_000))
def test_it_falls_with_length(skill: tuple[float, int, float], more: int) -> None:
    rate, length, _ = skill
    shorter, longer = skill_pems([rate, rate], [length, length + more], [0, 0])
    assert longer <= shorter
    assert longer < shorter or length + more <= 3


@given(skills, st.floats(0, 2))
def test_it_falls_with_change(skill: tuple[float, int, float], other: float) -> None:
    rate, length, shift = skill
    less, more = skill_pems([rate, rate], [length, length], sorted([shift, other]))
    assert more <= less


@given(skills, rates)
def test_it_rises_with_success(skill: tuple[float, int, float], other: float) -> None:
    rate, length, shift = skill
    low, high = skill_pems(sorted([rate, other]), [length, length], [shift / 2, shift / 2])
    assert low <= high


@given(skills, st.lists(skills, max_size=20))
def test_a_skills_value_does_not_depend_on_how_many_others_there_are(
    skill: tuple[float, int, float], others: list[tuple[float, int, float]]
) -> None:
    alone = skill_pems(*([value] for value in skill))
    together = skill_pems(*zip(skill, *others, strict=True))
    assert together[0] == alone[0]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (([1.1], [5], [0]), "success_rates holds 1.1"),
        (([-0.1], [5], [0]), "success_rates holds -0.1"),
        (([float("nan")], [5], [0]), "success_rates holds nan"),
        (([1], [-1], [0]), "token_counts holds -1"),
        (([1], [float("inf")], [0]), "token_counts holds inf"),
        (([1], [5], [2.1]), "shifts holds 2.1"),
        (([1, 1], [5], [0]), r"shapes \(2,\), \(1,\) and \(1,\)"),
        (([[1]], [5], [0]), r"shape \(1, 1\)"),
        ((["much"], [5], [0]), "must be numbers"),
    ],
)
def test_what_is_no_measurement_is_refused(columns: tuple[list[float], ...], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        skill_pems(*columns)


def test_the_graphs_value_needs_finite_numbers() -> None:
    with pytest.raises(InvalidInputError, match="nan"):
        graph_pems([0.1, float("nan")])


class TestShift:
    def test_values(self) -> None:
        present = np.array([[1, 0], [1, 0], [1, 0], [3, 4]], np.float32)
        previous = np.array([[2, 0], [0, 5], [-1, 0], [4, 3]], np.float32)
        assert embedding_shift(present, previous) == pytest.approx([0, 1, 2, 1 - 24 / 25])

    def test_a_first_version_has_not_changed(self) -> None:
        assert embedding_shift(np.ones((2, 3)), None).tolist() == [0, 0]

    def test_a_row_of_zeros_stands_for_no_vector(self) -> None:
        assert embedding_shift([[1, 0], [0, 0]], [[0, 0], [1, 0]]).tolist() == [0, 0]

    @given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4), min_size=2, max_size=2))
    def test_it_is_in_its_range(self, rows: list[list[float]]) -> None:
        (shift,) = embedding_shift(rows[:1], rows[1:])
        assert 0 <= shift <= 2

    def test_what_has_no_shape_is_refused(self) -> None:
        with pytest.raises(DimensionError, match=r"\(2, 3\)"):
            embedding_shift(np.ones((2, 3)), np.ones((2, 4)))
        with pytest.raises(DimensionError, match=r"\(3,\)"):
            embedding_shift(np.ones(3), None)
        with pytest.raises(DimensionError, match="NaN"):
            embedding_shift([[float("nan")]], None)
