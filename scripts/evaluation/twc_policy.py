"""The one fixed policy that plays TextWorld Commonsense in every arm.

It sees a context, a task, an observation and the admissible actions, and nothing else; between calls it remembers only
what these told it. Without a task of one object it explores and takes what lies about. With one it carries that object
to the known place that scores best: 0.3 of the likeness of object and place, plus the likeness of the object and the
most similar one of which the context says that it belongs there.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from xml.etree import ElementTree

from fluxmem_local.graph import fill

__all__ = ["Policy", "Said", "read_context"]

_PLACE_SHARE = 0.3
_TASK = re.compile(r"put the (.+) in its usual place")
_PUT = re.compile(r"put (.+?) in (.+)")
_BELONGS = re.compile(r"(.+) belongs in (.+)\.?")
_REFUSED = re.compile(r"no reward: (.+) does not belong in (.+)")
_ROOM = re.compile(r"You are in the ([^.]+)\.")
_PLACE = re.compile(r"\b[Aa]n? (?:open )?([\w \-]+?),? that ")
_BACK = {"north": "south", "south": "north", "east": "west", "west": "east"}

Similarity = Callable[[str, str], float]


@dataclass(frozen=True, slots=True)
class Said:
    """What a context says: pairs of an object and the place where it belongs, and of one where it does not."""

    belongs: frozenset[tuple[str, str]] = frozenset()
    refused: frozenset[tuple[str, str]] = frozenset()


def read_context(context: str) -> Said:
    """Read all that a context says of objects and places."""
    if not context:
        return Said()
    root = ElementTree.fromstring(context)
    belongs: set[tuple[str, str]] = set()
    refused: set[tuple[str, str]] = set()
    for fact in root.iter("fact"):
        belongs |= _pairs(_BELONGS, fact.text or "")
        refused |= _pairs(_REFUSED, fact.text or "")
    for episode in root.iter("episode"):
        into = belongs if episode.get("success") == "true" else refused
        for action in episode.iter("action"):
            into |= _pairs(_PUT, action.text or "")
    for skill in root.iter("skill"):
        outline = json.loads(skill.get("structure", "{}"))
        numbers = [slot["number"] for slot in outline.get("slots", ())]
        for values in outline.get("examples", ()):
            for step in outline["steps"]:
                belongs |= _pairs(_PUT, fill(step["action"], dict(zip(numbers, values, strict=True))))
        for pitfall in outline.get("pitfalls", ()):
            refused |= _pairs(_PUT, pitfall["action"])
    return Said(frozenset(belongs - refused), frozenset(refused))


def _pairs(pattern: re.Pattern[str], text: str) -> set[tuple[str, str]]:
    found = pattern.fullmatch(text.strip())
    return set() if found is None else {(found[1], found[2])}


@dataclass(slots=True)
class Policy:
    """Plays one game. ``similarity`` compares two names, in [-1, 1]."""

    similarity: Similarity
    carried: list[str] = field(default_factory=list)
    _room: str = ""
    _exits: dict[str, dict[str, str]] = field(default_factory=dict)
    _places: dict[str, list[str]] = field(default_factory=dict)
    _tried: set[tuple[str, str]] = field(default_factory=set)
    _came: str = ""

    @property
    def seen(self) -> str:
        """What was seen so far, in words: the observation with which a memory is asked."""
        return f"Places here: {', '.join(sorted(self._places))}."

    def act(self, context: str, task: str, observation: str, admissible: tuple[str, ...]) -> str | None:
        """Choose the next action; None: there is nothing left to do for this task."""
        self._look(observation, admissible)
        found = _TASK.fullmatch(task)
        action = self._explore(admissible) if found is None else self._carry(found[1], context, admissible)
        self._came = action.removeprefix("move ") if action is not None and action.startswith("move ") else ""
        return action

    def _look(self, observation: str, admissible: tuple[str, ...]) -> None:
        here = _ROOM.match(observation)
        if here is not None:
            if self._came and self._room:
                self._exits[self._room][self._came] = here[1]
                self._exits.setdefault(here[1], {})[_BACK[self._came]] = self._room
            self._room = here[1]
            for place in _PLACE.findall(observation):
                self._see(place)
        exits = self._exits.setdefault(self._room, {})
        for action in admissible:
            if action.startswith("move "):
                exits.setdefault(action.removeprefix("move "), "")

    def _see(self, place: str) -> None:
        rooms = self._places.setdefault(place, [])
        if self._room not in rooms:
            rooms.append(self._room)

    def _explore(self, admissible: tuple[str, ...]) -> str | None:
        for action in admissible:
            if action.startswith("take "):
                self.carried.append(action.removeprefix("take "))
                return action
        return self._way(lambda room: "" in self._exits[room].values(), unknown=True)

    def _carry(self, item: str, context: str, admissible: tuple[str, ...]) -> str | None:
        if f"take {item}" in admissible:
            return f"take {item}"
        place = self._best_place(item, context)
        if place is None:
            return None
        for action in (f"put {item} in {place}", f"open {place}"):
            if action in admissible:
                if action.startswith("put "):
                    self._tried.add((item, place))
                return action
        way = self._way(lambda room: room != self._room and room in self._places[place])
        if way is None:
            # It is no place that takes this object.
            self._tried.add((item, place))
            return self._carry(item, context, admissible)
        return way

    def _best_place(self, item: str, context: str) -> str | None:
        said = read_context(context)
        left = [place for place in self._places if (item, place) not in self._tried | said.refused]
        return max(left, key=lambda place: (self._score(item, place, said), place), default=None)

    def _score(self, item: str, place: str, said: Said) -> float:
        alike = [self.similarity(item, other) for other, home in said.belongs if home == place]
        return _PLACE_SHARE * self.similarity(item, place) + max(alike, default=0.0)

    def _way(self, wanted: Callable[[str], bool], *, unknown: bool = False) -> str | None:
        """Find the first move of the shortest way to a room that is wanted, or there through an unknown exit."""
        for room, moves in self._ways():
            if wanted(room):
                exits = [way for way, to in sorted(self._exits[room].items()) if not to] if unknown else []
                return f"move {[*moves, *exits][0]}"
        return None

    def _ways(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each known room with the moves that lead there, nearest first."""
        queue: deque[tuple[str, tuple[str, ...]]] = deque([(self._room, ())])
        seen = {self._room}
        while queue:
            room, moves = queue.popleft()
            yield room, moves
            for way, to in sorted(self._exits[room].items()):
                if to and to not in seen:
                    seen.add(to)
                    queue.append((to, (*moves, way)))
