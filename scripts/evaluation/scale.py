"""The stages of ``bench_scale.py``: make the data, bare hnswlib, load, serve, steps."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluxmem_local import FluxMemAgent
from fluxmem_local.graph import EpisodicNode, GroundEdge, SemanticNode
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import FloatArray, Layer, Scope

from .scale_data import DIMENSION, make_corpus

__all__ = ["DIMENSION", "bare", "load", "make", "percentile", "serve", "size_of", "steps"]

_NUM_QUERIES = 400
_NUM_ADDS = 400
_NUM_STEPS = 40
_TOP_K = 10
_BATCH = 10_000
_NUM_SCOPES = 100
_EPISODES = (10, 10_000)


class Given(BaseEmbedder):
    """Knows the vectors of some texts."""

    dimension = DIMENSION
    fingerprint = "given vectors"

    def __init__(self, texts: Sequence[str], vectors: FloatArray) -> None:
        self._vectors = dict(zip(texts, vectors, strict=True))

    async def embed_text(self, text: str) -> FloatArray:
        return self._vectors[text]

    async def embed_batch(self, texts: Sequence[str]) -> FloatArray:
        return np.stack([self._vectors[text] for text in texts])


def make(count: int, data: Path) -> None:
    """Write facts and queries, and the true neighbours of the queries, found by comparing with every fact.

    The last ``_NUM_ADDS`` facts come on top of ``count``: they are added one by one later.
    """
    corpus = make_corpus(count + 2 * _NUM_ADDS, _NUM_QUERIES)
    np.save(data / "vectors.npy", corpus.vectors[:count])
    np.save(data / "more.npy", corpus.vectors[count:])
    np.save(data / "queries.npy", corpus.query_vectors)
    truth = np.empty((_NUM_QUERIES, _TOP_K), dtype=np.int64)
    for start in range(0, _NUM_QUERIES, 50):
        similar = corpus.query_vectors[start : start + 50] @ corpus.vectors[:count].T
        best = np.argpartition(-similar, _TOP_K, axis=1)[:, :_TOP_K]
        truth[start : start + len(best)] = best
    np.save(data / "truth.npy", truth)
    texts = {"facts": corpus.texts[:count], "more": corpus.texts[count:], "queries": corpus.queries}
    (data / "texts.json").write_text(json.dumps(texts), encoding="utf-8")


def bare(data: Path) -> dict[str, float]:
    """Time hnswlib alone with the memory's parameters and threads."""
    import hnswlib

    vectors = np.load(data / "vectors.npy")
    graph = hnswlib.Index(space="ip", dim=DIMENSION)
    graph.init_index(len(vectors), M=16, ef_construction=200, random_seed=0)
    started, worked = time.perf_counter(), time.process_time()
    graph.add_items(vectors, np.arange(len(vectors)), num_threads=1)
    return {
        "bare_per_s": len(vectors) / (time.perf_counter() - started),
        "bare_cpu_ms": 1000 * (time.process_time() - worked) / len(vectors),
    }


