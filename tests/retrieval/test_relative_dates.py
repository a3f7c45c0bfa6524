from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxmem_local.retrieval.dates import DateSpan, share
from fluxmem_local.retrieval.relative_dates import DayRange, find_relative_dates

SUNDAY = date(2026, 11, 29)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what did I do yesterday?", [("2026-11-28", "2026-11-28")]),
        ("Plans for TOMORROW", [("2026-11-30", "2026-11-30")]),
        ("last week", [("2026-11-16", "2026-11-22")]),
        ("next week", [("2026-11-30", "2026-12-06")]),
        ("3 weeks ago", [("2026-11-05", "2026-11-11")]),
        ("12 days ago", [("2026-11-17", "2026-11-17")]),
        ("11 months ago", [("2025-12-01", "2025-12-31")]),
        ("next month", [("2026-12-01", "2026-12-31")]),
        ("2 years ago", [("2024-01-01", "2024-12-31")]),
        ("last Friday, or next monday", [("2026-11-27", "2026-11-27"), ("2026-11-30", "2026-11-30")]),
        ("last Sunday", [("2026-11-22", "2026-11-22")]),
        ("vor 3 Tagen und vorgestern", [("2026-11-26", "2026-11-26"), ("2026-11-27", "2026-11-27")]),
        ("l’année dernière", [("2025-01-01", "2025-12-31")]),
        ("il y a 2 jours", [("2026-11-27", "2026-11-27")]),
        ("¿qué hice ayer?", [("2026-11-28", "2026-11-28")]),
        ("на прошлой неделе", [("2026-11-16", "2026-11-22")]),
        ("昨天说了什么", [("2026-11-28", "2026-11-28")]),
        # Monday of last week, where English means the Monday before.
        ("上周一开会", [("2026-11-16", "2026-11-16")]),
        ("last monday", [("2026-11-23", "2026-11-23")]),
        ("3天前 / 3 天前", [("2026-11-26", "2026-11-26")]),
        ("先週の会議", [("2026-11-16", "2026-11-22")]),
        ("지난 주 회의", [("2026-11-16", "2026-11-22")]),
        # Words that are no dates here, or none at all.
        ("Hier steht es; ma non troppo; guten Morgen", []),
        ("yesterdayish", []),
        ("12345 days ago, 9999 years ago", []),
        ("last", []),
        ("#", []),
        ("# days ago", []),
        ("1.5 days ago, vor 2,5 Tagen, 1.5天前", []),
        ("at 10.30, 3 days ago: issue #3", [("2026-11-26", "2026-11-26")]),
    ],
)
def test_days_seen_from_a_sunday(text: str, expected: list[tuple[str, str]]) -> None:
    found = find_relative_dates(text, SUNDAY)
    assert [(each.first.isoformat(), each.last.isoformat()) for each in found] == expected


@given(st.text(alphabet="last week#3 days ago 昨天前周0", max_size=40), st.dates())
def test_any_text_on_any_day_gives_days_in_order(text: str, today: date) -> None:
    assert all(found.first <= found.last for found in find_relative_dates(text, today))


def test_what_is_asked_for_is_a_share_of_what_is_meant() -> None:
    may_2022 = [DateSpan(2022, 5, None)]
    assert share(may_2022, [DayRange(date(2022, 1, 1), date(2022, 12, 31))], 2023) == pytest.approx(31 / 365)
    assert share([DateSpan(2022, None, None)], [DayRange(date(2022, 5, 3), date(2022, 5, 9))], 2023) == 1.0
    assert share(may_2022, [DayRange(date(2022, 6, 1), date(2022, 6, 7))], 2023) == 0.0
    assert share([], [DayRange(SUNDAY, SUNDAY)], 2023) == 0.0
