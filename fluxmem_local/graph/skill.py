"""Skills as data: name, use, slots, steps with their support, pitfalls; and the text that a context shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.types import JsonObject

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Alternative", "Followed", "Pitfall", "Route", "Skill", "Slot", "Step"]

_MOST_EXAMPLES = 5
_MOST_PITFALLS = 3
_MOST_EXAMPLES_OF_OUTLINE = 12
# How lines begin that tell of single episodes.
_EVIDENCE = ("Seen: ", "Avoid: ", "Avoid, it ended the task: ")
_SIMPLE: Mapping[Any, type] = {"str": str, "int": int, "bool": bool}
_Part = TypeVar("_Part", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A parameter: its number from 1 on, a word for its kind, and the values seen, most frequent first."""

    number: int
    kind: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"<{self.number}:{self.kind}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """What other episodes did in a step's place, and which of them succeeded and failed."""

    template: str
    succeeded_ids: tuple[str, ...] = ()
    failed_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What was observed right after a step, over the slots, and in how many successful episodes."""

    text: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An action over the slots, the words that all its instances share, and the episodes that did it.

    ``alternatives`` are most frequent first, as is ``followed_by``.
    """

    template: str
    words: tuple[str, ...] = ()
    succeeded_ids: tuple[str, ...] = ()
    failed_ids: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    followed_by: tuple[Followed, ...] = ()

    @property
    def unsupported(self) -> bool:
        """Whether no successful episode ever did it: a model or a person wrote it."""
        return not self.succeeded_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Pitfall:
    """What ended failed episodes: the last action, what was said to it, and in which episodes.

    ``final``: it was over then, and not for lack of time; there may be no way back from such an action.
    """

    action: str
    feedback: str = ""
    episode_ids: tuple[str, ...] = ()
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The whole way that successful episodes took, over the slots, and the values that the slots had there.

    ``followed_by`` has for each action what was observed after it; a long observation is left out, and empty. Steps are
    what most episodes share; a route keeps what belongs together in one.
    """

    actions: tuple[str, ...]
    followed_by: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    episode_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill as induced from a cluster of episodes.

    ``examples`` are the values that the slots had together, one tuple an episode. ``description`` is what a language
    model added in words that the episodes hold; ``unsupported`` what it added that no successful episode shows.
    """

    name: str
    use: str
    steps: tuple[Step, ...]
    slots: tuple[Slot, ...] = ()
    examples: tuple[tuple[str, ...], ...] = ()
    pitfalls: tuple[Pitfall, ...] = ()
    description: str = ""
    unsupported: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()

    def advised(self, by: Skill) -> Skill:
        """Take over what a language model added to another skill of the same kind."""
        return replace(self, name=by.name, description=by.description, unsupported=by.unsupported)

    def render(self, *, examples: int = _MOST_EXAMPLES) -> str:
        """Write the skill for a context: one statement a line, and no counts, so that more support changes nothing."""
        lines = [f"When to use: {self.use}"]
        if self.description:
            lines.append(self.description)
        for number, step in enumerate(self.steps, start=1):
            ways = [step.template, *(other.template for other in step.alternatives)]
            mark = " (unsupported: never seen to succeed)" if step.unsupported else ""
            lines.append(f"{number}. {' | or: '.join(ways)}{mark}")
        lines += [f"Unsupported, never seen to succeed: {text}" for text in self.unsupported]
        return "\n".join([*lines, *self._evidence(examples)])

    def show_in(self, text: str) -> str:
        """Write the examples and pitfalls into a text of this skill, in place of those that stand there."""
        lines = [line for line in text.splitlines() if not line.startswith(_EVIDENCE)]
        return "\n".join([*lines, *self._evidence(len(self.examples))])

    def _evidence(self, examples: int) -> list[str]:
        lines = [
            "Seen: "
            + ", ".join(f"<{slot.number}> = {value}" for slot, value in zip(self.slots, values, strict=True) if value)
            for values in self.examples[:examples]
        ]
        for pitfall in self.pitfalls[:_MOST_PITFALLS]:
            warning = "Avoid, it ended the task" if pitfall.final else "Avoid"
            lines.append(f"{warning}: {pitfall.action}" + (f" ({pitfall.feedback})" if pitfall.feedback else ""))
        return lines

    def outline(self, *, examples: int = _MOST_EXAMPLES_OF_OUTLINE) -> JsonObject:
        """Return what a program needs to follow the skill, as JSON data: counts in place of ids, nothing empty."""
        return _filled(
            {
                "name": self.name,
                "use": self.use,
                "slots": [{"number": slot.number, "kind": slot.kind} for slot in self.slots],
                "steps": [
                    _filled(
                        {
                            "action": step.template,
                            **_counts(step),
                            "alternatives": [{"action": way.template, **_counts(way)} for way in step.alternatives],
                            "followed_by": [{"text": seen.text, "count": seen.count} for seen in step.followed_by],
                            "unsupported": step.unsupported,
                        }
                    )
                    for step in self.steps
                ],
                "unsupported": list(self.unsupported),
                "examples": [list(values) for values in self.examples[:examples]],
                "pitfalls": [
                    _filled(
                        {
                            "action": pitfall.action,
                            "feedback": pitfall.feedback,
                            "failed": len(pitfall.episode_ids),
                            "final": pitfall.final,
                        }
                    )
                    for pitfall in self.pitfalls
                ],
                **_outlined(self.routes),
            }
        )

    def to_dict(self) -> JsonObject:
        """Return the skill as JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Skill:
        """Read what ``to_dict`` gave, also after a way through JSON, and also what an earlier version wrote.

        Raises:
            InvalidInputError: it is nothing of the kind.
        """
        try:
            steps = tuple(
                _read(
                    Step,
                    {
                        **step,
                        "alternatives": tuple(_read(Alternative, each) for each in step.get("alternatives", ())),
                        "followed_by": tuple(_read(Followed, each) for each in step.get("followed_by", ())),
                    },
                )
                for step in data["steps"]
            )
            slots = tuple(_read(Slot, slot) for slot in data.get("slots", ()))
            examples = tuple(_of_texts(values, len(slots)) for values in data.get("examples", ()))
            pitfalls = tuple(_read(Pitfall, pitfall) for pitfall in data.get("pitfalls", ()))
            routes = tuple(_read(Route, route) for route in data.get("routes", ()))
            if any(route.followed_by and len(route.followed_by) != len(route.actions) for route in routes):
                raise ValueError("a route has not one observation for each action")
            parts = {"steps": steps, "slots": slots, "examples": examples, "pitfalls": pitfalls, "routes": routes}
            return _read(cls, {"name": "", "use": "", **data, **parts})
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InvalidInputError(
                f"this is no structure of a skill ({error}); give what Skill.to_dict wrote"
            ) from None


def _read(kind: type[_Part], data: Mapping[str, Any]) -> _Part:
    """Make a part from its fields; what it has no field for is of another version, and left out."""
    given: dict[str, Any] = {}
    for each in fields(kind):
        if each.name in data:
            value = data[each.name]
            if each.type == "tuple[str, ...]":
                value = _of_texts(value)
            elif each.type in _SIMPLE and type(value) is not _SIMPLE[each.type]:
                raise TypeError(f"{each.name} is {value!r:.60}")
            given[each.name] = value
    return kind(**given)


def _of_texts(values: Any, number: int | None = None) -> tuple[str, ...]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{values!r:.60} is no list of texts")
    if number is not None and len(values) != number:
        raise ValueError(f"{values!r:.60} has not one value for each of {number} slots")
    return tuple(values)


def _outlined(routes: Sequence[Route]) -> JsonObject:
    """Write routes with each different action once: a route is a list of their places."""
    pairs = [list(zip(route.actions, route.followed_by or ("",) * len(route.actions), strict=True)) for route in routes]
    places = {pair: place for place, pair in enumerate(dict.fromkeys(pair for row in pairs for pair in row))}
    return {
        "actions": [_filled({"action": action, "followed_by": text}) for action, text in places],
        "routes": [
            {"actions": [places[pair] for pair in row], "values": list(route.values)}
            for route, row in zip(routes, pairs, strict=True)
        ],
    }


def _counts(way: Step | Alternative) -> dict[str, int]:
    return {"succeeded": len(way.succeeded_ids), "failed": len(way.failed_ids)}


def _filled(data: JsonObject) -> JsonObject:
    return {name: value for name, value in data.items() if value is not False and value not in ("", [])}
