"""Labelled failures, and the environment that plays them by their key.

A case is one JSON object: `id`, `domain`, `task`, `observation`, `store` (a list of `{id, layer, text}`),
`context_ids`, `feedback`, and the key: `label` (expand, prune, reshape or none), `needed_ids`, `noise_ids`,
`reshape_ids`, `target_granularity`. The memory sees everything up to the feedback, the environment the key.
`repair_cases.jsonl` has 24 cases in eight domains, six a label; they were written before any rule was run on them.
`repair_rewordings.jsonl` has one `{id, task}` a line: the task of a case as another might put it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fluxmem_local.agent.results import RoundStarted, TaskEvent, TaskResult
from fluxmem_local.agent.tasks import TaskRunner
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import EpisodicNode, Node, ProceduralNode, SemanticNode
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM, approximate_tokens
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.retrieval import Retriever, serialize_context
from fluxmem_local.stages.formation import StageI
from fluxmem_local.types import NodeState

__all__ = ["LABELS", "REWORDINGS", "Case", "Memory", "Played", "World", "load_cases", "load_rewordings", "play"]

LABELS = ("expand", "prune", "reshape", "none")
REWORDINGS = Path(__file__).with_name("repair_rewordings.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A labelled failure; ``items`` are the store's memories by id: layer and text."""

    id: str
    domain: str
    task: str
    observation: str
    feedback: str
    items: Mapping[str, tuple[str, str]]
    context_ids: tuple[str, ...]
    label: str
    needed: frozenset[str]
    noise: frozenset[str]
    reshape: frozenset[str]
    granularity: str | None

    def named(self, names: Mapping[tuple[str, str], str]) -> Case:
        """Give the case the ids under which a memory that several cases share holds its items."""
        ids = {id: names[item] for id, item in self.items.items()}
        return replace(
            self,
            items={ids[id]: item for id, item in self.items.items()},
            context_ids=tuple(ids[id] for id in self.context_ids),
            needed=frozenset(ids[id] for id in self.needed),
            noise=frozenset(ids[id] for id in self.noise),
            reshape=frozenset(ids[id] for id in self.reshape),
        )


def load_cases(path: Path) -> list[Case]:
    cases = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            raw = json.loads(line)
            cases.append(
                Case(
                    **{name: raw[name] for name in ("id", "domain", "task", "observation", "feedback", "label")},
                    items={item["id"]: (item["layer"], item["text"]) for item in raw["store"]},
                    context_ids=tuple(raw["context_ids"]),
                    needed=frozenset(raw["needed_ids"]),
                    noise=frozenset(raw["noise_ids"]),
                    reshape=frozenset(raw["reshape_ids"]),
                    granularity=raw["target_granularity"],
                )
            )
    return cases


def load_rewordings(path: Path) -> dict[str, str]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {line["id"]: line["task"] for line in lines}


@dataclass(slots=True)
class Memory:
    """A memory in RAM that holds the items of one case or of several."""

    store: MemoryStore
    runner: TaskRunner
    stage_one: StageI
    config: FluxMemConfig

    @classmethod
    async def holding(
        cls,
        items: Mapping[str, tuple[str, str]],
        embedder: BaseEmbedder,
        llm: BaseLLM | None,
        config: FluxMemConfig,
    ) -> Memory:
        store = MemoryStore.open(None, dimension=embedder.dimension, fingerprint=embedder.fingerprint)
        vectors = await embedder.embed_batch([text for _, text in items.values()])
        with store.transaction() as transaction:
            transaction.add_nodes(
                [_node(id, *item, vector) for (id, item), vector in zip(items.items(), vectors, strict=True)]
            )
        retriever = Retriever(store, embedder, llm, config)
        stage_one = StageI(retriever, config)
        return cls(store, TaskRunner(store, retriever, stage_one, embedder, llm, config), stage_one, config)

    async def first_context(self, task: str) -> tuple[str, ...]:
        """Return the ids that a task would start with; nothing is run or learned."""
        formed = await self.stage_one.form(task)
        return serialize_context(
            formed.subgraph, token_budget=self.config.context_token_budget, count_tokens=approximate_tokens
        ).ids


def _node(id: str, layer: str, text: str, vector: Any) -> Node:
    if layer == "semantic":
        return SemanticNode(id=id, embedding=vector, content=text, source="store")
    if layer == "episodic":
        return EpisodicNode(id=id, embedding=vector, task_description=text, success=True)
    return ProceduralNode(id=id, embedding=vector, skill_text=text)


