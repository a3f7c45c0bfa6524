from __future__ import annotations

from datetime import date
from math import exp

import pytest

from fluxmem_local.retrieval.dates import DateSpan, closeness, day_of, find_dates


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("told on 2023-05-08T13:56", [(2023, 5, 8)]),
        ("1:56 pm on 8 May, 2023", [(2023, 5, 8)]),
        ("May 8th, 2023", [(2023, 5, 8)]),
        ("Am 8. Mai 2023 war es kalt", [(2023, 5, 8)]),
        ("el 3 de agosto de 2021", [(2021, 8, 3)]),
        ("8 мая 2023 года", [(2023, 5, 8)]),
        ("2023年5月8日の会議", [(2023, 5, 8)]),
        ("2023년 5월 회의", [(2023, 5, None)]),
        ("What happened in May?", [(None, 5, None)]),
        ("in august", [(None, 8, None)]),
        ("between August 11 and August 15 2023", [(None, 8, 11), (2023, 8, 15)]),
        ("Who won in 2022?", [(2022, None, None)]),
        # Words that are months elsewhere, and numbers that are no dates.
        ("may I go?", []),
        ("you may use 12 of them", []),
        ("I moved 4 years ago", []),
        ("the set of 12", []),
        ("version 10.2 on port 8080", []),
        ("5/8", []),
        ("2023-13-40", []),
    ],
)
def test_dates_in_text(text: str, expected: list[tuple[int | None, int | None, int | None]]) -> None:
    assert [(found.year, found.month, found.day) for found in find_dates(text)] == expected


def test_a_memory_within_the_asked_span_is_as_near_as_can_be() -> None:
    may = [DateSpan(2023, 5, None)]
    assert closeness(may, date(2023, 5, 31)) == 1.0
    # What happened is told after it: two weeks later counts 1/e, three days before as little.
    assert closeness(may, date(2023, 6, 14)) == pytest.approx(exp(-1))
    assert closeness(may, date(2023, 4, 28)) == pytest.approx(exp(-1))
    assert closeness([], date(2023, 5, 8)) == 0.0


def test_a_day_without_a_year_is_of_the_memorys_year() -> None:
    assert closeness([DateSpan(None, 2, 30)], date(2024, 2, 29)) == 1.0


def test_a_memorys_day_is_in_its_metadata_or_that_of_its_storing() -> None:
    assert day_of(["D1:3", "1:56 pm on 8 May, 2023", 7], created_at=0.0) == date(2023, 5, 8)
    assert day_of(["May 2023"], created_at=0.0) == date(1970, 1, 1)
