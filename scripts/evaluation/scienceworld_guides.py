"""What a context holds for someone who acts: guides with their routes, pitfalls, and which place leads where."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any
from xml.etree import ElementTree

from fluxmem_local.graph.templates import bind, fill, slots_in

__all__ = [
    "GO",
    "Guide",
    "Memory",
    "Route",
    "Step",
    "Walk",
    "adapted",
    "agrees",
    "by_distance",
    "foreign",
    "path_to",
    "read_context",
    "renaming",
    "without_slots",
    "words_in",
]

GO = "go to "
_OPEN_DOOR = "open door to "
_NUMBER_OR_SLOT = re.compile(r"<\d+:[^<>]*>|-?\d+(?:\.\d+)?")
_SLOT = re.compile(r"<\d+:[^<>]*>")
_LEADS = re.compile(r'After "([^"]*)" can be done: (.*)')
_QUOTED = re.compile(r'"([^"]*)"')
_FREE_WORDS = frozenset(("a", "an", "and", "at", "from", "in", "into", "of", "on", "the", "to", "with"))


@dataclass(frozen=True, slots=True)
class Step:
    """An action, and what was observed after it; both may have slots."""

    action: str
    followed_by: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """A whole way to the goal, and the values that the slots had there.

    ``lived`` are the values before they were adapted to another task; ``task`` is that of a single episode.
    """

    steps: tuple[Step, ...]
    values: Mapping[int, str] = field(default_factory=dict)
    lived: Mapping[int, str] = field(default_factory=dict)
    task: str = ""


@dataclass(frozen=True, slots=True)
class Guide:
    """What is remembered of one kind of task: the routes of a skill, or episodes that succeeded, a route each."""

    ids: tuple[str, ...]
    routes: tuple[Route, ...]
    use: str = ""

    def fit(self, task: str) -> int:
        """How closely the guide's use describes a task: the number of signs that both share, 0 for another kind."""
        return len(without_slots(self.use)) if bind(self.use, task) is not None else 0


@dataclass(slots=True)
class Memory:
    """What a context holds: guides, actions that ended failed games, and what leads where."""

    guides: list[Guide] = field(default_factory=list)
    pitfalls: set[str] = field(default_factory=set)
    leads: dict[str, set[str]] = field(default_factory=dict)


def read_context(context: str, followed: Collection[str] = ()) -> Memory:
    """Read guides, pitfalls and places out of a context; guides whose ids were followed before are left out."""
    memory = Memory()
    lived: dict[str, Route] = {}
    root = ElementTree.fromstring(context)
    for skill in root.iter("skill"):
        if skill.get("structure"):
            outline = json.loads(skill.get("structure", ""))
            if skill.get("id") not in followed:
                memory.guides.append(_skill_guide(skill.get("id", ""), outline))
            memory.pitfalls.update(each["action"] for each in outline.get("pitfalls", ()) if each.get("final"))
    for episode in root.iter("episode"):
        actions = [(step.findtext("action") or "").strip() for step in episode.iter("step")]
        if episode.get("success") == "true":
            if episode.get("id") not in followed:
                steps = tuple(Step(action) for action in actions if action)
                lived[episode.get("id", "")] = Route(steps, task=episode.findtext("task") or "")
        elif actions and (episode.findtext("feedback") or "").endswith(actions[-1]):
            memory.pitfalls.add(actions[-1])
    if lived:
        memory.guides.append(Guide(tuple(lived), tuple(lived.values())))
    for fact in root.iter("fact"):
        found = _LEADS.fullmatch((fact.text or "").strip())
        if found:
            memory.leads.setdefault(found[1], set()).update(_QUOTED.findall(found[2]))
    return memory


def _skill_guide(id: str, outline: Mapping[str, Any]) -> Guide:
    numbers = [slot["number"] for slot in outline.get("slots", ())]
    steps = [Step(each["action"], each.get("followed_by", "")) for each in outline.get("actions", ())]
    routes = []
    for route in outline.get("routes", ()):
        values = dict(zip(numbers, route["values"], strict=True))
        routes.append(Route(tuple(steps[place] for place in route["actions"]), values, values))
    usual = Route(tuple(Step(step["action"]) for step in outline.get("steps", ())))
    return Guide((id,), (*routes, usual), outline.get("use", ""))


