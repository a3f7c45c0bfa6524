"""Dates: which days a text names, and how near a memory's own day is to them."""

from __future__ import annotations

import calendar
import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timezone
from functools import cache, lru_cache
from typing import Final, Protocol

import regex

__all__ = ["LANGUAGES", "DateSpan", "Span", "closeness", "day_of", "find_dates", "share"]

# Languages of the tokenizer, by their CLDR names.
LANGUAGES: Final = (
    *("en", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "nb", "fi", "hu"),
    *("ro", "tr", "pl", "cs", "ca", "id", "ru", "uk", "el", "ar", "he", "hi", "th"),
)
# Names of months that are everyday words in some language as well.
_EVERYDAY = frozenset({"may", "march", "mars", "mart", "mai", "mei", "maj"})
_ISO = regex.compile(r"\b(\d{4})-(\d{2})(?:-(\d{2}))?(?!\d)")
# No pattern here may begin with any number of spaces: it would try each of a long run.
_EAST_ASIAN = regex.compile(r"(?:(\d{4})\s*+[年년]\s*+)?(\d{1,2})\s*+[月월](?:\s*+(\d{1,2})\s*+[日일号])?")
_WORD = regex.compile(r"[\p{L}\p{M}]+|\d+")
# What happened is mostly told soon after, seldom before: days over which closeness falls to 1/e.
_TOLD_AFTER_DAYS = 14.0
_TOLD_BEFORE_DAYS = 3.0


class Span(Protocol):
    """Some days in a row."""

    def days(self, year: int) -> tuple[date, date]:
        """Return the first and the last day, in ``year`` where the span has none of its own."""


@dataclass(frozen=True, slots=True)
class DateSpan:
    """A day, a month or a year that a text names; ``year`` or ``day`` None: it names none."""

    year: int | None
    month: int | None
    day: int | None

    def days(self, year: int) -> tuple[date, date]:
        """Return the first and the last day, in ``year`` where the text names none."""
        year = self.year or year
        first_month, last_month = (self.month, self.month) if self.month else (1, 12)
        last = calendar.monthrange(year, last_month)[1]
        return (
            date(year, first_month, min(self.day, last) if self.day else 1),
            date(year, last_month, min(self.day, last) if self.day else last),
        )


@lru_cache(maxsize=1 << 14)
def find_dates(text: str) -> tuple[DateSpan, ...]:
    """Find the dates that a text names: ISO, East Asian, and with a month's name in any of the tokenizer's languages.

    Numbers alone, such as 5/8, name no date: which is the month differs from place to place. A year stands for itself.
    """
    found: list[DateSpan] = []
    rest = unicodedata.normalize("NFKC", text)
    for pattern in (_ISO, _EAST_ASIAN):
        for match in pattern.finditer(rest):
            year, month, day = (int(part) if part else None for part in match.groups())
            if month is not None and 1 <= month <= 12 and (day is None or 1 <= day <= 31) and year != 0:
                found.append(DateSpan(year, month, day))
        rest = pattern.sub(" ", rest)
    words = [(match[0], match.start()) for match in _WORD.finditer(rest)]
    used: set[int] = set()
    for at, (word, start) in enumerate(words):
        month, is_plain = _month_names().get(word.casefold(), (None, False))
        if month is None:
            continue
        near = [place for place in (at - 2, at - 1, at + 1, at + 2) if 0 <= place < len(words)]
        days = [place for place in near if words[place][0].isdigit() and 1 <= int(words[place][0][:4]) <= 31]
        years = [place for place in (*near, at + 3) if place < len(words) and _is_year(words[place][0])]
        beside = any(abs(place - at) == 1 for place in (*days, *years))
        named = start > 0 and word[0].isupper() and word.casefold() in _EVERYDAY
        if not (is_plain or beside or named):
            continue
        # The nearest number is the day: "8 May", "May 8th", "8. Mai".
        day = min(days, key=lambda place: (abs(place - at), place), default=None)
        year = min(years, key=lambda place: (abs(place - at), -place), default=None)
        used.update(place for place in (day, year) if place is not None)
        found.append(
            DateSpan(
                int(words[year][0]) if year is not None else None,
                month,
                int(words[day][0]) if day is not None else None,
            )
        )
    found += [
        DateSpan(int(word), None, None) for at, (word, _) in enumerate(words) if at not in used and _is_year(word)
    ]
    return tuple(dict.fromkeys(found))


def closeness(asked: Iterable[Span], told: date) -> float:
    """Say how near a memory of one day is to the nearest asked span, in [0, 1]: 1 within it."""
    return max((_near(*span.days(told.year), told) for span in asked), default=0.0)


def share(asked: Iterable[Span], meant: Iterable[Span], year: int) -> float:
    """Say which share of a span that a memory speaks of was asked for, in [0, 1]: the greatest of all pairs.

    A year that only one day of was asked for says little. Spans without a year are of ``year``.
    """
    return max((_shared(one.days(year), other.days(year)) for one in asked for other in meant), default=0.0)


def day_of(metadata_values: Iterable[object], created_at: float) -> date:
    """Return a memory's own day: the first full date among its metadata's values, else the day it was stored (UTC)."""
    for value in metadata_values:
        if isinstance(value, str) and len(value) <= 64:
            for span in find_dates(value):
                if span.year and span.month and span.day:
                    return span.days(span.year)[0]
    return datetime.fromtimestamp(created_at, timezone.utc).date()


def _near(first: date, last: date, told: date) -> float:
    if told > last:
        return math.exp(-(told - last).days / _TOLD_AFTER_DAYS)
    if told < first:
        return math.exp(-(first - told).days / _TOLD_BEFORE_DAYS)
    return 1.0


def _shared(asked: tuple[date, date], meant: tuple[date, date]) -> float:
    common = (min(asked[1], meant[1]) - max(asked[0], meant[0])).days + 1
    return max(0, common) / ((meant[1] - meant[0]).days + 1)


def _is_year(word: str) -> bool:
    return len(word) == 4 and word.isdigit() and 1900 <= int(word) <= 2199


@cache
def _month_names() -> dict[str, tuple[int, bool]]:
    """Return the months by their names, with whether the name alone is enough: short forms are words elsewhere."""
    from babel.dates import get_month_names

    names: dict[str, tuple[int, bool]] = {}
    for width in ("wide", "abbreviated"):
        for language in LANGUAGES:
            for context in ("format", "stand-alone"):
                for number, name in get_month_names(width, context=context, locale=language).items():
                    # "de maig": the month is the last word; one or two letters say too little.
                    name = unicodedata.normalize("NFKC", name).casefold()
                    if (found := regex.findall(r"[\p{L}\p{M}]+", name)) and len(word := found[-1]) > 2:
                        names.setdefault(word, (number, width == "wide" and word not in _EVERYDAY))
    return names
