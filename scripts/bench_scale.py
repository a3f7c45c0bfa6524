"""Cost of growth: adding facts one by one, searching, opening, memory; each size against the smallest in one run.

    .venv/bin/python scripts/bench_scale.py [--sizes 100,400,1600,6400,25600] [--json FILE]

Facts are sentences of random words around topics; vectors are a hash embedding of 384 dimensions, whose time is taken
out of every figure. Times are medians of single calls at the stated size, each of them durable on disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from rich.console import Console
from rich.table import Table

from fluxmem_local import FluxMemAgent
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import FloatArray

DIMENSION = 384
NUM_TIMED_ADDS = 100
NUM_SEARCHES = 50
NUM_TOPICS = 200
NUM_WORDS = 20_000
MAX_RATIO = 4.0


class TimedEmbedder(HashEmbedder):
    """Counts the seconds that embedding takes, so that they can be taken out."""

    def __init__(self) -> None:
        super().__init__(DIMENSION)
        self.seconds = 0.0

    async def embed_batch(self, texts: Sequence[str]) -> FloatArray:
        started = time.perf_counter()
        try:
            return await super().embed_batch(texts)
        finally:
            self.seconds += time.perf_counter() - started

    async def embed_text(self, text: str) -> FloatArray:
        started = time.perf_counter()
        try:
            return await super().embed_text(text)
        finally:
            self.seconds += time.perf_counter() - started


def make_facts(count: int, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    words = ["".join(generator.choices(ascii_lowercase, k=generator.randint(3, 9))) for _ in range(NUM_WORDS)]
    topics = [generator.sample(words, 40) for _ in range(NUM_TOPICS)]
    return [
        " ".join([*generator.choices(generator.choice(topics), k=8), *generator.choices(words, k=4), f"n{number}"])
        for number in range(count)
    ]


async def timed_ms(embedder: TimedEmbedder, call: Any) -> tuple[float, float]:
    """Await a call; milliseconds without embedding, and those of embedding."""
    embedder.seconds = 0.0
    started = time.perf_counter()
    await call
    seconds = time.perf_counter() - started
    return 1000 * (seconds - embedder.seconds), 1000 * embedder.seconds


async def measure(sizes: list[int], directory: Path) -> list[dict[str, float]]:
    embedder = TimedEmbedder()
    facts = make_facts(max(sizes) + NUM_SEARCHES)
    queries = [" ".join(fact.split()[:5]) for fact in random.Random(1).sample(facts, NUM_SEARCHES)]
    rows: list[dict[str, float]] = []
    done = 0
    for size in sizes:
        async with FluxMemAgent(None, embedder, path=directory) as agent:
            await agent.retrieve(queries[0], verify=False)
            adds: list[tuple[float, float]] = []
            started = time.perf_counter()
            embedding = 0.0
            first = done
            while done < size:
                adds.append(await timed_ms(embedder, agent.add_knowledge(facts[done])))
                embedding += embedder.seconds
                done += 1
            seconds = time.perf_counter() - started - embedding
            searches = [await timed_ms(embedder, agent.retrieve(query, verify=False)) for query in queries]
        started = time.perf_counter()
        async with FluxMemAgent(None, embedder, path=directory) as agent:
            opened = time.perf_counter() - started
            await agent.retrieve(queries[0], verify=False)
            first_search = time.perf_counter() - started
        rows.append(
            {
                "facts": size,
                "add_ms": statistics.median(own for own, _ in adds[-NUM_TIMED_ADDS:]),
                "add_mean_ms": 1000 * seconds / (size - first),
                "embed_ms": statistics.median(theirs for _, theirs in adds[-NUM_TIMED_ADDS:]),
                "search_ms": statistics.median(own for own, _ in searches),
                "open_ms": 1000 * opened,
                "open_and_search_ms": 1000 * first_search,
                "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,400,1600,6400,25600")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = sorted({int(part) for part in arguments.sizes.split(",")})
    with tempfile.TemporaryDirectory() as directory:
        rows = asyncio.run(measure(sizes, Path(directory) / "memory"))
    table = Table(title="Growth (medians; embedding apart)")
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(f"{value:,.0f}" if name == "facts" else f"{value:,.2f}" for name, value in row.items()))
    Console(width=140).print(table)
    ratios = {name: rows[-1][name] / rows[0][name] for name in ("add_ms", "add_mean_ms")}
    for name, ratio in ratios.items():
        print(f"{name} at {sizes[-1]} against {sizes[0]}: {ratio:.2f}x (allowed: under {MAX_RATIO:g}x)")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows, "ratios": ratios}, indent=2) + "\n", encoding="utf-8")
    return 0 if max(ratios.values()) < MAX_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