def load(data: Path, memory: Path) -> dict[str, float]:
    """Load all facts in batches, each durable, and search once; then episodes and edges, and close."""
    texts, vectors = _texts(data)["facts"], np.load(data / "vectors.npy", mmap_mode="r")
    query = np.load(data / "queries.npy")[0]
    with MemoryStore.open(memory, dimension=DIMENSION, fingerprint=Given.fingerprint) as store:
        started, worked = time.perf_counter(), time.process_time()
        for start in range(0, len(texts), _BATCH):
            nodes = [
                SemanticNode(
                    id=f"fact-{number}",
                    content=texts[number],
                    embedding=vectors[number],
                    scope=Scope(user=f"user-{number % _NUM_SCOPES}"),
                )
                for number in range(start, min(start + _BATCH, len(texts)))
            ]
            with store.transaction() as transaction:
                transaction.add_nodes(nodes)
        store.nearest(Layer.SEMANTIC, query, _TOP_K)
        store.lexical(Layer.SEMANTIC, texts[0], _TOP_K)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        _add_episodes(store, len(texts) // 10, len(texts), vectors)
        store.nearest(Layer.EPISODIC, query, 1)
    return {
        "bulk_per_s": len(texts) / seconds,
        "bulk_cpu_ms": 1000 * cpu_seconds / len(texts),
        "load_rss_bytes": peak,
    }


def serve(data: Path, memory: Path) -> dict[str, float]:
    """Open, search, add; all in a process that holds no other copy of the data."""
    texts, queries, more = _texts(data), np.load(data / "queries.npy"), np.load(data / "more.npy")
    asked, extra = texts["queries"], texts["more"]
    del texts
    embedder = Given([*asked, *extra], np.concatenate([queries, more]))
    return asyncio.run(_serve(embedder, memory, asked, queries, extra, np.load(data / "truth.npy")))


async def _serve(
    embedder: Given, memory: Path, asked: list[str], queries: FloatArray, extra: list[str], truth: Any
) -> dict[str, float]:
    base = _resident()
    started = time.perf_counter()
    agent = FluxMemAgent(None, embedder, path=memory)
    await agent.retrieve(asked[0], top_k=_TOP_K, verify=False)
    found = {"open_s": time.perf_counter() - started}
    worked = time.process_time()
    everything = await _timed(agent, asked)
    found["search_cpu_ms"] = 1000 * (time.process_time() - worked) / len(asked)
    found["rss_bytes"] = float(_resident() - base)
    found |= {"search_ms": statistics.median(everything), "search_p99_ms": percentile(everything, 99)}
    own = {f"user-{number}" for number in range(_NUM_SCOPES)}
    scoped = await _timed(agent, asked, [Scope(user=user) for user in sorted(own)])
    found["scoped_ms"] = statistics.median(scoped)
    found |= _nearest(agent.store, queries, truth)
    found["lexical_ms"] = statistics.median(_lexical(agent.store, asked))
    adds = []
    for text in extra[:_NUM_ADDS]:
        started = time.perf_counter()
        await agent.add_knowledge(text)
        adds.append(time.perf_counter() - started)
    found |= {"adds_per_s": len(adds) / sum(adds), "add_ms": 1000 * statistics.median(adds)}
    found |= await _busy(agent, asked, extra[_NUM_ADDS:])
    agent.close()
    return found


async def _timed(agent: FluxMemAgent, asked: list[str], scopes: Sequence[Scope | None] = (None,)) -> list[float]:
    times = []
    for place, text in enumerate(asked):
        started = time.perf_counter()
        await agent.retrieve(text, top_k=_TOP_K, verify=False, scope=scopes[place % len(scopes)])
        times.append(1000 * (time.perf_counter() - started))
    return times


async def _busy(agent: FluxMemAgent, asked: list[str], extra: list[str]) -> dict[str, float]:
    """Search while another thread adds facts through the same agent, one after the other."""
    added, done = [], threading.Event()

    def add() -> None:
        for text in extra:
            if done.is_set():
                return
            asyncio.run(agent.add_knowledge(text))
            added.append(time.perf_counter())

    thread = threading.Thread(target=add)
    started = time.perf_counter()
    thread.start()
    times: list[float] = []
    while thread.is_alive():
        times += await _timed(agent, [asked[len(times) % len(asked)]])
    done.set()
    thread.join()
    return {
        "busy_search_ms": statistics.median(times),
        "busy_search_p99_ms": percentile(times, 99),
        "busy_adds_per_s": len(added) / (added[-1] - started),
    }


def _nearest(store: MemoryStore, queries: FloatArray, truth: Any) -> dict[str, float]:
    times, right = [], 0
    for query, true in zip(queries, truth, strict=True):
        started = time.perf_counter()
        hits = store.nearest(Layer.SEMANTIC, query, _TOP_K)
        times.append(1000 * (time.perf_counter() - started))
        right += len({id for id, _ in hits} & {f"fact-{number}" for number in true})
    return {
        "nearest_ms": statistics.median(times),
        "nearest_p99_ms": percentile(times, 99),
        "recall": right / truth.size,
    }


def _lexical(store: MemoryStore, asked: list[str]) -> list[float]:
    times = []
    for text in asked:
        started = time.perf_counter()
        store.lexical(Layer.SEMANTIC, text, _TOP_K)
        times.append(1000 * (time.perf_counter() - started))
    return times


def steps(data: Path, folder: Path) -> dict[str, float]:
    """Time a task of one step after few and after many past tasks, less the time in ``nearest``."""
    texts, vectors = _texts(data), np.load(data / "vectors.npy", mmap_mode="r")
    embedder = Given(texts["queries"], np.load(data / "queries.npy"))
    found = {}
    for count in _EPISODES:
        memory = folder / f"steps-{count}"
        with MemoryStore.open(memory, dimension=DIMENSION, fingerprint=Given.fingerprint) as store:
            with store.transaction() as transaction:
                transaction.add_nodes(
                    [
                        SemanticNode(id=f"fact-{number}", content=texts["facts"][number], embedding=vectors[number])
                        for number in range(1000)
                    ]
                )
            _add_episodes(store, count, 1000, vectors)
        times = asyncio.run(_steps(embedder, memory, texts["queries"]))
        found[f"step_{count}_ms"] = statistics.median(times)
    return found


async def _steps(embedder: Given, memory: Path, asked: list[str]) -> list[float]:
    searching = [0.0]
    plain = MemoryStore.nearest

    def nearest(self: MemoryStore, *values: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return plain(self, *values, **named)
        finally:
            searching[0] += time.perf_counter() - started

    async def work(_context: str) -> tuple[str, str, bool]:
        return "done", "", True

    MemoryStore.nearest = nearest  # type: ignore[method-assign]
    times = []
    try:
        async with FluxMemAgent(None, embedder, path=memory) as agent:
            for text in asked[: 5 + _NUM_STEPS]:
                searching[0] = 0.0
                started = time.perf_counter()
                await agent.run_task(text, work)
                times.append(1000 * (time.perf_counter() - started - searching[0]))
    finally:
        MemoryStore.nearest = plain  # type: ignore[method-assign]
    return times[5:]


def _add_episodes(store: MemoryStore, count: int, num_edges: int, vectors: FloatArray) -> None:
    """Add episodes, each on a fact's subject, and spread edges to them over the facts that are there."""
    random = np.random.default_rng(1)
    for start in range(0, count, _BATCH):
        numbers = range(start, min(start + _BATCH, count))
        noise = random.standard_normal((len(numbers), DIMENSION)).astype(np.float32) * 0.02
        near = random.integers(0, len(vectors) if num_edges >= len(vectors) else num_edges, len(numbers))
        nodes = [
            EpisodicNode(
                id=f"episode-{number}",
                content=f"past task {number}",
                task_description=f"past task {number}",
                trajectory=(("seen", "done"),),
                success=True,
                status="succeeded",
                embedding=vectors[int(fact)] + noise[place],
            )
            for place, (number, fact) in enumerate(zip(numbers, near, strict=True))
        ]
        with store.transaction() as transaction:
            transaction.add_nodes(nodes)
    for start in range(0, num_edges, _BATCH):
        edges = [
            GroundEdge(source_id=f"fact-{number}", target_id=f"episode-{number % count}")
            for number in range(start, min(start + _BATCH, num_edges))
        ]
        with store.transaction() as transaction:
            transaction.add_edges(edges)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile of measured values."""
    return float(np.percentile(values, percent))


def size_of(folder: Path) -> int:
    """Return the bytes of all files of a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _texts(data: Path) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = json.loads((data / "texts.json").read_text(encoding="utf-8"))
    return texts


def _resident() -> int:
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
