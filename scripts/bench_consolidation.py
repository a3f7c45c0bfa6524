#!/usr/bin/env python3
"""Measures consolidation: PEMS of many skills, a first run and one with few news, and what settled skills save.

Everything runs without a language model and with the hashing embedder of the tests, so that only the package's own work
is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable

import numpy as np

from fluxmem_local import FluxMemAgent
from fluxmem_local.metrics import graph_pems, skill_pems
from fluxmem_local.testing import HashEmbedder

PLACES = (
    *("archive", "bakery", "canal", "desert", "engine", "forest", "garden", "harbour", "island", "jungle"),
    *("kiosk", "library", "museum", "nursery", "orchard", "palace", "quarry", "railway", "stadium", "theatre"),
)
VERBS = (
    *("bake", "carry", "count", "dig", "drain", "fill", "fold", "glue", "heat", "lift"),
    *("mark", "paint", "pour", "press", "scan", "shake", "sort", "trim", "wash", "weigh"),
)


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Median of the times that some work takes."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def pems(num_skills: int) -> float:
    """Milliseconds that the PEMS of all skills, and of their graph, takes."""
    random = np.random.default_rng(0)
    rates, shifts = random.random(num_skills), random.random(num_skills)
    tokens = random.integers(3, 2000, num_skills)
    return milliseconds(lambda: graph_pems(skill_pems(rates, tokens, shifts)), 50)


async def lived(agent: FluxMemAgent, kind: int, number: int) -> None:
    """Record a task of six to ten steps, each kind of task with verbs of its own."""
    place, thing = PLACES[kind], f"crate{number}"
    steps = []
    for step in range(6 + kind % 5):
        verb = VERBS[(kind + 3 * step) % len(VERBS)]
        seen = f"you stand in the {place}, part {step + 1}; {thing} is in front of you, the list tells what to do"
        steps.append((seen, f"{verb} {thing} by the {place} list"))
    await agent.record_episode(f"{VERBS[kind]} {thing} in the {place}", steps, True, "signed")


async def run(episodes: int) -> None:
    """Print the times of consolidation and the tokens of a context."""
    each = episodes // len(PLACES)
    async with FluxMemAgent(None, HashEmbedder(256)) as agent:
        for number in range(each):
            for kind in range(len(PLACES)):
                await lived(agent, kind, number)
        task = f"check crate{each + 1} in the {PLACES[0]} of the {PLACES[0]} district"
        count = len((await agent.context(task)).split())
        began = time.perf_counter()
        report = await agent.consolidate()
        first = time.perf_counter() - began
        began = time.perf_counter()
        again = await agent.consolidate()
        nothing_new = time.perf_counter() - began
        await lived(agent, 0, each)
        began = time.perf_counter()
        news = await agent.consolidate()
        with_news = time.perf_counter() - began
        after = len((await agent.context(task)).split())
    worked = len(again.induced_skills) + len(again.updated_skills)
    settled = list(report.tokens_saved.values())
    print(f"{len(PLACES) * each} episodes, {len(report.induced_skills)} skills: {first:.2f} s")
    print(f"again, nothing new, {worked} skills worked on: {nothing_new:.2f} s")
    print(f"again, one new episode, {len(news.updated_skills)} skill worked on: {with_news:.2f} s")
    print(f"context of a new task: {count} words with episodes, {after} with the skill in their place")
    if settled:
        print(f"tokens saved by each of {len(settled)} settled skills: {statistics.mean(settled):.0f}")


def main() -> None:
    """Parse the arguments and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, default=10_000, help="skills whose PEMS is computed (default: 10000)")
    parser.add_argument("--episodes", type=int, default=1000, help="episodes to consolidate (default: 1000)")
    given = parser.parse_args()
    print(f"PEMS of {given.skills} skills without embedding: {pems(given.skills):.2f} ms")
    asyncio.run(run(given.episodes))


if __name__ == "__main__":
    main()
