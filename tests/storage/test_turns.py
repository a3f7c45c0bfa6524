"""Fair waiting: whoever asked first writes first, threads and processes alike; the dead hold up nobody."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.errors import MemoryLockedError
from fluxmem_local.storage.lock import WriterLock
from fluxmem_local.storage.turns import ProcessLine, ThreadTurns

from .test_lock import HOLD, start

WRITE = """
import sys
from fluxmem_local.graph import SemanticNode
from fluxmem_local.memory_store import MemoryStore
store = MemoryStore.open(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    with store.transaction() as transaction:
        transaction.add_nodes([SemanticNode(content=line.strip())])
    print("written", flush=True)
"""
GREEDY = """
import sys
from fluxmem_local.graph import SemanticNode
from fluxmem_local.memory_store import MemoryStore
store = MemoryStore.open(sys.argv[1])
for number in range(100000):
    with store.transaction() as transaction:
        transaction.add_nodes([SemanticNode(content=f"greedy {number}")])
    if number == 0:
        print("begun", flush=True)
"""


def wait_until(condition: Any) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_threads_get_it_in_the_order_of_asking() -> None:
    turns, order = ThreadTurns(), []

    def work(number: int) -> None:
        assert turns.acquire(60)
        order.append(number)
        turns.release()

    assert turns.acquire(0)
    assert turns.acquire(0)
    threads = []
    for number in range(8):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        wait_until(lambda number=number: len(turns._waiting) == number + 1)
    turns.release()
    assert order == []
    turns.release()
    for thread in threads:
        thread.join()
    assert (order, turns.depth) == (list(range(8)), 0)


def test_who_gives_up_leaves_the_line() -> None:
    turns = ThreadTurns()
    assert turns.acquire(0)
    came: list[bool] = []
    thread = threading.Thread(target=lambda: came.append(turns.acquire(0.01)))
    thread.start()
    thread.join()
    assert (came, len(turns._waiting)) == ([False], 0)
    turns.release()
    assert turns.acquire(0)


def test_the_waiting_thread_learns_the_name_of_the_holding_one() -> None:
    lock, errors = WriterLock(None, 0.05), []

    def wait() -> None:
        try:
            with lock.held():
                pass
        except MemoryLockedError as error:
            errors.append(str(error))

    def hold() -> None:
        with lock.held():
            thread = threading.Thread(target=wait)
            thread.start()
            thread.join()

    holder = threading.Thread(target=hold, name="the importer")
    holder.start()
    holder.join()
    assert len(errors) == 1
    assert errors[0].startswith("thread 'the importer' of this program is still writing after 0.05 s; ")


def test_processes_write_in_the_order_of_asking(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "memory"
    make.open(path).close()
    line = ProcessLine(path)
    holder = start(HOLD, path, stdin=subprocess.PIPE)
    writers = [start(WRITE, path, stdin=subprocess.PIPE) for _ in range(3)]
    assert holder.stdout.readline() == "held\n"
    assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * 3
    order = [2, 0, 1]
    for place, number in enumerate(order):
        writers[number].stdin.write(f"{number}\n")
        writers[number].stdin.flush()
        wait_until(lambda place=place: len(line._names()) == place + 1)
    holder.communicate("\n", timeout=60)
    for writer in writers:
        assert writer.communicate(timeout=60)[0] == "written\n"
    with make.open(path) as store:
        assert [node.content for node in store.select()] == [str(number) for number in order]
    assert line.is_empty()


def test_a_writer_that_never_pauses_lets_others_in(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "memory"
    make.open(path).close()
    greedy = start(GREEDY, path)
    try:
        assert greedy.stdout.readline() == "begun\n"
        with make.open(path) as store:
            for number in range(10):
                with store.transaction() as transaction:
                    transaction.add_nodes([make.fact(f"mine {number}")])
            mine = [node.content for node in store.select() if node.content.startswith("mine")]
            assert mine == [f"mine {number}" for number in range(10)]
            assert greedy.poll() is None
    finally:
        greedy.kill()
        greedy.communicate(timeout=60)


def test_the_place_of_a_dead_process_is_taken_over(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "memory"
    make.open(path).close()
    holder = start(HOLD, path, stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "held\n"
    waiting = start(WRITE, path, stdin=subprocess.PIPE)
    waiting.stdin.write("never\n")
    waiting.stdin.flush()
    wait_until(lambda: not ProcessLine(path).is_empty())
    for process in (waiting, holder):
        process.kill()
        process.communicate(timeout=60)
    assert not ProcessLine(path).is_empty()
    with make.open(path, lock_timeout_s=5) as store:
        with store.transaction() as transaction:
            transaction.add_nodes([make.fact("after both")])
        assert [node.content for node in store.select()] == ["after both"]
        assert ProcessLine(path).is_empty()


def test_a_note_that_is_none_still_ends_in_an_error_that_can_be_read(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "memory"
    make.open(path).close()
    holder = start(HOLD, path, stdin=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == "held\n"
        (path / "write.holder.json").write_bytes(os.urandom(50))
        with (
            make.open(path, lock_timeout_s=0.05) as store,
            pytest.raises(MemoryLockedError, match=r"is being written by another process; waited 0\.05 s"),
            store.transaction(),
        ):
            pass
    finally:
        holder.communicate("\n", timeout=60)
