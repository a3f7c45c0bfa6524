"""What a large memory costs: loading, opening, searching, adding, steps, disk and RAM, with vectors given.

    .venv/bin/python scripts/bench_scale.py [--facts 25600,100000] [--peers-python PYTHON] [--json FILE]

Per size: facts of Zipf's words with clustered vectors of 384 dimensions (see ``evaluation/scale_data.py``), an episode
for ten facts, an edge for each, a hundredth of the facts in each scope. Each stage runs in a process of its own. Times
are without embedding, as vectors are given, and without a language model. ``--peers-python`` names the Python of an
environment with chromadb and lancedb, which get the same vectors and queries in the same run, without a network.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluation import scale, scale_peers
from rich.console import Console
from rich.table import Table

# name, what is printed, and what a size must keep: "at least" or "at most" so much
_TARGETS: dict[str, tuple[str, str | None, float]] = {
    "bare_per_s": ("bare hnswlib add_items, vectors/s", None, 0),
    "bulk_per_s": ("bulk load until the first search is answered, facts/s", None, 0),
    "bulk_ratio": ("… against bare hnswlib", ">=", 0.7),
    "cpu_ratio": ("… by processor time, which others on the machine take less part in", None, 0),
    "load_rss_ratio": ("peak memory of the loading process, × raw vectors", None, 0),
    "open_s": ("open and first search, s", "<=", 5.0),
    "rss_ratio": ("memory after opening and searching, × raw vectors", "<=", 3.0),
    "rss_mib": ("… MiB", None, 0),
    "disk_ratio": ("disk, × raw vectors", "<=", 4.0),
    "recall": ("recall@10 of nearest against exact", ">=", 0.97),
    "nearest_ms": ("nearest alone, ms", None, 0),
    "lexical_ms": ("lexical alone, ms", None, 0),
    "search_cpu_ms": ("retrieve, mean processor ms", None, 0),
    "search_ms": ("retrieve, median ms", "<=", 5.0),
    "search_p99_ms": ("retrieve, 99th percentile ms", "<=", 20.0),
    "scoped_ms": ("retrieve in a scope of 1 %, median ms", None, 0),
    "scoped_ratio": ("… against all", "<=", 2.0),
    "adds_per_s": ("single durable adds a second", ">=", 200.0),
    "add_ms": ("one durable add, median ms", None, 0),
    "busy_search_ms": ("retrieve while another thread adds, median ms", "<=", 5.0),
    "busy_search_p99_ms": ("… 99th percentile ms", "<=", 20.0),
    "busy_adds_per_s": ("… adds a second meanwhile", None, 0),
    "step_10_ms": ("a task of one step after 10 episodes, without ANN search, ms", None, 0),
    "step_10000_ms": ("… after 10,000 episodes, ms", None, 0),
    "step_ratio": ("… 10,000 against 10", "<=", 1.5),
}


def alone(function: Callable[..., Any], *values: Any) -> Any:
    """Call a function in a fresh process, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, values)


def measure(count: int, folder: Path) -> dict[str, float]:
    data, memory = folder / "data", folder / "memory"
    data.mkdir()
    found: dict[str, float] = {}
    for stage, places in (
        (scale.make, (count, data)),
        (scale.bare, (data,)),
        (scale.load, (data, memory)),
        (scale.serve, (data, memory)),
        (scale.steps, (data, folder)),
    ):
        measured = alone(stage, *places) or {}
        # A large size takes long: what is known is told at once.
        print(f"{count:,} facts, {stage.__name__}: {json.dumps(measured)}", file=sys.stderr, flush=True)
        found |= measured
    raw = 4 * scale.DIMENSION * count
    found["bulk_ratio"] = found["bulk_per_s"] / found["bare_per_s"]
    found["cpu_ratio"] = found["bare_cpu_ms"] / found["bulk_cpu_ms"]
    found["load_rss_ratio"] = found.pop("load_rss_bytes") / raw
    found["rss_mib"] = found["rss_bytes"] / 2**20
    found["rss_ratio"] = found.pop("rss_bytes") / raw
    found["disk_ratio"] = scale.size_of(memory) / raw
    found["scoped_ratio"] = found["scoped_ms"] / found["search_ms"]
    found["step_ratio"] = found["step_10000_ms"] / found["step_10_ms"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", default="25600,100000", help="sizes; 1000000 takes hours on two cores")
    parser.add_argument("--peers-python", type=Path, help="Python of an environment with chromadb and lancedb")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help="where the memories are made and deleted; default: a temporary one")
    arguments = parser.parse_args()
    rows: dict[int, dict[str, float]] = {}
    peers: dict[int, list[dict[str, Any]]] = {}
    for count in sorted({int(part) for part in arguments.facts.split(",")}):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            rows[count] = measure(count, Path(folder))
            peers[count] = scale_peers.compare(arguments.peers_python, Path(folder) / "data", rows[count])
    _print(rows, peers)
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows, "peers": peers}, indent=2) + "\n", encoding="utf-8")
    return 0


def _print(rows: dict[int, dict[str, float]], peers: dict[int, list[dict[str, Any]]]) -> None:
    console = Console(width=140)
    table = Table(title=f"Scale ({len(os.sched_getaffinity(0))} cores)")
    for column in ("", *(f"{count:,} facts" for count in rows), "target"):
        table.add_column(column, justify="right" if column else "left")
    for name, (words, sign, bound) in _TARGETS.items():
        cells = [f"{row[name]:,.2f}{_mark(row[name], sign, bound)}" for row in rows.values()]
        table.add_row(words, *cells, f"{sign} {bound:g}" if sign else "")
    console.print(table)
    for count, found in peers.items():
        table = Table(title=f"{count:,} vectors, the same queries, top 10")
        columns = (
            "name",
            "version",
            "load_per_s",
            "open_s",
            "search_ms",
            "search_p99_ms",
            "recall",
            "rss_mib",
            "disk_mib",
        )
        for column in columns:
            table.add_column(column, justify="right")
        for peer in found:
            table.add_row(*(f"{peer[key]:,.2f}" if isinstance(peer[key], float) else str(peer[key]) for key in columns))
        console.print(table)


def _mark(value: float, sign: str | None, bound: float) -> str:
    if sign is None:
        return ""
    return " ok" if (value >= bound if sign == ">=" else value <= bound) else " MISSED"


if __name__ == "__main__":
    sys.exit(main())
