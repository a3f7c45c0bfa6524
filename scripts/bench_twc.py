"""Measure what a memory is worth in TextWorld Commonsense: four misplaced objects of a small home go where they belong.

One fixed policy plays every arm over the same games; only the memory differs. The memory lived 70 games of the train
fold (50 by their solution, 20 at random), each as tasks of one object; the folds' objects are disjoint.

    none, none+retry    no memory; once an object, or up to six times like those with repair
    facts, facts+retry  each success as a fact ("gray coat belongs in wardrobe"), with Stage I, and with Stage II
    stage1, stage1+2    the episodes, with Stage I, and with Stage II
    stage1+3, all       the episodes and the skills that were consolidated from them

The memory is restored before each game. ``online`` keeps the test games, ``learning`` takes 0 to 200 training games,
and ``ablations`` takes parts of the skills away. Needs the extra ``bench`` and Java 17. Tuned on the dev fold alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from evaluation.arms import Played, figures, show
from evaluation.remembering import Remembering
from evaluation.twc import Home, Lesson, is_gold, load_lessons, record_lessons, save_lessons
from evaluation.twc_games import Arm, Table, teach

from fluxmem_local import FluxMemConfig
from fluxmem_local.agent.builder import build_embedder

SEED_BASES = {"train": 1000, "dev": 10_000, "test": 20_000}
TRAINING_GAMES = 70
SIZES = (0, 5, 10, 25, 50, 100, 200)
PARTS = ("arms", "online", "learning", "ablations")
COMPARED = (
    ("all", "none+retry"),
    ("all", "facts+retry"),
    ("all", "stage1+2"),
    ("stage1+3", "none"),
    ("stage1+3", "facts"),
    ("stage1+3", "stage1"),
)
# Games of one job: small enough to keep all workers busy to the end.
GAMES_A_JOB = 20


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory that is to be taught: by how many training games, and how."""

    games: int = TRAINING_GAMES
    as_facts: bool = False
    consolidated: bool = False
    without: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """An arm before its memory is made."""

    memory: Memory | None
    retries: bool = False
    online: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    arm: Arm
    fold: str
    seeds: tuple[int, ...]
    limit: int


class Worker:
    """What each process keeps: a home, an embedder and what it remembers."""

    table: Table

    @classmethod
    def start(cls, vectors: Path) -> None:
        # One thread a process: there are as many processes as cores.
        os.environ["OMP_NUM_THREADS"] = "1"
        cls.table = Table(Home().__enter__(), embedder_with(vectors), FluxMemConfig())

    @classmethod
    def play(cls, job: Job) -> list[Played]:
        return asyncio.run(cls.table.play(job.arm, job.fold, job.seeds, job.limit))


def embedder_with(vectors: Path) -> Remembering:
    embedder = build_embedder(FluxMemConfig())
    if embedder is None:
        raise SystemExit("the benchmark needs an embedder; leave FLUXMEM_EMBEDDING_MODEL at its default")
    remembering = Remembering(embedder)
    if vectors.exists():
        remembering.load(vectors)
    return remembering


def lessons_in(path: Path) -> list[Lesson]:
    """Read the recorded training games, or play and record them."""
    if not path.exists():
        with Home() as home:
            save_lessons(path, record_lessons(home, max(SIZES)))
    return load_lessons(path)


def describe(lessons: Sequence[Lesson]) -> dict[str, float]:
    """Say how the training games went: the share of objects that were put right, by kind of game."""
    won = {gold: [each.success for each in lessons if is_gold(each.game) == gold] for gold in (True, False)}
    solved = {each.game for each in lessons} - {each.game for each in lessons if not each.success}
    return {
        "games": len({each.game for each in lessons}),
        "tasks": len(lessons),
        "gold_success": sum(won[True]) / max(1, len(won[True])),
        "random_success": sum(won[False]) / max(1, len(won[False])),
        "games_without_failure": len(solved),
    }


def arms_of(parts: Sequence[str]) -> dict[str, Plan]:
    """Name the arms of some parts of the benchmark, and what each plays with."""
    plans: dict[str, Plan] = {}
    if "arms" in parts:
        plans |= {"none": Plan(None), "none+retry": Plan(None, retries=True)}
        for name, retried, memory in (
            ("facts", "facts+retry", Memory(as_facts=True)),
            ("stage1", "stage1+2", Memory()),
            ("stage1+3", "all", Memory(consolidated=True)),
        ):
            plans |= {name: Plan(memory), retried: Plan(memory, retries=True)}
    if "online" in parts:
        plans["stage1+2 online"] = Plan(Memory(), retries=True, online=True)
        plans["all online"] = Plan(Memory(consolidated=True), retries=True, online=True)
    if "learning" in parts:
        for games in SIZES:
            plans[f"{games} games: episodes"] = Plan(Memory(games=games), retries=True)
            plans[f"{games} games: skills"] = Plan(Memory(games=games, consolidated=True), retries=True)
    if "ablations" in parts:
        for without in ("alignment", "cases", "pitfalls"):
            plans[f"all without {without}"] = Plan(Memory(consolidated=True, without=without), retries=True)
    return plans


