"""View: which part of the memory a question may see."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any, TypeAlias

from fluxmem_local.storage.times import Time, moment
from fluxmem_local.types import Scope

__all__ = ["ANY_TIME", "AsOf", "View", "times_of"]

ANY_TIME = "any"
AsOf: TypeAlias = Time | None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Limits of one question.

    ``scope`` None is the owner's view (everything). ``filters`` are conditions on metadata as the store reads them.
    ``trial_of`` names the episode whose unfinished reshapes are visible too. ``exclude`` are ids never to be returned.
    ``valid_at`` asks for what holds at that time and ``known_at`` for what was stored by then, in seconds since 1970
    (UTC); None for what holds and was stored whenever.
    """

    scope: Scope | None = None
    filters: Mapping[str, Any] | None = None
    trial_of: str | None = None
    exclude: frozenset[str] = frozenset()
    valid_at: float | None = None
    known_at: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The limits as keyword arguments of the store's searches."""
        return {
            "scope": self.scope,
            "filters": self.filters,
            "trial_of": self.trial_of,
            "exclude": self.exclude,
            **self.times,
        }

    @property
    def times(self) -> dict[str, Any]:
        """The limits in time as keyword arguments of the store's searches."""
        return {"valid_at": self.valid_at, "known_at": self.known_at}

    @property
    def today(self) -> date:
        """The day of the question (UTC): that which it asks about, else the present one."""
        moment_s = time.time() if self.valid_at is None else self.valid_at
        try:
            return datetime.fromtimestamp(moment_s, timezone.utc).date()
        except (OverflowError, OSError, ValueError):
            return date.max if moment_s > 0 else date.min


def times_of(as_of: Any) -> dict[str, Any]:
    """Return the limits in time of a question about a moment: None is now, ``"any"`` is whenever.

    Raises:
        InvalidInputError: it is neither, nor a time.
    """
    if isinstance(as_of, str) and as_of.strip().casefold() == ANY_TIME:
        return {"valid_at": None, "known_at": None}
    if as_of is None:
        return {"valid_at": time.time(), "known_at": None}
    asked = moment(as_of, "as_of")
    return {"valid_at": asked, "known_at": asked}
