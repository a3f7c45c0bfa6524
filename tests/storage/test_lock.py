"""One writer at a time, in threads and processes; whoever waits too long learns who holds the memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fluxmem_local.errors import MemoryLockedError, StorageError
from fluxmem_local.types import Layer

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys
from fluxmem_local.memory_store import MemoryStore
store = MemoryStore.open(sys.argv[1])
with store.transaction():
    print("held", flush=True)
    sys.stdin.readline()
"""
ADD = """
import sys
from fluxmem_local.graph import SemanticNode
from fluxmem_local.memory_store import MemoryStore
store = MemoryStore.open(sys.argv[1])
for number in range(100000):
    with store.transaction() as transaction:
        (id,) = transaction.add_nodes([SemanticNode(content=f"fact {number}")])
    print(id, flush=True)
"""
MIXED = """
import random, sys, threading
from fluxmem_local.graph import EpisodicNode, GroundEdge, SemanticNode
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.types import Layer
store = MemoryStore.open(sys.argv[1])
name, failures = sys.argv[2], []
def work(thread):
    try:
        for number in range(25):
            with store.transaction() as transaction:
                fact = SemanticNode(content=f"fact {name} {thread} {number}")
                episode = EpisodicNode(content=f"task {name} {thread} {number}")
                transaction.add_nodes([fact, SemanticNode(content="the fact that all share"), episode])
                transaction.add_edges([GroundEdge(source_id=fact.id, target_id=episode.id)])
                transaction.record_outcomes([Outcome(node_id=fact.id, episode_id=episode.id, helped=1)])
            assert store.lexical(Layer.SEMANTIC, f"{name} {thread} {number}", 3)
            assert store.get(fact.id).content == fact.content
            if number % 5 == 4:
                store.forget(ids=[fact.id])
    except BaseException as error:
        failures.append(repr(error))
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
store.close()
print(failures)
sys.exit(bool(failures))
"""


def start(code, *arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def test_second_writer_learns_who_holds_it_and_readers_do_not_wait(make, tmp_path):
    path = tmp_path / "memory"
    make.filled(path, "a fact to read").close()
    holder = start(HOLD, path, stdin=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == "held\n"
        with make.open(path, lock_timeout_s=0.2) as store:
            assert [node.content for node in store.select()] == ["a fact to read"]
            with pytest.raises(MemoryLockedError, match=rf"process {holder.pid} .*since 20"), store.transaction():
                pass
    finally:
        holder.communicate("\n", timeout=60)
    assert holder.returncode == 0


def test_second_thread_waits_and_then_gives_up(make, tmp_path):
    store = make.open(tmp_path / "m", lock_timeout_s=0.1)
    errors = []

    def write():
        try:
            with store.transaction():
                pass
        except MemoryLockedError as error:
            errors.append(str(error))

    with store.transaction():
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert len(errors) == 1
    assert errors[0].startswith("thread 'MainThread' of this program is still writing")
    store.close()


def test_what_was_reported_survives_kill_9(make, tmp_path):
    path = tmp_path / "memory"
    child = start(ADD, path)
    ids = [child.stdout.readline().strip() for _ in range(30)]
    child.send_signal(signal.SIGKILL)
    ids += [line.strip() for line in child.communicate(timeout=60)[0].splitlines() if len(line) >= 32]
    with make.open(path) as store:
        assert [node.id for node in store.get_many(ids)] == ids
        assert store.count() in (len(ids), len(ids) + 1)
        assert store.verify().problems == ()


def test_user_report_14_two_processes_with_four_threads_each(make, tmp_path):
    path = tmp_path / "memory"
    make.open(path).close()
    children = [start(MIXED, path, name) for name in ("left", "right")]
    assert [child.communicate(timeout=200)[0] for child in children] == ["[]\n", "[]\n"]
    with make.open(path) as store:
        stats = store.stats()
        assert stats["num_semantic_nodes"] == 2 * 4 * 20 + 1
        assert stats["num_episodic_nodes"] == 200
        assert stats["num_ground_edges"] == 160
        assert store.select(filters={"source": ""}, limit=2)[1].count == 200
        assert store.verify().problems == ()


def test_forked_child_must_open_again(make, tmp_path, monkeypatch):
    store = make.filled(tmp_path / "m", "a fact")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(StorageError, match="forked"):
        store.select()
    monkeypatch.undo()
    store.close()


def test_a_reader_in_another_thread_does_not_wait_and_sees_what_is_committed(make, tmp_path):
    with make.filled(tmp_path / "m", "a fact to read") as store:
        begun, over = threading.Event(), threading.Event()

        def write():
            with store.transaction() as transaction:
                transaction.add_nodes([make.fact("not committed yet")])
                # Its own changes it finds, in an index that others don't see.
                assert len(store.nearest(Layer.SEMANTIC, make.vector("committed"), 5)) == 2
                begun.set()
                assert over.wait(60)

        thread = threading.Thread(target=write)
        thread.start()
        assert begun.wait(60)
        try:
            assert [node.content for node in store.select()] == ["a fact to read"]
            assert len(store.nearest(Layer.SEMANTIC, make.vector("committed"), 5)) == 1
            assert store.lexical(Layer.SEMANTIC, "committed", 5) == []
        finally:
            over.set()
            thread.join()
        assert len(store.nearest(Layer.SEMANTIC, make.vector("committed"), 5)) == 2


def test_a_memory_that_was_deleted_while_it_was_open_is_not_made_anew(make, tmp_path):
    store = make.filled(tmp_path / "m", "a fact")
    store.close()
    store = make.open(tmp_path / "m")
    assert store.count() == 1
    (tmp_path / "m" / "memory.sqlite3").unlink()
    with pytest.raises(StorageError, match="cannot be read or written"), store.transaction():
        pass
    store.close()
    assert not (tmp_path / "m" / "memory.sqlite3").exists()
