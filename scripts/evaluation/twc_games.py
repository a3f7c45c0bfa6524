"""Games of TextWorld Commonsense with and without a memory: one policy in all arms, and only the memory differs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evaluation.arms import Played
from evaluation.remembering import Remembering
from evaluation.twc import GAME_TASK, Home, Lesson, View, put_task, refusal
from evaluation.twc_policy import Policy

from fluxmem_local import FluxMemAgent, FluxMemConfig
from fluxmem_local.errors import OutsideFailureError
from fluxmem_local.graph import ProceduralNode
from fluxmem_local.interfaces import approximate_tokens
from fluxmem_local.types import Layer

__all__ = ["RETRIES", "Arm", "Table", "teach"]

# Executions of one task after the first one, at most: the same with a memory, by its repairs, and without one.
RETRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An arm: the folder of its memory, None for none; whether it may try again; whether test games stay in memory."""

    memory: Path | None = None
    retries: bool = False
    online: bool = False


async def teach(
    folder: Path,
    lessons: Sequence[Lesson],
    embedder: Remembering,
    config: FluxMemConfig,
    *,
    as_facts: bool = False,
    consolidated: bool = False,
    without: str = "",
) -> None:
    """Make a memory in a folder that lived these lessons.

    Args:
        folder: of the memory.
        lessons: what it lived.
        embedder: of the memory.
        config: of the memory.
        as_facts: remember what was rewarded as facts, and no episodes.
        consolidated: distil skills.
        without: what the skills lack: "alignment" (they are texts only), "cases" (they show what is most frequent) or
            "pitfalls" (failures left nothing).
    """
    async with FluxMemAgent(None, embedder, config, path=folder) as agent:
        if as_facts:
            puts = [
                action.removeprefix("put ") for lesson in lessons if lesson.success for _, action in lesson.trajectory
            ]
            for put in dict.fromkeys(puts):
                item, place = put.rsplit(" in ", 1)
                await agent.add_knowledge(f"{item} belongs in {place}", source="lessons")
            return
        if lessons:
            await embedder.embed_batch([lesson.task for lesson in lessons])
        for lesson in lessons:
            await agent.record_episode(lesson.task, lesson.trajectory, lesson.success, lesson.feedback)
        if consolidated:
            await agent.consolidate()
        if without:
            _take_away(agent, without)


def _take_away(agent: FluxMemAgent, what: str) -> None:
    skills = [node for node in agent.store.select(layers=(Layer.PROCEDURAL,)) if isinstance(node, ProceduralNode)]
    with agent.store.transaction() as change:
        for node in skills:
            metadata = dict(node.metadata)
            if what == "alignment":
                del metadata["structure"]
            if what in ("alignment", "cases"):
                del metadata["cases"]
            if what == "pitfalls":
                metadata["structure"] = {**metadata["structure"], "pitfalls": []}
                metadata["cases"] = [{**case, "failed": []} for case in metadata["cases"]]
            change.replace(replace(node, metadata=metadata), reason="ablation")


class Game:
    """One game in progress: executes what the policy chooses, and counts."""

    def __init__(self, home: Home, policy: Policy, view: View, limit: int) -> None:
        self.home = home
        self.policy = policy
        self.view = view
        self.left = limit
        self.limit = limit
        self.calls = 0
        self.context_tokens = 0

    @property
    def over(self) -> bool:
        return self.left == 0 or self.view.solved

    def explore(self) -> None:
        while not self.over and (action := self._choose("", GAME_TASK)) is not None:
            self._do(action)

    def put(self, item: str, context: str) -> tuple[str, str, bool]:
        """Carry an object to where the context says: the task function of a memory."""
        self.calls += 1
        self.context_tokens += approximate_tokens(context) if context else 0
        while not self.over:
            action = self._choose(context, put_task(item))
            if action is None:
                raise OutsideFailureError("there is no other place here")
            self._do(action)
            if action.startswith("put "):
                success = self.view.reward > 0
                place = action.removeprefix(f"put {item} in ")
                return action, "" if success else refusal(item, place), success
        raise OutsideFailureError("the game is over")

    def _choose(self, context: str, task: str) -> str | None:
        return self.policy.act(context, task, self.view.observation, self.view.admissible)

    def _do(self, action: str) -> None:
        self.view = self.home.step(action)
        self.left -= 1

    def played(self) -> Played:
        return Played(
            success=self.view.solved,
            score=self.view.score,
            steps=self.limit - self.left,
            calls=self.calls,
            context_tokens=self.context_tokens,
        )


class Table:
    """Plays arms over the same games."""

    def __init__(self, home: Home, embedder: Remembering, config: FluxMemConfig) -> None:
        self.home = home
        self.embedder = embedder
        self.config = config
        self._likeness: dict[tuple[str, str], float] = {}

    async def play(self, arm: Arm, fold: str, seeds: Sequence[int], limit: int) -> list[Played]:
        """Play all games of an arm."""
        if arm.memory is None:
            return [await self._without_memory(fold, seed, limit, arm.retries) for seed in seeds]
        config = replace(self.config, max_refinement_rounds=RETRIES if arm.retries else 0)
        played = []
        with tempfile.TemporaryDirectory(prefix="twc-") as folder:
            copy = Path(folder) / "memory"
            for seed in seeds:
                if not arm.online or not copy.exists():
                    shutil.rmtree(copy, ignore_errors=True)
                    shutil.copytree(arm.memory, copy)
                async with FluxMemAgent(None, self.embedder, config, path=copy) as agent:
                    played.append(await self._with_memory(agent, fold, seed, limit))
        return played

    async def _without_memory(self, fold: str, seed: int, limit: int, retries: bool) -> Played:
        game = await self._begin(fold, seed, limit)
        for item in list(game.policy.carried):
            for _ in range(1 + RETRIES if retries else 1):
                try:
                    _, _, success = game.put(item, "")
                except OutsideFailureError:
                    break
                if success:
                    break
        return game.played()

    async def _with_memory(self, agent: FluxMemAgent, fold: str, seed: int, limit: int) -> Played:
        game = await self._begin(fold, seed, limit)
        for item in list(game.policy.carried):
            if game.over:
                break
            await agent.run_task(
                put_task(item), lambda context, item=item: game.put(item, context), observations=[game.policy.seen]
            )
        return game.played()

    async def _begin(self, fold: str, seed: int, limit: int) -> Game:
        game = Game(self.home, Policy(self._similarity), self.home.start(fold, seed), limit)
        game.explore()
        return game

    def _similarity(self, one: str, other: str) -> float:
        if (one, other) not in self._likeness:
            self._likeness[one, other] = float(self.embedder.embed_now(one) @ self.embedder.embed_now(other))
        return self._likeness[one, other]
