"""What solved cases leave behind: in one memory that all of them share, and in memories that were told wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM

from .repair import Case, Memory, World

__all__ = ["live_together", "live_with_mistakes"]

# How often each task comes again in a life, in turn as it was told first and as it was reworded.
VISITS = 8


async def live_together(
    cases: Sequence[Case],
    rewordings: Mapping[str, str],
    embedder: BaseEmbedder,
    llm: BaseLLM | None,
    config: FluxMemConfig,
) -> dict[str, Any]:
    """Solve all cases one after another in one memory, and after each look at the first try of every other one.

    Items with the same text are one, so cases of a domain share theirs.
    """
    names: dict[tuple[str, str], str] = {}
    for case in cases:
        for item in case.items.values():
            names.setdefault(item, f"i{len(names)}")
    named = [case.named(names) for case in cases]
    memory = await Memory.holding({id: item for item, id in names.items()}, embedder, llm, config)
    lost: list[str] = []
    won: list[str] = []
    solved: list[Case] = []
    at_once: list[bool] = []
    with memory.store:

        async def first_tries() -> dict[str, bool]:
            worlds = [World(case, memory.store) for case in named]
            return {w.case.id: w.is_right(await memory.first_context(w.case.task)) for w in worlds}

        async def second_time(case: Case) -> bool:
            return World(case, memory.store).is_right(await memory.first_context(rewordings[case.id]))

        start = before = await first_tries()
        for case in named:
            world = World(case, memory.store)
            result = await world.play(memory.runner)
            after = await first_tries()
            others = [id for id in after if id != case.id]
            lost += [f"{id} after {case.id}" for id in others if before[id] and not after[id]]
            won += [f"{id} after {case.id}" for id in others if after[id] and not before[id]]
            before = after
            if result.success and case.id in rewordings:
                solved.append(case)
                at_once.append(await second_time(case))
        at_the_end = [await second_time(case) for case in solved]
        sound = memory.store.verify().ok
    return {
        "items": len(names),
        "solved": len(solved),
        "second_time_at_once": _share(at_once),
        "second_time_at_the_end": _share(at_the_end),
        "first_try_at_the_start": sum(start.values()),
        "first_try_at_the_end": sum(before.values()),
        "others_lost": lost,
        "others_won": won,
        "verified": sound,
    }


async def live_with_mistakes(
    cases: Sequence[Case],
    rewordings: Mapping[str, str],
    embedder: BaseEmbedder,
    llm: BaseLLM | None,
    config: FluxMemConfig,
    *,
    share: float,
    seed: int,
) -> dict[str, Any]:
    """Let each task come ``VISITS`` times, and in a ``share`` of its runs call a failure a success.

    A mistaken run takes its first or its second failure for a success, so that a wrong repair may be kept. After it,
    the tasks are counted until one starts with the right context again, the one that does included.
    """
    chance = random.Random(seed)
    tasks_to_recover: list[int] = []
    never = mistaken_runs = 0
    right = [0] * VISITS
    played = [case for case in cases if case.label != "none"]
    for case in played:
        memory = await Memory.holding(case.items, embedder, llm, config)
        wordings = [case.task, rewordings.get(case.id, case.task)]
        waiting: int | None = None
        with memory.store:
            for visit in range(VISITS):
                mistaken = chance.random() < share
                world = World(case, memory.store, mistaken_at=chance.choice((1, 2)) if mistaken else None)
                task = wordings[visit % 2]
                starts = case.context_ids if visit == 0 else await memory.first_context(task)
                starts_right = world.is_right(starts)
                right[visit] += starts_right
                if waiting is not None:
                    waiting += 1
                    if starts_right:
                        tasks_to_recover.append(waiting)
                        waiting = None
                result = await memory.runner.run_task(
                    task,
                    world.execute,
                    context_ids=case.context_ids if visit == 0 else None,
                    observations=[case.observation] if visit == 0 else None,
                    on_event=world.listen,
                )
                if result.success and not world.was_right:
                    mistaken_runs += 1
                    waiting = 0
            never += waiting is not None and waiting > 0
    return {
        "share": share,
        "seed": seed,
        "runs": VISITS * len(played),
        "mistaken_runs": mistaken_runs,
        "recovered": len(tasks_to_recover),
        "tasks_to_recover": {
            "mean": sum(tasks_to_recover) / max(1, len(tasks_to_recover)),
            "most": max(tasks_to_recover, default=0),
            "at_the_first": sum(tasks == 1 for tasks in tasks_to_recover),
        },
        "not_recovered": never,
        "first_try_by_visit": [count / max(1, len(played)) for count in right],
    }


def _share(outcomes: Sequence[bool]) -> float:
    return sum(outcomes) / max(1, len(outcomes))
