"""Cases: what the slots of a skill had in single episodes, kept as data beside its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.types import JsonObject

from .skill import Skill
from .templates import bind, slots_in

__all__ = ["Case", "read_cases", "read_values", "sought_slots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The values that a skill's slots had together, and the episodes in which that succeeded and failed."""

    values: tuple[str, ...]
    succeeded_ids: tuple[str, ...] = ()
    failed_ids: tuple[str, ...] = ()

    @property
    def episode_ids(self) -> tuple[str, ...]:
        """All episodes that lived it."""
        return (*self.succeeded_ids, *self.failed_ids)

    def to_dict(self) -> JsonObject:
        """Return the case as JSON data."""
        return {"values": list(self.values), "succeeded": list(self.succeeded_ids), "failed": list(self.failed_ids)}

    @classmethod
    def from_dict(cls, data: Any) -> Case:
        """Read what ``to_dict`` gave.

        Raises:
            InvalidInputError: it is nothing of the kind.
        """
        parts = [data.get(name) for name in ("values", "succeeded", "failed")] if isinstance(data, Mapping) else [None]
        if not all(isinstance(part, (list, tuple)) and all(isinstance(each, str) for each in part) for part in parts):
            raise InvalidInputError(f"{data!r:.200} is no case of a skill; give what Case.to_dict wrote")
        values, succeeded, failed = (tuple(part or ()) for part in parts)
        return cls(values=values, succeeded_ids=succeeded, failed_ids=failed)


def read_cases(data: Any) -> list[Case]:
    """Read a list of what ``Case.to_dict`` gave.

    Raises:
        InvalidInputError: it is nothing of the kind.
    """
    if not isinstance(data, (list, tuple)):
        raise InvalidInputError(f"{data!r:.200} is no list of cases; give what Case.to_dict wrote")
    return [Case.from_dict(each) for each in data]


def sought_slots(skill: Skill) -> frozenset[int]:
    """Return the numbers of the slots that no task gives, so that whoever follows the skill must find their values."""
    return frozenset(slot.number for slot in skill.slots) - slots_in(skill.use)


def read_values(skill: Skill, task: str, actions: Sequence[str]) -> dict[int, str]:
    """Read the slots' values, by number, from a task and what was done in it; the first that fits counts."""
    known = bind(skill.use, task) or {}
    begin = 0
    for step in skill.steps:
        templates = [step.template, *(way.template for way in step.alternatives)]
        for place in range(begin, len(actions)):
            found = next((got for text in templates if (got := bind(text, actions[place], known)) is not None), None)
            if found is not None:
                known |= found
                begin = place + 1
                break
    return known
