"""Times that users write: in metadata (`valid_from`, `valid_to`), in filters, and as the moment a question is about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from typing import Any, TypeAlias

import regex

from fluxmem_local.errors import InvalidInputError

__all__ = ["VALID_FROM", "VALID_TO", "Time", "moment", "period", "shown_time", "validity"]

VALID_FROM, VALID_TO = "valid_from", "valid_to"
Time: TypeAlias = str | int | float | date | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY_S = 86_400.0
_YEAR_10000_S = 253_402_300_800.0
# Whole numbers of four digits are years: no one means the first three hours of 1970.
_YEARS = range(1000, 10_000)
_ISO = regex.compile(
    r"""(?x)
    (?P<year>[0-9]{4}) (?: -(?P<month>[0-9]{2}) (?: -(?P<day>[0-9]{2})
      (?: [Tt\ ] (?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}) (?: :(?P<second>[0-9]{2}) (?: [.,](?P<part>[0-9]{1,9}) )? )?
        \ ? (?P<zone> [Zz] | [+-][0-9]{2}:?[0-9]{2} )?
      )?
    )? )?
    """
)
_ALLOWED = (
    "give ISO 8601 as 2026-05-31, 2026-05 or 2026-05-31T14:00+02:00 (UTC without a zone), or seconds since 1970 (UTC)"
)


def period(value: Any, what: str) -> tuple[float, float]:
    """Return begin and end of the time that a value names, in seconds since 1970 (UTC); an instant is both at once.

    A year, a month or a day is all of it. A whole number of four digits is a year, any other number seconds. Texts
    without a zone are UTC; a datetime object without one is local time, as Python's own methods take it.

    Raises:
        InvalidInputError: it names no time.
    """
    if isinstance(value, datetime):
        instant = value.timestamp() if value.tzinfo is None else (value - _EPOCH).total_seconds()
        return instant, instant
    if isinstance(value, date):
        value = value.isoformat()
    if isinstance(value, int) and value in _YEARS:
        value = str(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value) or abs(value) >= _YEAR_10000_S:
            raise InvalidInputError(f"{what}={value!r} is no time of the years up to 9999 in seconds; {_ALLOWED}")
        return float(value), float(value)
    found = _ISO.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise InvalidInputError(f"{what}={value!r:.200} is no time; {_ALLOWED}")
    try:
        return _period(found)
    except ValueError as error:
        raise InvalidInputError(f"{what}={value!r:.200} is no time ({error}); {_ALLOWED}") from None


def moment(value: Any, what: str) -> float:
    """Return the moment that a value names, in seconds since 1970 (UTC): of a day, month or year its last one.

    Raises:
        InvalidInputError: it names no time.
    """
    begin, end = period(value, what)
    return begin if begin == end else math.nextafter(end, begin)


def shown_time(value: Time) -> str:
    """Write a time for people: seconds as ISO 8601, where it has a form for them, else as it was given."""
    if isinstance(value, (int, float)) and value not in _YEARS:
        with suppress(OverflowError):
            return (_EPOCH + timedelta(seconds=value)).isoformat(timespec="seconds")
    return str(value)


def validity(metadata: Mapping[str, Any], what: str) -> tuple[float | None, float | None]:
    """Return from when and until when something holds by its metadata; None where that is open.

    ``valid_from`` is the begin of the time it names and ``valid_to`` the end, so that a day is part of the validity.

    Raises:
        InvalidInputError: a value that names no time, or an end that is not after the begin.
    """
    bounds = [metadata.get(name) for name in (VALID_FROM, VALID_TO)]
    begin, end = (
        None if bound is None or bound == "" else period(bound, f"{name} of {what}")[place]
        for place, (name, bound) in enumerate(zip((VALID_FROM, VALID_TO), bounds, strict=True))
    )
    if begin is not None and end is not None and end <= begin:
        raise InvalidInputError(f"{what} would end ({VALID_TO}={bounds[1]!r}) before it begins ({bounds[0]!r})")
    return begin, end


def _period(found: regex.Match[str]) -> tuple[float, float]:
    year, month, day = (int(found[name] or 1) for name in ("year", "month", "day"))
    begin = datetime(year, month, day, tzinfo=timezone.utc)
    seconds = (begin - _EPOCH).total_seconds()
    if found["hour"]:
        zone = found["zone"] or "Z"
        offset = timedelta()
        if zone not in "Zz":
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])) * (-1 if zone[0] == "-" else 1)
        clock = datetime(
            year, month, day, int(found["hour"]), int(found["minute"]), int(found["second"] or 0), tzinfo=timezone.utc
        )
        seconds = (clock - _EPOCH - offset).total_seconds() + float(f"0.{found['part'] or 0}")
        return seconds, seconds
    if found["day"]:
        return seconds, seconds + _DAY_S
    following = (year + 1, 1) if not found["month"] or month == 12 else (year, month + 1)
    if following[0] == 10_000:
        return seconds, _YEAR_10000_S
    return seconds, (datetime(*following, 1, tzinfo=timezone.utc) - _EPOCH).total_seconds()
