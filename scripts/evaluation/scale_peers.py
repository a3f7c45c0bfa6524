"""Two other local vector memories on the data of ``bench_scale.py``, from an environment of their own.

Run by that environment's Python, a peer's stage needs nothing of this project but this file, and prints a line of JSON.
Each peer gets the vectors, ids and texts in batches, its index with the parameters that come nearest to ours, and the
queries one by one. It runs without a network where the kernel lets us take it away (``unshare``), telemetry off.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["PEERS", "compare"]

PEERS = ("chromadb", "lancedb")
_TOP_K = 10
_BATCH = 5000
_QUIET = {"ANONYMIZED_TELEMETRY": "False", "CHROMA_TELEMETRY": "False", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "1"}


def compare(python: Path | None, data: Path, ours: dict[str, float]) -> list[dict[str, Any]]:
    """Measure the peers that are there; the first row is ours, of the same data and run."""
    raw_mib = ours["rss_mib"] / ours["rss_ratio"]
    rows: list[dict[str, Any]] = [
        {
            "name": "fluxmem-local",
            "version": "",
            "load_per_s": ours["bulk_per_s"],
            "open_s": ours["open_s"],
            "search_ms": ours["nearest_ms"],
            "search_p99_ms": ours["nearest_p99_ms"],
            "recall": ours["recall"],
            "rss_mib": ours["rss_mib"],
            "disk_mib": ours["disk_ratio"] * raw_mib,
        }
    ]
    if python is None:
        print("no peers: name the Python of an environment with chromadb and lancedb by --peers-python")
        return rows
    for name in PEERS:
        with tempfile.TemporaryDirectory(dir=data.parent) as folder:
            try:
                found = _run(python, "load", name, data, folder) | _run(python, "search", name, data, folder)
            except subprocess.CalledProcessError as error:
                print(f"{name} is left out: {error.stderr.strip().splitlines()[-1:]}")
                continue
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
            rows.append({"name": name, **found, "disk_mib": size / 2**20})
    return rows


def _run(python: Path, stage: str, name: str, data: Path, folder: str) -> dict[str, Any]:
    offline = ["unshare", "--net", "--map-root-user"]
    try:
        subprocess.run([*offline, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        offline = []
        print(f"{name} runs with a network: this system does not let us take it away")
    command = [*offline, os.fspath(python), __file__, stage, name, os.fspath(data), folder]
    done = subprocess.run(command, env={**os.environ, **_QUIET}, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _load_chromadb(vectors: Any, texts: Sequence[str], folder: str) -> None:
    import chromadb

    client = chromadb.PersistentClient(folder, settings=chromadb.Settings(anonymized_telemetry=False))
    facts = client.create_collection(
        "facts", configuration={"hnsw": {"space": "ip", "max_neighbors": 16, "ef_construction": 200, "ef_search": 64}}
    )
    for start in range(0, len(texts), _BATCH):
        part = range(start, min(start + _BATCH, len(texts)))
        facts.add(
            ids=[f"fact-{number}" for number in part],
            embeddings=vectors[start : part.stop],
            documents=list(texts[start : part.stop]),
        )
    facts.query(query_embeddings=vectors[:1], n_results=_TOP_K)


def _open_chromadb(folder: str) -> Callable[[Any], list[str]]:
    import chromadb

    client = chromadb.PersistentClient(folder, settings=chromadb.Settings(anonymized_telemetry=False))
    facts = client.get_collection("facts")
    return lambda query: facts.query(query_embeddings=query[None, :], n_results=_TOP_K, include=[])["ids"][0]


def _load_lancedb(vectors: Any, texts: Sequence[str], folder: str) -> None:
    import lancedb
    import pyarrow
    from lancedb.index import HnswSq

    size = vectors.shape[1]
    table = None
    for start in range(0, len(texts), _BATCH):
        part = range(start, min(start + _BATCH, len(texts)))
        flat = pyarrow.array(vectors[start : part.stop].reshape(-1), pyarrow.float32())
        rows = pyarrow.table(
            {
                "id": [f"fact-{number}" for number in part],
                "text": list(texts[start : part.stop]),
                "vector": pyarrow.FixedSizeListArray.from_arrays(flat, size),
            }
        )
        if table is None:
            table = lancedb.connect(folder).create_table("facts", rows)
        else:
            table.add(rows)
    assert table is not None
    settings = HnswSq(distance_type="dot", num_partitions=1, m=16, ef_construction=200)
    table.create_index("vector", config=settings)
    table.search(vectors[0]).limit(_TOP_K).to_list()


def _open_lancedb(folder: str) -> Callable[[Any], list[str]]:
    import lancedb

    table = lancedb.connect(folder).open_table("facts")

    def search(query: Any) -> list[str]:
        # Its index is quantised; a few more candidates, compared exactly, bring its recall to that of the others.
        found = (
            table.search(query).distance_type("dot").ef(64).refine_factor(3).limit(_TOP_K).select(["id", "_distance"])
        )
        return found.to_arrow()["id"].to_pylist()

    return search


_LOAD = {"chromadb": _load_chromadb, "lancedb": _load_lancedb}
_OPEN = {"chromadb": _open_chromadb, "lancedb": _open_lancedb}


def _main(stage: str, name: str, data: Path, folder: str) -> dict[str, Any]:
    import importlib
    import importlib.metadata

    import numpy as np

    texts = json.loads((data / "texts.json").read_text(encoding="utf-8"))
    if stage == "load":
        vectors = np.load(data / "vectors.npy")
        started = time.perf_counter()
        _LOAD[name](vectors, texts["facts"], folder)
        return {"load_per_s": len(vectors) / (time.perf_counter() - started)}
    queries, truth = np.load(data / "queries.npy"), np.load(data / "truth.npy")
    del texts
    importlib.import_module(name)
    before = _resident()
    started = time.perf_counter()
    search = _OPEN[name](folder)
    search(queries[0])
    opened = time.perf_counter() - started
    times, right = [], 0
    for query, true in zip(queries, truth, strict=True):
        started = time.perf_counter()
        found = search(query)
        times.append(1000 * (time.perf_counter() - started))
        right += len(set(found) & {f"fact-{number}" for number in true})
    return {
        "version": importlib.metadata.version(name),
        "open_s": opened,
        "search_ms": statistics.median(times),
        "search_p99_ms": float(np.percentile(times, 99)),
        "recall": right / truth.size,
        "rss_mib": (_resident() - before) / 2**20,
    }


def _resident() -> int:
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])))
