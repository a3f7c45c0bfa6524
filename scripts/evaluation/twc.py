"""TextWorld Commonsense: four misplaced objects of a small home go where they belong.

``Home`` plays games of ``textworld-express`` 1.1.0. ``record_lessons`` plays the training games and cuts each into its
tasks, one an object, as the agent itself lives them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = [
    "GAME_TASK",
    "Home",
    "Lesson",
    "View",
    "is_gold",
    "load_lessons",
    "put_task",
    "record_lessons",
    "refusal",
    "save_lessons",
]

GAME_TASK = "Your task is to pick up objects, then place them in their usual locations in the environment."
_PARAMETERS = "numLocations=3,numItemsToPutAway=4,includeDoors=0,limitInventorySize=0"
_FIRST_GOLD, _FIRST_RANDOM = 50, 20
_PUT = re.compile(r"put (.+) in (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the game shows after an action: ``reward`` is the change of the score, in [0, 1] over the whole game."""

    observation: str
    admissible: tuple[str, ...]
    reward: float = 0.0
    score: float = 0.0
    solved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One task of a training game: an object, what was done with it, and whether that was rewarded."""

    game: int
    task: str
    trajectory: tuple[tuple[str, str], ...]
    success: bool
    feedback: str = ""


class Home:
    """Plays games, one after the other, in a Java process of its own."""

    def __init__(self) -> None:
        from textworld_express import TextWorldExpressEnv

        self._env: Any = TextWorldExpressEnv(envStepLimit=10_000)
        self._env.load(gameName="twc", gameParams=_PARAMETERS)

    def __enter__(self) -> Home:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._env.close()

    def start(self, fold: str, seed: int) -> View:
        """Begin game ``seed`` of a fold: train, dev or test."""
        _, seen = self._env.reset(seed=seed, gameFold=fold)
        return _view(seen)

    def gold(self, fold: str, seed: int) -> list[str]:
        """Begin a game and return actions that solve it."""
        self._env.reset(seed=seed, gameFold=fold, generateGoldPath=True)
        return list(self._env.getGoldActionSequence())

    def step(self, action: str) -> View:
        """Do one action."""
        *_, seen = self._env.step(action)
        return _view(seen)


def put_task(item: str) -> str:
    """Say what is to be done with one object."""
    return f"put the {item} in its usual place"


def refusal(item: str, place: str) -> str:
    """Say what the world tells of an object that was put where it does not belong."""
    return f"no reward: {item} does not belong in {place}"


def record_lessons(home: Home, games: int, *, limit: int = 50, seed: int = 0) -> list[Lesson]:
    """Play train games from seed 0 on, some by their solution and some at random."""
    chance = random.Random(seed)
    lessons: list[Lesson] = []
    for game in range(games):
        actions = home.gold("train", game) if is_gold(game) else None
        view = home.start("train", game)
        for turn in range(limit):
            if view.solved or (actions is not None and turn == len(actions)):
                break
            action = chance.choice(view.admissible) if actions is None else actions[turn]
            before, view = view, home.step(action)
            put = _PUT.fullmatch(action)
            if put is not None:
                item, place = put.groups()
                lessons.append(
                    Lesson(
                        game=game,
                        task=put_task(item),
                        trajectory=((before.observation, action),),
                        success=view.reward > 0,
                        feedback="" if view.reward > 0 else refusal(item, place),
                    )
                )
    return lessons


def is_gold(game: int) -> bool:
    """Tell whether a train game is played by its solution: the first 50, none of the next 20, then five in seven."""
    return game % 7 < 5 if game >= _FIRST_GOLD + _FIRST_RANDOM else game < _FIRST_GOLD


def _view(seen: dict[str, Any]) -> View:
    return View(
        observation=seen["observation"],
        # The game gives them in another order each time.
        admissible=tuple(sorted(seen["validActions"])),
        reward=float(seen["reward"]),
        score=float(seen["score"]),
        solved=bool(seen["tasksuccess"]),
    )


def save_lessons(path: Path, lessons: Sequence[Lesson]) -> None:
    """Write lessons as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(lesson)) + "\n" for lesson in lessons), encoding="utf-8")


def load_lessons(path: Path) -> list[Lesson]:
    """Read what ``save_lessons`` wrote."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Lesson(**{**row, "trajectory": tuple(map(tuple, row["trajectory"]))}) for row in rows]
