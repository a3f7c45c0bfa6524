"""Two hundred calls at once on one agent: results as if one after another, threads and memory bounded."""

from __future__ import annotations

import asyncio
import os
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.testing import HashEmbedder

NUM_CALLS = 200
SUBJECTS = [f"subject{number}" for number in range(NUM_CALLS)]
# What asyncio.to_thread starts at most.
MOST_THREADS = min(32, (os.cpu_count() or 1) + 4)


def opened(folder: Path | None) -> FluxMemAgent:
    return FluxMemAgent(None, HashEmbedder(256), path=folder)


async def prepared(folder: Path | None) -> FluxMemAgent:
    agent = opened(folder)
    for subject in SUBJECTS:
        await agent.add_knowledge(f"{subject} is at {subject}-place", scope={"user": "ada"})
    return agent


async def asked(agent: FluxMemAgent, subject: str) -> Any:
    hits = await agent.retrieve(f"where is {subject}", top_k=1, scope={"user": "ada"})
    return [(hit.node.content, hit.signals["dense"]) for hit in hits]


async def told(agent: FluxMemAgent, subject: str) -> Any:
    # Every second one is stated twice at once.
    number = SUBJECTS.index(subject) // 2
    return await agent.add_knowledge(f"news {number} of the day", source=subject, scope={"user": "bob"})


def in_memory(agent: FluxMemAgent) -> Any:
    nodes = agent.store.select()
    return sorted((node.content, node.scope.user, getattr(node, "count", 0)) for node in nodes)


@pytest.mark.parametrize("durable", [False, True], ids=["in RAM", "in a folder"])
async def test_they_give_what_serial_calls_give(tmp_path: Path, durable: bool) -> None:
    serial = await prepared(tmp_path / "serial" if durable else None)
    if not durable:
        # Where the memory itself is in RAM it has to be bounded all the more; tracing takes its time.
        tracemalloc.start()
    expected = [await asked(serial, subject) for subject in SUBJECTS]
    for subject in SUBJECTS:
        await told(serial, subject)
    _, serial_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    agent = await prepared(tmp_path / "m" if durable else None)
    before, most, over = threading.active_count(), 0, asyncio.Event()

    async def watch() -> None:
        nonlocal most
        while not over.is_set():
            most = max(most, threading.active_count())
            await asyncio.sleep(0.001)

    watching = asyncio.create_task(watch())
    if not durable:
        tracemalloc.start()
    results = await asyncio.gather(
        *(asked(agent, subject) for subject in SUBJECTS), *(told(agent, subject) for subject in SUBJECTS)
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    over.set()
    await watching
    assert results[:NUM_CALLS] == expected
    ids = results[NUM_CALLS:]
    assert all(ids[place] == ids[place + 1] for place in range(0, NUM_CALLS, 2))
    assert len({id for (id,) in ids}) == NUM_CALLS // 2
    assert in_memory(agent) == in_memory(serial)
    assert agent.verify().problems == ()
    assert most <= max(before, 1) + MOST_THREADS
    assert len(agent.store.database._idle) <= 1 + MOST_THREADS
    # Some kilobytes a waiting call, and nothing that grows with their product.
    assert peak < serial_peak + NUM_CALLS * 2 * 64 * 1024
    for each in (agent, serial):
        each.close()
