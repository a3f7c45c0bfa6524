"""Measure Stage II on labelled failures: attribution, repairs needed, rounds, harm.

Each line of the data file is a case: a store of items, the ids of the first context, a task, an observation, feedback,
and the key (label, needed, noise and reshape ids, granularity). The case is loaded into a memory of its own and played:
the step succeeds once the context is right by the key. The same feedback comes back each time it is not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxmem_local.agent.builder import build_embedder, build_llm
from fluxmem_local.agent.results import RoundStarted, TaskEvent, TaskResult
from fluxmem_local.agent.tasks import TaskRunner
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import EpisodicNode, Node, ProceduralNode, SemanticNode
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.retrieval import Retriever
from fluxmem_local.stages.formation import StageI
from fluxmem_local.types import NodeState

LABELS = ("expand", "prune", "reshape", "none")
REPAIRS = (1, 2, 3, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    case: dict[str, Any]
    result: TaskResult
    harmed: tuple[str, ...]
    seconds: float

    @property
    def first_action(self) -> str:
        return self.result.attributions[0].action

    @property
    def recognised(self) -> bool:
        ended_early = self.result.attributions[-1].action == "none"
        return ended_early and not any(edit.kept for edit in self.result.edits) and not self.harmed


def _node(item: dict[str, str], vector: Any) -> Node:
    common: dict[str, Any] = {"id": item["id"], "embedding": vector}
    if item["layer"] == "semantic":
        return SemanticNode(content=item["text"], source="store", **common)
    if item["layer"] == "episodic":
        return EpisodicNode(task_description=item["text"], success=True, **common)
    return ProceduralNode(skill_text=item["text"], **common)


class World:
    """Plays the environment of one case by its key; it sees which nodes are in each context."""

    def __init__(self, case: dict[str, Any], store: MemoryStore) -> None:
        self.case = case
        self.store = store
        self.shown: tuple[str, ...] = ()

    def listen(self, event: TaskEvent) -> None:
        if isinstance(event, RoundStarted):
            self.shown = event.context_ids

    async def execute(self, context: str) -> tuple[str, str, bool]:
        solved = self._is_right()
        return ("done" if solved else ""), ("" if solved else self.case["feedback"]), solved

    def _is_right(self) -> bool:
        label, shown = self.case["label"], set(self.shown)
        if label == "none":
            return False
        if label == "reshape":
            return all(self._stands_in(id, shown) for id in self.case["reshape_ids"])
        return set(self.case["needed_ids"]) <= shown and not shown & set(self.case["noise_ids"])

    def _stands_in(self, id: str, shown: set[str]) -> bool:
        versions = [node for node in self.store.get_many(sorted(shown)) if node.variant_of == id]
        return id not in shown and any(
            node.metadata.get("granularity") == self.case["target_granularity"] for node in versions
        )


async def play(case: dict[str, Any], embedder: BaseEmbedder, llm: BaseLLM | None, config: FluxMemConfig) -> Played:
    vectors = await embedder.embed_batch([item["text"] for item in case["store"]])
    with MemoryStore.open(None, dimension=embedder.dimension, fingerprint=embedder.fingerprint) as store:
        with store.transaction() as transaction:
            transaction.add_nodes([_node(item, vector) for item, vector in zip(case["store"], vectors, strict=True)])
        before = {node.id: node.content for node in store.select()}
        retriever = Retriever(store, embedder, llm, config)
        runner = TaskRunner(store, retriever, StageI(retriever, config), embedder, llm, config)
        world = World(case, store)
        started = time.perf_counter()
        result = await runner.run_task(
            case["task"],
            world.execute,
            observations=[case["observation"]],
            context_ids=case["context_ids"],
            on_event=world.listen,
        )
        seconds = time.perf_counter() - started
        return Played(case=case, result=result, harmed=_harm(store, before, world, result), seconds=seconds)


def _harm(store: MemoryStore, before: dict[str, str], world: World, result: TaskResult) -> tuple[str, ...]:
    """Name what the task damaged: a needed item out of the last context, or any lasting change without success."""
    harm = []
    after = {node.id: node.content for node in store.select(states=tuple(NodeState)) if node.id != result.episode_id}
    if result.success:
        harm += [f"{id} lost" for id in world.case["needed_ids"] if id not in world.shown]
        harm += [f"{id} changed" for id, content in before.items() if after.get(id) != content]
    elif after != before or store.outcomes() or store.edges():
        harm.append("an unsolved task changed the memory")
    return tuple(harm)


def report(played: list[Played]) -> dict[str, Any]:
    by_label: dict[str, Any] = {}
    for label in LABELS:
        cases = [each for each in played if each.case["label"] == label]
        if not cases:
            continue
        row: dict[str, Any] = {
            "cases": len(cases),
            "attribution_accuracy": sum(each.first_action == label for each in cases) / len(cases),
            "attributed_as": dict(Counter(each.first_action for each in cases)),
            "mean_executions": sum(each.result.rounds for each in cases) / len(cases),
            "harm": sum(bool(each.harmed) for each in cases),
        }
        if label == "none":
            row["recognised"] = sum(each.recognised for each in cases) / len(cases)
        else:
            for limit in REPAIRS:
                solved = sum(each.result.success and each.result.rounds - 1 <= limit for each in cases)
                row[f"solved_within_{limit}"] = solved / len(cases)
        by_label[label] = row
    connection = [each for each in played if each.case["label"] in ("expand", "prune")]
    return {
        "cases": len(played),
        "attribution_accuracy": sum(each.first_action == each.case["label"] for each in played) / len(played),
        "connection_solved_within_5": sum(each.result.success and each.result.rounds <= 6 for each in connection)
        / max(1, len(connection)),
        "harm": sum(bool(each.harmed) for each in played),
        "seconds_per_case": sum(each.seconds for each in played) / len(played),
        "by_label": by_label,
        "by_case": [
            {
                "id": each.case["id"],
                "label": each.case["label"],
                "first_action": each.first_action,
                "solved": each.result.success,
                "executions": each.result.rounds,
                "harm": list(each.harmed),
                "errors": sorted({attribution.error for attribution in each.result.attributions} - {""}),
            }
            for each in played
        ],
    }


def show(figures: dict[str, Any]) -> None:
    print(f"{'label':<9}{'n':>4}{'acc.':>7}{'<=1':>7}{'<=2':>7}{'<=3':>7}{'<=5':>7}{'rounds':>8}{'harm':>6}")
    for label, row in figures["by_label"].items():
        if label == "none":
            solved = f"recognised {row['recognised']:>17.2f}"
        else:
            solved = "".join(f"{row[f'solved_within_{limit}']:>7.2f}" for limit in REPAIRS)
        print(
            f"{label:<9}{row['cases']:>4}{row['attribution_accuracy']:>7.2f}{solved}"
            f"{row['mean_executions']:>8.2f}{row['harm']:>6}"
        )
    print(
        f"attribution accuracy {figures['attribution_accuracy']:.2f}, expand and prune solved within 5 repairs "
        f"{figures['connection_solved_within_5']:.2f}, harm {figures['harm']}, "
        f"{figures['seconds_per_case']:.2f} s a case"
    )


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="JSON Lines of labelled failures")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--llm", default="none", help="a language model's name, or 'none' for the rules alone")
    arguments = parser.parse_args()
    lines = arguments.data.read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines if line.strip()]
    config = FluxMemConfig(llm_model=arguments.llm)
    embedder = build_embedder(config)
    if embedder is None:
        raise SystemExit("the benchmark needs an embedder; leave FLUXMEM_EMBEDDING_MODEL at its default")
    llm = build_llm(config)
    played = []
    for number, case in enumerate(cases, 1):
        played.append(await play(case, embedder, llm, config))
        print(f"\r{number}/{len(cases)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    figures = {"llm": arguments.llm, **report(played)}
    show(figures)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