async def make_memories(
    folder: Path, lessons: Sequence[Lesson], plans: Mapping[str, Plan], vectors: Path
) -> dict[str, Arm]:
    """Teach each memory that the plans ask for."""
    embedder, config = embedder_with(vectors), FluxMemConfig()
    made: dict[Memory | None, Path | None] = {None: None}
    for plan in plans.values():
        if plan.memory is not None and plan.memory not in made:
            made[plan.memory] = at = folder / f"memory{len(made)}"
            await teach(
                at,
                [each for each in lessons if each.game < plan.memory.games],
                embedder,
                config,
                as_facts=plan.memory.as_facts,
                consolidated=plan.memory.consolidated,
                without=plan.memory.without,
            )
    if embedder.vectors:
        embedder.save(vectors)
    return {
        name: Arm(memory=made[plan.memory], retries=plan.retries, online=plan.online) for name, plan in plans.items()
    }


def play_all(
    arms: Mapping[str, Arm],
    make_job: Callable[[str, Arm, tuple[int, ...]], Job],
    seeds: Sequence[int],
    vectors: Path,
    workers: int,
) -> dict[str, list[Played]]:
    jobs: list[Job] = []
    for name, arm in arms.items():
        size = len(seeds) if arm.online else GAMES_A_JOB
        jobs += [make_job(name, arm, tuple(seeds[at : at + size])) for at in range(0, len(seeds), size)]
    # Those that cannot be divided begin first.
    jobs.sort(key=lambda job: -len(job.seeds))
    # A started process would share this one's threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, Worker.start, (vectors,)) as pool:
        results = list(pool.map(Worker.play, jobs))
    played: dict[str, list[Played]] = {name: [] for name in arms}
    for job, games in zip(jobs, results, strict=True):
        played[job.name] += games
    return played


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fold", choices=tuple(SEED_BASES), default="dev", help="whose games are played")
    parser.add_argument("--seed-base", type=int, help="seed of the first game; the default is the fold's")
    parser.add_argument("--games", type=int, default=200, help="games an arm")
    parser.add_argument("--limit", type=int, default=30, help="actions a game")
    parser.add_argument("--parts", default="arms", help=f"what to measure, by commas: {', '.join(PARTS)}")
    parser.add_argument("--arms", help="only these of the measured arms, by commas")
    parser.add_argument("--episodes", type=Path, help="file of the recorded training games; made if it is not there")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    unknown = set(parts) - set(PARTS)
    if unknown:
        parser.error(f"--parts names {', '.join(sorted(unknown))}; known are {', '.join(PARTS)}")
    plans = arms_of(parts)
    if arguments.arms is not None:
        plans = {name: plans[name] for name in arguments.arms.split(",") if name in plans}
    if not plans:
        parser.error(f"--arms names none of {', '.join(arms_of(parts))}")
    started = time.perf_counter()
    base = SEED_BASES[arguments.fold] if arguments.seed_base is None else arguments.seed_base
    with tempfile.TemporaryDirectory(prefix="bench-twc-") as folder:
        at = Path(folder)
        lessons = lessons_in(arguments.episodes or at / "episodes.jsonl")
        training = describe([each for each in lessons if each.game < TRAINING_GAMES])
        arms = asyncio.run(make_memories(at, lessons, plans, at / "vectors.npz"))
        played = play_all(
            arms,
            lambda name, arm, seeds: Job(name, arm, arguments.fold, seeds, arguments.limit),
            range(base, base + arguments.games),
            at / "vectors.npz",
            arguments.workers,
        )
    measured = {
        "fold": arguments.fold,
        "seed_base": base,
        "limit": arguments.limit,
        "training": training,
        **figures(played, [pair for pair in COMPARED if set(pair) <= played.keys()]),
        "seconds": time.perf_counter() - started,
    }
    print(", ".join(f"{name} {value:.3g}" for name, value in training.items()))
    show(measured)
    print(f"{arguments.fold} fold from seed {base}, {arguments.limit} actions, {measured['seconds']:.0f} s")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
