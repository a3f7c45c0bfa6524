"""SIGKILL at random points of adding, updating, forgetting, repairing and consolidating, again and again.

After each: the memory opens, ``verify`` finds nothing wrong, every call that had returned is there, and the one that
was running is there whole or not at all. FLUXMEM_TEST_KILLS sets how many kills there are, 200 by default.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.graph import EpisodicNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.text.quotes import REDACTED
from fluxmem_local.types import Layer, NodeState

NUM_MEMORIES = 25
NUM_KILLS = int(os.environ.get("FLUXMEM_TEST_KILLS", "200"))
ROOT = Path(__file__).resolve().parents[2]
# Calls that a worker may end before it is killed, and the longest wait then, which reaches into the next calls.
MOST_CALLS, LONGEST_WAIT_S = 5, 0.02


@pytest.fixture(scope="module")
def workers() -> Iterator[subprocess.Popen[str]]:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("FLUXMEM_")}
    environment = {**settings, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("worker.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    yield process
    # A fork that is still there ends with the pipe that it tells by.
    process.kill()
    process.communicate(timeout=60)


@dataclass
class Expected:
    """What the memory must hold by what the worker told, and what it was in the middle of."""

    facts: dict[str, str] = field(default_factory=dict)
    episodes: dict[str, tuple[str, str]] = field(default_factory=dict)
    kept_edits: set[str] = field(default_factory=set)
    skills: set[str] = field(default_factory=set)
    running: dict[str, Any] | None = None

    def hear(self, told: dict[str, Any]) -> None:
        assert "error" not in told, told["error"]
        if "begin" in told:
            self.running = told
        elif "done" in told:
            assert self.running is not None
            self.take(self.running, told)
            self.running = None

    def take(self, call: dict[str, Any], result: dict[str, Any]) -> None:
        kind = call["begin"]
        if kind == "add":
            self.facts |= call["facts"]
        elif kind == "update":
            self.facts[call["id"]] = call["content"]
        elif kind == "forget":
            for id in call["ids"]:
                del self.facts[id]
            # With them go the skills that came of them alone.
            self.skills = set()
        elif kind in ("record", "repair"):
            status = "succeeded" if result.get("success", True) else "failed"
            self.episodes[result["episode"]] = (call["task"], status)
            self.kept_edits |= set(result.get("kept", ()))
        elif kind == "consolidate":
            # It may merge the skills of earlier ones.
            self.skills = set(result["skills"])


def run_and_kill(workers: subprocess.Popen[str], path: Path, seed: int, expected: Expected) -> str:
    """Let a worker run, kill it somewhere, and return what it was in the middle of."""
    chance = random.Random(seed)
    calls, wait_s = chance.randint(0, MOST_CALLS), chance.uniform(0, LONGEST_WAIT_S)
    assert workers.poll() is None, "an earlier failure ended the workers"
    assert workers.stdin is not None
    assert workers.stdout is not None
    workers.stdin.write(json.dumps([str(path), seed]) + "\n")
    workers.stdin.flush()
    pid = json.loads(workers.stdout.readline())["pid"]
    done = 0
    try:
        while done < calls:
            told = json.loads(workers.stdout.readline())
            expected.hear(told)
            done += "done" in told
        time.sleep(wait_s)
    except BaseException:
        # What it tells from now on would be taken for another one's.
        workers.kill()
        raise
    finally:
        os.kill(pid, signal.SIGKILL)
    while "dead" not in (told := json.loads(workers.stdout.readline())):
        expected.hear(told)
    assert told["dead"] == signal.SIGKILL
    return expected.running["begin"] if expected.running is not None else "between calls"


def check(store: MemoryStore, expected: Expected) -> None:
    """Compare the memory with what it must hold; what the running call left becomes part of that."""
    report = store.verify()
    assert report.problems == ()
    every = store.select(states=tuple(NodeState))
    facts = {node.id: node.content for node in every if node.layer is Layer.SEMANTIC and node.variant_of is None}
    running = expected.running or {"begin": "nothing"}
    may = dict(expected.facts)
    if running["begin"] == "add":
        may |= running["facts"]
    elif running["begin"] == "update":
        may[running["id"]] = running["content"]
    elif running["begin"] == "forget":
        may = {id: text for id, text in may.items() if id not in running["ids"]}
    assert facts in (expected.facts, may)
    expected.facts = facts
    tasks = {node.id: node for node in every if isinstance(node, EpisodicNode)}
    for id, (description, status) in expected.episodes.items():
        # Forgetting takes out of a task what it quotes of what is forgotten.
        assert tasks[id].task_description == description or REDACTED in tasks[id].task_description
        assert tasks[id].status == status
        expected.episodes[id] = (tasks[id].task_description, status)
    for id, task in tasks.items():
        if id in expected.episodes:
            continue
        if task.status in ("succeeded", "failed"):
            # It had ended before the kill, and only the word of it did not come through.
            assert task.task_description == running["task"]
            expected.episodes[id] = (task.task_description, task.status)
        else:
            assert task.status in ("running", "interrupted")
        if running["begin"] == "record" and task.task_description == running["task"]:
            assert [edge.source_id for edge in store.edges(target_ids=[id])] == [running["fact"]]
    kept = {edit.id for edit in store.edits() if edit.kept}
    forgotten = expected.kept_edits - {edit.id for edit in store.edits()}
    # Forgetting takes the repairs of what it forgets along.
    assert expected.kept_edits - forgotten <= kept
    expected.kept_edits -= forgotten
    skills = {node.id for node in every if node.layer is Layer.PROCEDURAL}
    # A consolidation may have been about to merge them, and forgetting takes those that came of it alone.
    assert running["begin"] in ("consolidate", "forget") or expected.skills <= skills
    expected.skills = skills
    expected.running = None


@pytest.mark.parametrize("memory", range(NUM_MEMORIES))
def test_every_call_that_returned_survives_and_none_is_half_there(
    workers: subprocess.Popen[str], folder_in_ram: Path, memory: int
) -> None:
    embedder, expected, where = HashEmbedder(32), Expected(), Counter[str]()
    for number in range(-(-NUM_KILLS // NUM_MEMORIES)):
        where[run_and_kill(workers, folder_in_ram, 1000 * memory + number, expected)] += 1
        with MemoryStore.open(folder_in_ram, fingerprint=embedder.fingerprint, dimension=32) as store:
            check(store, expected)
            for id, content in list(expected.facts.items())[-3:]:
                hits = store.nearest(Layer.SEMANTIC, embedder._embed(content), 3)
                assert any(round(score, 4) == 1 for _, score in hits)
                assert id in [hit for hit, _ in store.lexical(Layer.SEMANTIC, content, 1000)]
    with MemoryStore.open(folder_in_ram, fingerprint=embedder.fingerprint, dimension=32) as store:
        assert store.verify(fix=True).ok
        report, stats = store.verify(), store.stats()
        assert (report.problems, report.notes) == ((), ())
        assert (stats["num_step_edges"], stats["num_trial_nodes"]) == (0, 0)
    assert sum(where.values()) == -(-NUM_KILLS // NUM_MEMORIES)
