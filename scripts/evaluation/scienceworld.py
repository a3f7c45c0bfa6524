"""ScienceWorld games: the families and their official splits, one life of 100 steps, and the episodes to learn from."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["STEPS", "Episode", "Game", "World", "collect", "open_world", "read_episodes", "write_episodes"]

STEPS = 100
# What the environment answers to an action that it does not know here; it costs no step.
REFUSED = "No known action matches that input."
_MENU = "Ambiguous request"
# It would begin another life.
_RESET = "reset task"
_SIMPLIFICATIONS = "openContainers,openDoors,selfWateringFlowerPots"
# Their gold paths do not fit into 100 steps.
_LEFT_OUT = ("mendelian", "inclined-plane", "grow-fruit")
_ELECTRICAL = ("power-component", "conductivity")
GOLD_EPISODES = 6
# Lived after a first consolidation, for a second one.
LATER_EPISODES = 2
# A random walk that has not ended by then learns nothing more.
_RANDOM_STEPS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A lived game: pairs of what was seen and what was done then."""

    family: str
    variation: int
    kind: str
    task: str
    trajectory: tuple[tuple[str, str], ...]
    success: bool
    score: int
    feedback: str


class World:
    """One simulator; ``game`` loads a variation of a family into it and ends the game before."""

    def __init__(self, simulator: Any) -> None:
        self._simulator = simulator

    @property
    def families(self) -> list[str]:
        names = self._simulator.get_task_names()
        return [name for name in names if not any(part in name for part in _LEFT_OUT)]

    def variations(self, family: str, split: str) -> list[int]:
        self._load(family, 0)
        return list(getattr(self._simulator, f"get_variations_{split}")())

    def game(self, family: str, variation: int) -> Game:
        self._load(family, variation)
        return Game(self._simulator.server)

    def gold_path(self, family: str, variation: int) -> list[str]:
        self._load(family, variation, gold=True)
        return list(self._simulator.get_gold_action_sequence())

    def _load(self, family: str, variation: int, *, gold: bool = False) -> None:
        electrical = any(part in family for part in _ELECTRICAL)
        simplifications = _SIMPLIFICATIONS + ("" if electrical else ",noElectricalAction")
        self._simulator.load(family, variation, simplifications, generateGoldPath=gold)


class Game:
    """One life in one variation.

    The server is asked directly: the package's own ``step`` lists all valid actions after each one, which takes longer
    than all else.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        server.reset()
        self.observation = self._said("look around")
        self.task = " ".join(server.getTaskDescription().split())
        self.score = self._score()
        self.trajectory: list[tuple[str, str]] = []

    @property
    def steps(self) -> int:
        return len(self.trajectory)

    @property
    def died(self) -> bool:
        return self.score < 0

    @property
    def success(self) -> bool:
        return self.score == 100

    @property
    def over(self) -> bool:
        return self.died or self.success or self.steps >= STEPS or bool(self._server.getCompleted())

    def step(self, action: str) -> str:
        """Do one action; a menu is answered by 0. A refused action leaves the trajectory as it was."""
        said = self._said(action)
        if said.startswith(_MENU):
            said = self._said("0")
        if said != REFUSED:
            self.trajectory.append((self.observation, action))
        self.observation = said
        self.score = self._score()
        return said

    def admissible(self) -> list[str]:
        """List what can be done here, which takes 20 to 140 ms."""
        return [each for each in self._server.getValidActionObjectCombinations() if each != _RESET]

    def verdict(self) -> str:
        """Say how the game stands, as the feedback of an episode."""
        if self.success:
            return "The task is completed."
        if self.died:
            return f"The task was failed for good by the last action: {self.trajectory[-1][1]}"
        return "The task is not completed."

    def _said(self, action: str) -> str:
        return str(self._server.step(action)).strip()

    def _score(self) -> int:
        return round(100 * float(self._server.getScore()))


@contextmanager
def open_world() -> Iterator[World]:
    """Start the simulator's JVM, and end it afterwards."""
    from scienceworld import ScienceWorldEnv

    simulator = ScienceWorldEnv(envStepLimit=10 * STEPS)
    try:
        yield World(simulator)
    finally:
        simulator.close()
        # It closes itself once more when it is collected, and fails then.
        simulator.close = lambda: None


async def collect(world: World, walk: Callable[[Game], Awaitable[None]], *, seed: int = 0) -> list[Episode]:
    """Live the training episodes of each family on train variations.

    Six gold ones, a random and a greedy one; and two gold ones of kind "later", where there are variations left.

    Args:
        world: the simulator.
        walk: plays a game without memory until it is over.
        seed: of the random walks.
    """
    episodes: list[Episode] = []
    for family in world.families:
        train = world.variations(family, "train")
        gold = _gold_episodes(world, family, train, GOLD_EPISODES)
        used = {episode.variation for episode in gold}
        later = _gold_episodes(world, family, [each for each in train if each not in used], LATER_EPISODES)
        episodes += [*gold, *(replace(episode, kind="later") for episode in later)]
        chance = random.Random(f"{seed} {family}")
        for kind in ("random", "greedy"):
            variation = chance.choice(train)
            game = world.game(family, variation)
            if kind == "greedy":
                await walk(game)
            while kind == "random" and not game.over and game.steps < _RANDOM_STEPS:
                game.step(chance.choice(game.admissible()))
            episodes.append(_lived(game, family, variation, kind))
    return episodes


def read_episodes(path: Path) -> list[Episode]:
    """Read episodes that ``write_episodes`` wrote."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Episode(**{**row, "trajectory": tuple(map(tuple, row["trajectory"]))}) for row in rows]


def write_episodes(path: Path, episodes: Sequence[Episode]) -> None:
    """Write episodes as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(asdict(episode), ensure_ascii=False) for episode in episodes]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _gold_episodes(world: World, family: str, train: Sequence[int], count: int) -> list[Episode]:
    """Play gold paths of variations spread over some, in each part of them the first one that reaches the goal."""
    parts = min(count, len(train))
    borders = [place * len(train) // parts for place in range(parts + 1 if parts else 0)]
    found: list[Episode] = []
    for begin, end in pairwise(borders):
        for variation in train[begin:end]:
            path = world.gold_path(family, variation)
            game = world.game(family, variation)
            for action in path:
                # A menu was answered by the game itself.
                if action != "0" and not game.over:
                    game.step(action)
            if game.success:
                found.append(_lived(game, family, variation, "gold"))
                break
    return found


def _lived(game: Game, family: str, variation: int, kind: str) -> Episode:
    return Episode(
        family=family,
        variation=variation,
        kind=kind,
        task=game.task,
        trajectory=tuple(game.trajectory),
        success=game.success,
        score=max(0, game.score),
        feedback=f"{game.observation}\n{game.verdict()}",
    )
