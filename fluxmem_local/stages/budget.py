"""Budget: how long a consolidation may work, and how often it may ask the language model."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

__all__ = ["Budget", "BudgetSpent"]


class BudgetSpent(Exception):
    """The time is over in the middle of a skill; nothing of it is kept."""


@dataclass(slots=True, kw_only=True)
class Budget:
    """Seconds from now on, and calls of the language model; None: no bound. ``num_calls`` counts them."""

    seconds: float | None = None
    llm_calls: int | None = None
    num_calls: int = 0
    _began: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float | None:
        """Seconds that are left, at least 0; None without a bound."""
        return None if self.seconds is None else max(0.0, self.seconds - (time.monotonic() - self._began))

    @property
    def has_calls(self) -> bool:
        """Whether the language model may be asked once more."""
        return self.llm_calls is None or self.num_calls < self.llm_calls

    @property
    def is_spent(self) -> bool:
        """Whether no further skill should be begun: the time is over, or the language model's calls are."""
        return self.seconds_left == 0.0 or (self.llm_calls is not None and self.num_calls >= self.llm_calls > 0)

    def check(self) -> None:
        """Go on only within the time.

        Raises:
            BudgetSpent: the time is over.
        """
        if self.seconds_left == 0.0:
            raise BudgetSpent
