"""RetentionRule: how long, and how many of, the memories of a scope are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fluxmem_local.errors import ConfigError, InvalidInputError
from fluxmem_local.types import Layer, Scope

__all__ = ["EACH", "RetentionRule", "age"]

# In place of a name: a rule for each user, agent or session by itself.
EACH = "*"

_DAY_S = 86_400.0
_AGE = re.compile(r"\s*(?P<number>[0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(?P<unit>[hdwyHDWY])\s*")
_UNITS_S = {"h": 3600.0, "d": _DAY_S, "w": 7 * _DAY_S, "y": 365 * _DAY_S}
_MOST_NODES = 2**63


def age(text: Any, what: str) -> float:
    """Return the seconds that an age such as 36h, 90d, 8w or 2y means; a year has 365 days.

    Raises:
        InvalidInputError: it is no age.
    """
    found = _AGE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidInputError(f"{what}={text!r:.200} is no age; give a number with h, d, w or y, as 36h or 90d")
    return float(found["number"]) * _UNITS_S[found["unit"].lower()]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """What of a scope a consolidation forgets: what is older than ``max_age``, and the oldest beyond ``max_nodes``.

    ``user``, ``agent`` and ``session`` say whose; a name that is left out is anyone's, and "*" makes it a rule for each
    of them by itself. ``layers`` are facts and episodes unless given; a skill goes with the last episode that it came
    from. Of too many, those go last from which skills came.

    Raises:
        ConfigError: a value that is none, or neither an age nor a number.
    """

    user: str | None = None
    agent: str | None = None
    session: str | None = None
    layers: tuple[str, ...] = (Layer.SEMANTIC.value, Layer.EPISODIC.value)
    max_age: str | None = None
    max_nodes: int | None = None

    def __post_init__(self) -> None:
        try:
            Scope(self.user, self.agent, self.session)
            if self.max_age is not None:
                age(self.max_age, "max_age")
        except InvalidInputError as error:
            raise ConfigError(f"a rule of retention: {error}") from None
        layers: Any = self.layers
        if isinstance(layers, str) or not isinstance(layers, (list, tuple)) or not layers:
            raise ConfigError(f"a rule of retention: layers={layers!r:.200} must list layers, as ['semantic']")
        unknown = [layer for layer in layers if layer not in tuple(Layer)]
        if unknown:
            raise ConfigError(f"a rule of retention: {unknown[0]!r:.200} is no layer; known are {', '.join(Layer)}")
        object.__setattr__(self, "layers", tuple(str(layer) for layer in layers))
        number: Any = self.max_nodes
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < _MOST_NODES
        ):
            raise ConfigError(f"a rule of retention: max_nodes={number!r:.200} must be a whole number from 0 on")
        if self.max_age is None and number is None:
            raise ConfigError("a rule of retention limits nothing; give max_age, as '90d', or max_nodes")

    @classmethod
    def coerce(cls, value: Any) -> RetentionRule:
        """Accept a rule, or a mapping of its fields, as a table in fluxmem.toml gives one.

        Raises:
            ConfigError: an unknown field, or a value that is none.
        """
        if isinstance(value, RetentionRule):
            return value
        known = [spec.name for spec in fields(cls)]
        if not isinstance(value, Mapping):
            raise ConfigError(f"retention={value!r:.200} is no rule; give tables with {', '.join(known)}")
        unknown = [name for name in value if name not in known]
        if unknown:
            raise ConfigError(f"a rule of retention: unknown name {unknown[0]!r:.200}; known are {', '.join(known)}")
        return cls(**value)

    @property
    def whose(self) -> str:
        """Say in words whom it is about."""
        named = [(part, getattr(self, part)) for part in ("user", "agent", "session")]
        parts = [f"each {part}" if name == EACH else f"{part} {name}" for part, name in named if name is not None]
        return ", ".join(parts) or "all"