@dataclass(slots=True)
class Walk:
    """A way along the routes of a guide: where it is, and what the slots are in this game.

    ``given`` are the values that the task gives, ``renamed`` words that stand for others here. A ``bold`` walk does
    what cannot be undone; one that ``seeks`` looks elsewhere for what cannot be done here.
    """

    route: Route
    routes: Sequence[Route]
    given: Mapping[int, str]
    bold: bool = True
    seeks: bool = False
    place: int = 0
    values: dict[int, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = dict(self.given)

    @property
    def at_end(self) -> bool:
        """Whether the route has no step left."""
        return self.place >= len(self.route.steps)

    def next_action(self) -> str:
        """Return the next action with what is known of its slots."""
        way = fill(self.route.steps[self.place].action, self.values)
        for old, new in self.renamed.items():
            way = re.sub(rf"\b{re.escape(old)}\b", lambda _, new=new: new, way)
        return way

    def next_move(self) -> str | None:
        """Return where the moves that follow each other from here on lead in the end; None when there is none."""
        last = None
        for step in self.route.steps[self.place :]:
            if step.action.startswith(GO):
                last = step.action
            elif not step.action.startswith(_OPEN_DOOR):
                break
        return None if last is None else fill(fill(last, self.values), self.route.values)

    def lived_at(self) -> str | None:
        """Return the move that led to where the last step was done in the episode behind the route."""
        moves = [step.action for step in self.route.steps[: self.place] if step.action.startswith(GO)]
        return fill(moves[-1], self.route.lived) if moves else None

    def go_on(self, seen: str, done: Sequence[str], *, may_return: bool) -> bool:
        """Go on at the next step, or after the like of the last one that was followed by what is seen now.

        Args:
            seen: what is observed after the last step.
            done: all that was done in this game.
            may_return: whether steps may be done again.

        Returns:
            Whether it went back.
        """
        last = self.route.steps[self.place - 1]
        if last.followed_by and not agrees(last, self.route, self.values, seen):
            for route, place in self._others(may_return):
                step = route.steps[place - 1]
                same = fill(step.action, self.values) == fill(last.action, self.values)
                if same and step.followed_by and agrees(step, route, self.values, seen):
                    back = route is self.route and place < self.place
                    if route is not self.route:
                        self.values = _values_by(done, route.steps[:place], self.given)
                    self.route, self.place, last = route, place, step
                    self._read(last, seen)
                    return back
        self._read(last, seen)
        return False

    def _others(self, may_return: bool) -> list[tuple[Route, int]]:
        """List the places in routes where one could go on: later and earlier in this one, then in others."""
        later = [(self.route, place) for place in range(self.place + 1, len(self.route.steps) + 1)]
        earlier = [(self.route, place) for place in range(self.place - 1, 0, -1)] if may_return else []
        routes = [route for route in self.routes if route is not self.route]
        return [*later, *earlier, *((route, place) for route in routes for place in range(1, len(route.steps) + 1))]

    def _read(self, step: Step, seen: str) -> None:
        """Read slots off what is seen after a step."""
        found = bind(step.followed_by, seen, self.values) or {}
        self.values = {**found, **self.values}


def _values_by(done: Sequence[str], steps: Sequence[Step], given: Mapping[int, str]) -> dict[int, str]:
    """Read the slots of a route off what was done in this game, as far as it is like the route's steps."""
    values = dict(given)
    begin = 0
    for step in steps:
        way = fill(step.action, values)
        for place in range(begin, len(done)):
            found = bind(way, done[place])
            if found is not None:
                values.update(found)
                begin = place + 1
                break
    return values


def foreign(route: Route, given: Mapping[int, str]) -> bool:
    """Whether a route works on something of its own task that it doesn't call by name, so not on what is given here."""
    acted_on = frozenset().union(*(slots_in(step.action) for step in route.steps))
    observed = frozenset().union(*(slots_in(step.followed_by) for step in route.steps))
    return any(
        number in observed - acted_on and route.lived.get(number, value).casefold() != value.casefold()
        for number, value in given.items()
    )


def adapted(route: Route, given: Mapping[int, str]) -> Route:
    """Write the values of a route as they are here: what was made of the old task's words is made of the new one's."""
    changed = dict(route.lived)
    for number, new in given.items():
        old = route.lived.get(number, "")
        if old and old.casefold() != new.casefold():
            pattern = re.compile(rf"\b{re.escape(old)}\b", re.IGNORECASE)
            for place, value in changed.items():
                if place not in given:
                    changed[place] = pattern.sub(lambda _, new=new: new, value)
    return replace(route, values=changed)


def agrees(step: Step, route: Route, values: Mapping[int, str], seen: str) -> bool:
    """Tell whether what is seen is what followed a step: numbers only need to stand to the task's as they did."""
    expected = fill(step.followed_by, values)
    masked, found = _NUMBER_OR_SLOT.sub(_masked, expected), _NUMBER_OR_SLOT.sub(_masked, seen)
    if masked.casefold() != found.casefold() and bind(masked, found) is None:
        return False
    pairs = zip(_numbers(expected), _numbers(seen), strict=False)
    limits = [
        (float(route.lived[number]), float(value))
        for number, value in values.items()
        if _is_number(value) and _is_number(route.lived.get(number, ""))
    ]
    return all((then > limit) == (now > new_limit) for then, now in pairs for limit, new_limit in limits)


def _masked(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("<") else "#"


def _numbers(text: str) -> list[float]:
    return [float(found) for found in _NUMBER_OR_SLOT.findall(text) if not found.startswith("<")]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?", text) is not None


def renaming(wanted: str, done: str) -> dict[str, str]:
    """Which words of the remembered action stand for which words of the one that was done in its place."""
    one, other = wanted.split(), done.split()
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return {" ".join(one[a:b]): " ".join(other[c:d]) for kind, a, b, c, d in blocks if kind == "replace"}


def by_distance(leads: Mapping[str, set[str]], start: str) -> list[str]:
    """List what can be reached, the nearest first."""
    found, seen = [start], {start}
    for place in found:
        for after in sorted(leads.get(place, ())):
            if after not in seen:
                seen.add(after)
                found.append(after)
    return found[1:]


def path_to(leads: Mapping[str, set[str]], start: str, goal: str) -> list[str]:
    """Find the shortest way from one place to another; [] when none is known."""
    paths, seen = deque([[start]]), {start}
    while paths:
        path = paths.popleft()
        for after in sorted(leads.get(path[-1], ())):
            if after == goal:
                return [*path[1:], after]
            if after not in seen:
                seen.add(after)
                paths.append([*path, after])
    return []


def without_slots(text: str) -> str:
    """Leave the slots out of a text."""
    return _SLOT.sub("", text)


def words_in(text: str) -> set[str]:
    """The words of a text that say something, in lower case."""
    words = re.findall(r"[a-z0-9]+", text.casefold())
    return {word for word in words if word not in _FREE_WORDS}
