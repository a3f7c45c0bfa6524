"""Relative dates: which days "yesterday", "last week" or "vor 3 Tagen" mean, by the phrases of Unicode's CLDR."""

from __future__ import annotations

import calendar
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, lru_cache
from typing import Any, TypeAlias, cast

import regex

from .dates import LANGUAGES

__all__ = ["DayRange", "find_relative_dates"]

_LocaleData: TypeAlias = "dict[str | int | None, Any]"

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAYS_AROUND = {"day": 0, "week": 3}
# Here, but, and morning, in one language or another.
_EVERYDAY = frozenset({"hier", "ma", "morgen", "mañana"})
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]")
_SPACE_BESIDE = regex.compile(rf"(?<={_UNSPACED.pattern}) | (?={_UNSPACED.pattern})")
_NUMBER = regex.compile(r"\d+")
# Of "1.5 days ago", no part is a number of days.
_WORD = regex.compile(r"[\p{L}\p{M}]+|\d+(?:[.,]\d+)*")
_PHRASE_WORD = regex.compile(r"[\p{L}\p{M}]+|#")
_MOST_WORDS = 6
_MOST_DIGITS = 4


@dataclass(frozen=True, slots=True)
class DayRange:
    """The days from ``first`` to ``last``, both included."""

    first: date
    last: date

    def days(self, year: int) -> tuple[date, date]:
        """Return the first and the last day, which are the same in whatever ``year``."""
        return self.first, self.last


@dataclass(frozen=True, slots=True)
class _Meaning:
    """A unit of time and how many of them from today; ``offset`` None: as many ago as the phrase says.

    ``of_week``: a day of the week that many weeks away, in place of the next or last such day.
    """

    unit: str
    offset: int | None
    of_week: bool = False


@lru_cache(maxsize=1 << 14)
def find_relative_dates(text: str, today: date) -> tuple[DayRange, ...]:
    """Find the days that a text names relative to ``today``, in any of the tokenizer's languages.

    Weeks begin on Monday. "3 weeks ago" is a week around that day, "2 months ago" all of that month. Numbers are read
    as digits; what lies outside of the years 1 to 9999 names nothing.
    """
    found = []
    for meaning, count in _meant(_plain(text)):
        try:
            found.append(_range(meaning, today, count))
        except (OverflowError, ValueError):
            continue
    return tuple(dict.fromkeys(found))


def _meant(text: str) -> Iterator[tuple[_Meaning, int]]:
    """Read the phrases of a text, of those that overlap the longest, each with its number or 0."""
    spaced, unspaced = _phrases()
    words = _WORD.findall(text)
    keys = ["#" if word.isdigit() and len(word) <= _MOST_DIGITS else word for word in words]
    place = 0
    while place < len(words):
        for length in range(min(_MOST_WORDS, len(words) - place), 0, -1):
            meaning = spaced.get(tuple(keys[place : place + length]))
            if meaning is not None:
                yield meaning, next((int(word) for word in words[place : place + length] if word.isdigit()), 0)
                place += length - 1
                break
        place += 1
    if _UNSPACED.search(text):
        pattern, meanings = unspaced
        for match in pattern.finditer(_SPACE_BESIDE.sub("", text)):
            number = _NUMBER.search(match[0])
            yield meanings[_NUMBER.sub("#", match[0])], int(number[0]) if number else 0


def _range(meaning: _Meaning, today: date, count: int) -> DayRange:
    offset = -count if meaning.offset is None else meaning.offset
    monday = today - timedelta(days=today.weekday())
    if meaning.unit in _WEEKDAYS:
        weekday = _WEEKDAYS.index(meaning.unit)
        day = monday + timedelta(days=weekday, weeks=offset)
        # "Last Friday" on a Saturday is yesterday, "next Monday" on a Sunday is tomorrow.
        if not meaning.of_week and offset < 0 and today.weekday() > weekday:
            day += timedelta(weeks=1)
        if not meaning.of_week and offset > 0 and today.weekday() < weekday:
            day -= timedelta(weeks=1)
        return DayRange(day, day)
    if meaning.unit == "week" and meaning.offset is not None:
        return DayRange(monday + timedelta(weeks=offset), monday + timedelta(weeks=offset, days=6))
    if meaning.unit in _DAYS_AROUND:
        day = today + timedelta(days=offset * (7 if meaning.unit == "week" else 1))
        around = timedelta(days=_DAYS_AROUND[meaning.unit])
        return DayRange(day - around, day + around)
    if meaning.unit == "month":
        years, month = divmod(today.month - 1 + offset, 12)
        year = today.year + years
        return DayRange(date(year, month + 1, 1), date(year, month + 1, calendar.monthrange(year, month + 1)[1]))
    return DayRange(date(today.year + offset, 1, 1), date(today.year + offset, 12, 31))


@cache
def _phrases() -> tuple[dict[tuple[str, ...], _Meaning], tuple[regex.Pattern[str], dict[str, _Meaning]]]:
    """Return the phrases with # for their number: by words, and of scripts without spaces as a pattern and by text."""
    meanings: dict[str, _Meaning] = {}
    ambiguous = set(_EVERYDAY)
    for phrase, meaning in _read_phrases():
        if meanings.setdefault(phrase, meaning) != meaning:
            ambiguous.add(phrase)
    spaced: dict[tuple[str, ...], _Meaning] = {}
    unspaced: dict[str, _Meaning] = {}
    for phrase, meaning in meanings.items():
        if phrase in ambiguous:
            continue
        if _UNSPACED.search(phrase):
            unspaced[_SPACE_BESIDE.sub("", phrase)] = meaning
        else:
            spaced[tuple(_PHRASE_WORD.findall(phrase))] = meaning
    number = rf"(?<!\d[.,]?)\d{{1,{_MOST_DIGITS}}}"
    longest_first = sorted(unspaced, key=lambda phrase: (-len(phrase), phrase))
    pattern = regex.compile("|".join(regex.escape(phrase).replace(r"\#", number) for phrase in longest_first))
    return spaced, (pattern, unspaced)


def _read_phrases() -> list[tuple[str, _Meaning]]:
    from babel import localedata

    found = []
    for language in (*LANGUAGES, "zh", "ja", "ko"):
        fields = localedata.LocaleDataDict(cast(_LocaleData, localedata.load(language)))["date_fields"]
        weeks = {offset: _plain(phrase) for offset, phrase in fields["week"]["relative"].items()}
        for unit in ("day", "week", "month", "year", *_WEEKDAYS):
            for offset, phrase in fields[unit]["relative"].items():
                phrase = _plain(phrase)
                # "This Monday" is the one before or the one after, and in some languages just "Monday".
                if unit not in _WEEKDAYS:
                    found.append((phrase, _Meaning(unit, offset)))
                elif offset != 0:
                    found.append((phrase, _Meaning(unit, offset, of_week=weeks[offset] in phrase)))
            if unit not in _WEEKDAYS:
                for phrase in fields[unit]["past"].values():
                    phrase = _plain(phrase)
                    if "{0}" in phrase:
                        found.append((phrase.replace("{0}", "#"), _Meaning(unit, None)))
    return found


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().replace("’", "'").split())
