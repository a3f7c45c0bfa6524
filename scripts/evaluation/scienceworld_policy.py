"""The agent of the ScienceWorld benchmark: one small fixed policy, the same whatever the memory gave it.

It sees the context, the task, what it observes and what it can do here; it knows nothing of scores, families or splits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fluxmem_local.graph.templates import bind, fill, slots_in

from .scienceworld_guides import (
    GO,
    Guide,
    Memory,
    Route,
    Walk,
    adapted,
    by_distance,
    foreign,
    path_to,
    read_context,
    renaming,
    without_slots,
    words_in,
)

__all__ = ["Act", "Embed", "Policy"]

Embed = Callable[[Sequence[str]], Awaitable[npt.NDArray[np.float32]]]
# Does an action, and returns what is observed then; None when the game is over.
Act = Callable[[str], str | None]

_REFUSED = "No known action matches that input."
_PLACE = re.compile(r"(?:is called the|You move (?:through the door )?to the) ([a-z ]+)\.")
_NEAREST = 0.7
# Of the actions with the same verb, those with most words in common are compared by meaning.
_COMPARED = 24
# So many steps that cannot be done here: the guide does not fit.
_MOST_MISSED = 8
_STEPS_WITHOUT_GUIDE = 25
_MOST_TRIED = 4
_MOST_OPENINGS = 96
# What may fill a slot must be so like what was there, where a wrong choice ended games.
_ALIKE = 0.45
# Tasks of one kind share this part of their words.
_SAME_KIND = 0.5
_MOST_SEARCHES = 2
# Steps of a route are done again at most so often, until what is seen is what was seen then.
_MOST_RETURNS = 40


class Policy:
    """Follows guides through one game; it remembers what it did in this game, and which guides it followed."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._followed: set[str] = set()
        self._done: Counter[str] = Counter()
        self._done_here: list[str] = []
        self._observation: str | None = ""
        self._place = ""
        self._returns = 0
        self._searches = 0
        self._act: Act = lambda action: None
        self._admissible: Callable[[], Sequence[str]] = tuple
        self._memory = Memory()
        self._task = ""

    async def run(
        self, context: str, task: str, observation: str, act: Act, admissible: Callable[[], Sequence[str]]
    ) -> str:
        """Go along one guide of the context that was not followed yet; say what was in the way, "" for nothing."""
        self._memory = read_context(context, self._followed)
        self._task, self._act, self._admissible = task, act, admissible
        self._see(observation)
        # The skill whose use describes the task most closely comes before those of other kinds of tasks.
        guide = max(self._memory.guides, key=lambda each: each.fit(task), default=None)
        if guide is not None:
            self._followed.update(guide.ids)
            return await self._follow(guide)
        if self._followed:
            return "All remembered ways were tried."
        await self._wander()
        return "No way is known."

    # ---- following a guide

    async def _follow(self, guide: Guide) -> str:
        """Take the routes of a guide, the likeliest first, until the game is over; then look for what was missing."""
        given = bind(guide.use, self._task)
        routes = [adapted(route, given or {}) for route in await self._by_likeness(guide, given or {})]
        missed: list[str] = []
        for route in routes:
            walk = Walk(route, routes, given or {}, bold=self._is_bold(guide, route, given))
            missed += await self._take(walk, most_missed=0)
        bold = self._is_bold(guide, routes[0], given)
        for seeks, most_missed in ((True, 0), (False, _MOST_MISSED)):
            if missed and self._observation is not None:
                walk = Walk(routes[0], routes, given or {}, bold=bold, seeks=seeks)
                await self._take(walk, most_missed=most_missed)
        return f"Could not do here: {missed[0]}" if missed and self._observation is not None else ""

    async def _by_likeness(self, guide: Guide, given: Mapping[int, str]) -> list[Route]:
        if not guide.use:
            return list(guide.routes)
        tasks = [fill(guide.use, route.values) for route in guide.routes]
        vectors = await self._embed([self._task, *tasks])
        likeness = vectors[1:] @ vectors[0]
        strange = np.array([foreign(route, given) for route in guide.routes], np.float32)
        return [guide.routes[place] for place in np.argsort(strange - likeness, kind="stable")]

    async def _take(self, walk: Walk, *, most_missed: int) -> list[str]:
        """Go along a route, and change over to where another observation led; return what could not be done."""
        before = Counter(self._done)
        missed: list[str] = []
        while not walk.at_end and len(missed) <= most_missed and self._observation is not None:
            move = walk.next_move()
            if move is not None and self._goes(move):
                walk.place += 1
                continue
            way = walk.next_action()
            usual = fill(way, walk.route.values)
            walk.place += 1
            if before[usual] > 0 or (self._done[usual] and self._is_risky(usual)):
                # Done in this game before; what may end it is not done twice.
                before[usual] -= 1
            elif ((missed or not walk.bold) and self._is_risky(usual)) or not await self._do_like(way, usual, walk):
                # Who leaves out steps may have come by another way.
                if move is None or not most_missed:
                    missed.append(usual)
            elif self._observation is not None:
                seen = " ".join(self._observation.split())
                self._returns += walk.go_on(seen, self._done_here, may_return=self._returns < _MOST_RETURNS)
        return missed

    def _goes(self, move: str) -> bool:
        """Go where several moves lead in the end, by what the memory knows leads there."""
        if move == GO + self._place:
            return True
        path = path_to(self._memory.leads, GO + self._place, move)
        return bool(path) and all(self._do(each) for each in path)

    async def _do_like(self, way: str, usual: str, walk: Walk) -> bool:
        """Do an action whose slots are not all filled, as it was usual, or else what is most like it here."""
        for known in dict.fromkeys((usual, *(fill(way, route.values) for route in walk.routes))):
            if not slots_in(known) and self._do(known):
                walk.values.update(bind(way, known) or {})
                return True
            if self._observation is None:
                return False
        here = self._admissible()
        for action in await self._openings(way, here, walk):
            if self._do(action):
                walk.values.update(bind(way, action) or {})
                return True
        nearest = await self._nearest(usual, [each for each in here if self._may_stand_in(each, usual)])
        if nearest is not None and self._do(nearest):
            walk.renamed.update(renaming(usual, nearest))
            return True
        return walk.seeks and not slots_in(usual) and self._seek(usual, walk.lived_at())

    def _seek(self, action: str, first: str | None) -> bool:
        """Look for a place where an action can be done, where it was done before first, then the nearest."""
        if self._searches == _MOST_SEARCHES:
            return False
        self._searches += 1
        start = GO + self._place
        for place in (*((first,) if first else ()), *by_distance(self._memory.leads, start)):
            if self._goes(place) and self._do(action):
                return True
            if self._observation is None:
                return False
        self._goes(start)
        return False

    async def _openings(self, way: str, here: Sequence[str], walk: Walk) -> list[str]:
        """List what can be done here that fits an action with slots, what is most like the values seen there first."""
        open_slots = sorted(slots_in(way))
        rows = [[route.values.get(number, "") for number in open_slots] for route in walk.routes]
        known = sorted({" ".join(row) for row in rows if all(row)})
        found = []
        for action in here if known and open_slots else ():
            fresh = bind(way, action)
            if fresh and not set(fresh.values()) & set(walk.values.values()):
                found.append((action, " ".join(fresh.values())))
        if not found:
            return []
        found = found[:_MOST_OPENINGS]
        vectors = await self._embed([*known, *(text for _, text in found)])
        alike = (vectors[len(known) :] @ vectors[: len(known)].T).max(axis=1)
        least = _ALIKE if self._is_risky(way) else 0.0
        order = sorted(range(len(found)), key=lambda place: (-alike[place], len(found[place][0]), found[place][0]))
        return [found[place][0] for place in order if alike[place] >= least][:_MOST_TRIED]

    async def _nearest(self, wanted: str, here: Sequence[str]) -> str | None:
        """Find the action with the same verb whose object means nearly the same."""
        verb, _, thing = wanted.partition(" ")
        same = [each for each in here if each.partition(" ")[0] == verb]
        same.sort(key=lambda each: (-len(words_in(each) & words_in(wanted)), len(each), each))
        same = same[:_COMPARED]
        if not same or not thing:
            return None
        vectors = await self._embed([thing, *(each.partition(" ")[2] for each in same)])
        cosines = vectors[1:] @ vectors[0]
        best = int(cosines.argmax())
        return same[best] if cosines[best] >= _NEAREST else None

    def _is_bold(self, guide: Guide, route: Route, given: Mapping[int, str] | None) -> bool:
        """Whether a route may risk something: not one of another kind of task, nor one that works on another thing."""
        if guide.use:
            return given is not None and not foreign(route, given)
        here, there = words_in(self._task), words_in(route.task)
        return len(here & there) >= _SAME_KIND * len(here | there)

    def _is_risky(self, action: str) -> bool:
        """Whether something like this ended a game."""
        return action.partition(" ")[0] in {pitfall.partition(" ")[0] for pitfall in self._memory.pitfalls}

    def _may_stand_in(self, action: str, wanted: str) -> bool:
        """Hold back from the like of what ended games: all that is wanted must be in it, and nothing strange."""
        if not self._is_risky(action):
            return True
        words, asked = words_in(action), words_in(without_slots(wanted))
        return asked <= words <= asked | words_in(self._task)

    # ---- without a guide

    async def _wander(self) -> None:
        """Do what sounds most like the task, and nothing twice."""
        task_words = words_in(self._task)
        for _ in range(_STEPS_WITHOUT_GUIDE):
            here = [each for each in self._admissible() if not self._done[each]]
            here.sort(key=lambda each: (-len(words_in(each) & task_words), len(each), each))
            if not here or self._observation is None:
                return
            vectors = await self._embed([self._task, *here[:_COMPARED]])
            self._do(here[int((vectors[1:] @ vectors[0]).argmax())])

    # ---- acting

    def _do(self, action: str) -> bool:
        """Do an action; tell whether it could be done and the game goes on."""
        if self._observation is None:
            return False
        observation = self._act(action)
        if observation is not None and observation.startswith(_REFUSED):
            return False
        self._done[action] += 1
        self._done_here.append(action)
        self._see(observation)
        return observation is not None

    def _see(self, observation: str | None) -> None:
        self._observation = observation
        found = _PLACE.search(observation or "")
        if found:
            self._place = found[1]