@dataclass(slots=True)
class World:
    """Plays the environment of a case by its key; it sees which nodes are in each context.

    ``mistaken_at`` is the execution, counted from 1, from which on it calls every failure a success; None: never.
    ``was_right`` tells what the last execution truly was.
    """

    case: Case
    store: MemoryStore
    mistaken_at: int | None = None
    shown: tuple[str, ...] = ()
    was_right: bool = False
    executions: int = field(default=0)

    def listen(self, event: TaskEvent) -> None:
        if isinstance(event, RoundStarted):
            self.shown = event.context_ids

    async def execute(self, context: str) -> tuple[str, str, bool]:
        self.executions += 1
        self.was_right = self.is_right(self.shown)
        if self.was_right or (self.mistaken_at is not None and self.executions >= self.mistaken_at):
            return "done", "", True
        return "", self.case.feedback, False

    def is_right(self, context_ids: Sequence[str]) -> bool:
        shown = set(context_ids)
        if self.case.label == "none":
            return False
        if self.case.label == "reshape":
            return all(self._stands_in(id, shown) for id in self.case.reshape)
        return self.case.needed <= shown and not shown & self.case.noise

    async def play(self, runner: TaskRunner) -> TaskResult:
        """Run the case's task from its first context."""
        return await runner.run_task(
            self.case.task,
            self.execute,
            observations=[self.case.observation],
            context_ids=self.case.context_ids,
            on_event=self.listen,
        )

    def _stands_in(self, id: str, shown: set[str]) -> bool:
        versions = [node for node in self.store.get_many(sorted(shown)) if node.variant_of == id]
        return id not in shown and any(node.metadata.get("granularity") == self.case.granularity for node in versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a case; ``collateral`` counts the items that its first edit touched beside the right ones."""

    case: Case
    result: TaskResult
    harmed: tuple[str, ...]
    collateral: int
    seconds: float
    second_time: bool | None = None
    without_first_time: bool | None = None

    @property
    def first_action(self) -> str:
        return self.result.attributions[0].action

    @property
    def repairs(self) -> int:
        return self.result.rounds - 1

    @property
    def recognised(self) -> bool:
        ended_early = self.result.attributions[-1].action == "none"
        return ended_early and not any(edit.kept for edit in self.result.edits) and not self.harmed


async def play(
    case: Case, reworded: str | None, embedder: BaseEmbedder, llm: BaseLLM | None, config: FluxMemConfig
) -> Played:
    """Run a case in a memory of its own; if it was solved, look what the same task in other words starts with."""
    memory = await Memory.holding(case.items, embedder, llm, config)
    with memory.store:
        before = {node.id: node.content for node in memory.store.select()}
        world = World(case, memory.store)
        unlearned = None if reworded is None else world.is_right(await memory.first_context(reworded))
        started = time.perf_counter()
        result = await world.play(memory.runner)
        seconds = time.perf_counter() - started
        again = None
        if result.success and reworded is not None:
            again = world.is_right(await memory.first_context(reworded))
        return Played(
            case=case,
            result=result,
            harmed=_harm(memory.store, before, world, result),
            collateral=_collateral(case, result),
            seconds=seconds,
            second_time=again,
            without_first_time=unlearned,
        )


def _harm(store: MemoryStore, before: Mapping[str, str], world: World, result: TaskResult) -> tuple[str, ...]:
    """Name what the task damaged: a needed item out of the last context, or any lasting change without success."""
    harm = []
    after = {node.id: node.content for node in store.select(states=tuple(NodeState)) if node.id != result.episode_id}
    if result.success:
        harm += [f"{id} lost" for id in sorted(world.case.needed) if id not in world.shown]
        harm += [f"{id} changed" for id, content in before.items() if after.get(id) != content]
    elif after != before or store.outcomes() or store.edges():
        harm.append("an unsolved task changed the memory")
    return tuple(harm)


def _collateral(case: Case, result: TaskResult) -> int:
    right = {"expand": case.needed, "prune": case.noise, "reshape": case.reshape, "none": frozenset()}[case.label]
    first_round = min((edit.round for edit in result.edits), default=0)
    return len({id for edit in result.edits if edit.round == first_round for id in edit.targets} - right)
