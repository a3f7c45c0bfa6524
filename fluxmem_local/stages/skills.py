"""Skills as data: name, use, slots, steps with their support, pitfalls; and the text that a context shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from fluxmem_local.types import JsonObject

__all__ = ["Pitfall", "Skill", "Slot", "Step"]

_MOST_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A parameter: its number from 1 on, a word for its kind, and the values seen, most frequent first."""

    number: int
    kind: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"<{self.number}:{self.kind}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An action over the slots, the words that all its instances share, and the episodes that did it."""

    template: str
    words: tuple[str, ...]
    succeeded_ids: tuple[str, ...] = ()
    failed_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pitfall:
    """What ended failed episodes: the last action, what was said to it, and in which episodes."""

    action: str
    feedback: str
    episode_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill as induced from a cluster of episodes.

    ``examples`` are the values that the slots had together, one tuple an episode. ``description`` is what a language
    model added in words that the episodes hold; empty if it added nothing usable.
    """

    name: str
    use: str
    steps: tuple[Step, ...]
    slots: tuple[Slot, ...] = ()
    examples: tuple[tuple[str, ...], ...] = ()
    pitfalls: tuple[Pitfall, ...] = ()
    description: str = ""

    def described(self, description: str) -> Skill:
        """Put another description in."""
        return replace(self, description=description)

    def render(self, *, examples: int = _MOST_EXAMPLES) -> str:
        """Write the skill for a context: one statement a line, and no counts, so that more support changes nothing."""
        lines = [f"When to use: {self.use}"]
        if self.description:
            lines.append(self.description)
        lines += [f"{number}. {step.template}" for number, step in enumerate(self.steps, start=1)]
        lines += [
            "Seen: "
            + ", ".join(f"<{slot.number}> = {value}" for slot, value in zip(self.slots, values, strict=True) if value)
            for values in self.examples[:examples]
        ]
        for pitfall in self.pitfalls:
            lines.append(f"Avoid: {pitfall.action}" + (f" ({pitfall.feedback})" if pitfall.feedback else ""))
        return "\n".join(lines)

    def to_dict(self) -> JsonObject:
        """Return the skill as JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Skill:
        """Read what ``to_dict`` gave, also after a way through JSON."""
        return cls(
            name=data["name"],
            use=data["use"],
            steps=tuple(Step(**_tuples(step)) for step in data["steps"]),
            slots=tuple(Slot(**_tuples(slot)) for slot in data["slots"]),
            examples=tuple(tuple(values) for values in data["examples"]),
            pitfalls=tuple(Pitfall(**_tuples(pitfall)) for pitfall in data["pitfalls"]),
            description=data["description"],
        )


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, (list, tuple)) else value for key, value in data.items()}
