"""View: which part of the memory a question may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fluxmem_local.types import Scope

__all__ = ["View"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Limits of one question.

    ``scope`` None is the owner's view (everything). ``filters`` are conditions on metadata as
    the store reads them. ``trial_of`` names the
    episode whose unfinished reshapes are visible too. ``exclude`` are ids never to be returned.
    """

    scope: Scope | None = None
    filters: Mapping[str, Any] | None = None
    trial_of: str | None = None
    exclude: frozenset[str] = frozenset()

    @property
    def options(self) -> dict[str, Any]:
        """The limits as keyword arguments of the store's searches."""
        return {
            "scope": self.scope,
            "filters": self.filters,
            "trial_of": self.trial_of,
            "exclude": self.exclude,
        }
