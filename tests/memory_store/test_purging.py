"""After a purge no byte of what was forgotten is in any file of the memory, also with readers and after a crash."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluxmem_local.errors import InvalidInputError, StorageError
from fluxmem_local.graph import Edit, GroundEdge, ProceduralNode
from fluxmem_local.memory_store import MemoryStore, Outcome, Receipt
from fluxmem_local.storage.database import DATABASE_NAME, Database
from fluxmem_local.storage.lock import WriterLock
from fluxmem_local.types import Layer, Origin

SECRET = "Das geheime Kennwort für Ümläute lautet xylophon-4711 und gilt überall."
OLD = "Früher lautete das geheime Kennwort für Ümläute marimba-0815 und galt nirgends."
RARE = ("xylophon", "Ümläute", "ümläute", "marimba", "überall", "nirgends")
KEPT = "The lease ends in May."


def written(folder: Path) -> Iterator[tuple[str, bytes]]:
    for file in folder.rglob("*"):
        if file.is_file():
            yield file.name, file.read_bytes()


def traces(folder: Path, *texts: str) -> list[tuple[str, str]]:
    """List where any of the texts still stands, in any form that a file may hold it."""
    found = []
    for name, content in written(folder):
        for text in texts:
            forms = {text.encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be")}
            forms |= {json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode() for ascii_only in (True, False)}
            if any(form in content for form in forms):
                found.append((name, text))
    return found


def add(store: MemoryStore, *nodes: Any) -> list[str]:
    with store.transaction() as change:
        return change.add_nodes(nodes)


def fill(store: MemoryStore, make: Any) -> str:
    """Store the secret in every place where one can come to stand, and return its id."""
    (id,) = add(store, make.fact(OLD, source="a.md", metadata={"note": RARE[0], "tags": [RARE[1]]}))
    with store.transaction() as change:
        change.replace(replace(store.get(id), content=SECRET, embedding=make.vector(SECRET)), reason=f"now {SECRET}")
    version = make.fact(f"Kurz: {RARE[0]}-{RARE[1]}", variant_of=id, added_by=Origin.DERIVED)
    lived = make.episode(f"say {SECRET}", trajectory=((OLD, SECRET),), feedback=f"told {OLD}", success=True)
    known = ProceduralNode(
        skill_text=f"1. {SECRET}", embedding=make.vector("1"), metadata={"structure": {"steps": [{"t": SECRET}]}}
    )
    (kept, *_) = add(store, make.fact(KEPT), version, lived, known)
    with store.transaction() as change:
        change.add_edges([GroundEdge(source_id=each, target_id=lived.id) for each in (id, kept)])
        change.record_outcomes([Outcome(node_id=id, episode_id=lived.id, helped=1)])
        change.put_edit(Edit(kind="prune", targets=(id,), reason=SECRET))
        change.put_edit(Edit(kind="prune", targets=(kept,), reason=f"since {SECRET}", before={"text": OLD}))
    # Rows that come and go move others about in their pages.
    many = add(store, *(make.fact(f"filler number {number} {'x' * (number % 90)}") for number in range(300)))
    store.forget(ids=many[::2])
    return id


def test_no_byte_is_left_in_any_form(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with make.open(folder) as store:
        id = fill(store, make)
        (folder / ".memory.schema-1.sqlite3.new").write_text(SECRET, encoding="utf-8")
        (folder / "memory.schema-1.sqlite3").write_text(SECRET, encoding="utf-16-le")
        (folder / f"{DATABASE_NAME}.new-journal").write_text(json.dumps(SECRET))
        (folder / "derived").mkdir(exist_ok=True)
        (folder / "derived" / "left-over").write_text(SECRET)
        assert {name for name, _ in traces(folder, SECRET)} > {DATABASE_NAME, "left-over"}
        receipt = store.forget(ids=[id], purge=True)
        assert (receipt.purged, receipt.removed[0], len(receipt.removed)) == (True, id, 2)
        assert traces(folder, SECRET, OLD, *RARE) == []
        assert traces(folder, KEPT) != []
        assert store.verify().problems == ()
    assert traces(folder, SECRET, OLD, *RARE) == []
    with make.open(folder) as store:
        assert store.count(Layer.SEMANTIC) == 151
        assert store.verify().problems == ()
    assert traces(folder, SECRET, OLD, *RARE) == []


def test_a_later_purge_takes_what_was_forgotten_before(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with make.open(folder) as store:
        store.forget(ids=[fill(store, make)])
        assert store.forget(purge=True, dry_run=True) == Receipt()
        assert store.forget(purge=True) == Receipt(purged=True)
        assert traces(folder, SECRET, OLD, *RARE) == []
        with pytest.raises(InvalidInputError, match="nothing to forget was named"):
            store.forget()


def test_a_memory_in_ram_has_no_files_to_purge(make: Any) -> None:
    with make.open(None) as store:
        assert store.forget(ids=[fill(store, make)], purge=True).purged is True
        assert store.verify().problems == ()


def test_inside_a_transaction_it_follows_the_commit(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with make.open(folder) as store:
        id = fill(store, make)
        with store.transaction():
            assert store.forget(ids=[id], purge=True).purged is False
        assert traces(folder, SECRET, OLD, *RARE) == []


def word_of(number: int) -> str:
    """Return a word of its own for a number, which is no part of another one."""
    return "zebra" + "".join("abcdefghij"[int(digit)] for digit in str(number)) + "q"


def test_vectors_and_words_are_in_no_file_after_the_index_was_saved_again(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(2600, 32)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    with make.open(folder) as store:
        ids = add(
            store,
            *(replace(make.fact(f"number {word_of(place)}"), embedding=row) for place, row in enumerate(rows)),
        )
        assert len(store.nearest(Layer.SEMANTIC, rows[0], 5)) == 5
        assert store.lexical(Layer.SEMANTIC, word_of(7), 1)[0][0] == ids[7]
    stored = np.frombuffer(store_vector(folder, ids[7]), "<f4")
    needle = stored.tobytes()
    assert {name for name, content in written(folder) if needle in content} == {DATABASE_NAME, "semantic.hnsw"}
    assert traces(folder, word_of(7)) != []
    with make.open(folder) as store:
        assert store.nearest(Layer.SEMANTIC, stored, 1)[0][0] == ids[7]
        store.forget(ids=ids[:100])
        assert store.nearest(Layer.SEMANTIC, stored, 1)[0][0] not in ids[:100]
        assert traces(folder, word_of(7)) == []
        add(store, *(make.fact(f"more {number}") for number in range(100)))
        assert store.nearest(Layer.SEMANTIC, stored, 1) != []
        assert store.lexical(Layer.SEMANTIC, word_of(7), 1) == []
        assert store.lexical(Layer.SEMANTIC, word_of(700), 1) != []
    assert (folder / "derived" / "semantic.hnsw").exists()
    assert {name for name, content in written(folder) if needle in content} == set()
    assert traces(folder, word_of(7)) == []


def store_vector(folder: Path, id: str) -> bytes:
    database = Database(folder, create=False, lock_timeout_s=1)
    try:
        with database.read() as connection:
            return bytes(connection.execute("SELECT embedding FROM nodes WHERE id = ?", (id,)).fetchone()[0])
    finally:
        database.close()


def read_on(folder: Path, ready: Any, stop: Any, hold: bool) -> None:
    """Read all the time in many short reads, or in one that does not end."""
    store = MemoryStore.open(folder, create=False)
    if hold:
        with store.database.read() as connection:
            connection.execute("SELECT COUNT(*) FROM nodes").fetchone()
            ready.set()
            stop.wait(60)
    else:
        while not stop.is_set():
            store.count()
            ready.set()
            time.sleep(0.001)
    store.close()


@contextmanager
def reader(folder: Path, *, hold: bool) -> Iterator[Any]:
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=read_on, args=(folder, ready, stop, hold))
    process.start()
    try:
        assert ready.wait(60)
        yield stop
    finally:
        stop.set()
        process.join(60)
    assert process.exitcode == 0


def test_another_process_reads_meanwhile(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with make.open(folder) as store:
        id = fill(store, make)
        with reader(folder, hold=False):
            assert store.forget(ids=[id], purge=True).purged is True
            assert traces(folder, SECRET, OLD, *RARE) == []


def test_a_read_that_does_not_end_puts_it_off_to_the_next_opening(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with make.open(folder, lock_timeout_s=1.0) as store:
        id = fill(store, make)
        with reader(folder, hold=True):
            assert store.forget(ids=[id], purge=True).purged is False
            assert traces(folder, SECRET) != []
            assert ["forget --purge" in note for note in store.verify().notes] == [True]
            # Who opens the memory is not held up by that, and reads what is committed.
            with make.open(folder, lock_timeout_s=1.0) as other:
                assert other.count(Layer.SEMANTIC) == 151
    make.open(folder).close()
    assert traces(folder, SECRET, OLD, *RARE) == []


@pytest.mark.parametrize("obstacle", ["another writer", "a full disk"])
def test_opening_does_not_fail_where_it_cannot_be_finished(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    folder = tmp_path / "memory"
    with make.open(folder, lock_timeout_s=1.0) as store:
        id = fill(store, make)
        with reader(folder, hold=True):
            assert store.forget(ids=[id], purge=True).purged is False
    lock = WriterLock(folder, 1.0)
    with monkeypatch.context() as patched:
        if obstacle == "a full disk":

            def full(_database: Any, **_options: Any) -> None:
                raise StorageError("no room")

            patched.setattr(Database, "rewrite", full)
        with lock.held() if obstacle == "another writer" else nullcontext(), make.open(folder) as other:
            assert other.count(Layer.SEMANTIC) == 151
            assert ["forget --purge" in note for note in other.verify().notes] == [True]
    make.open(folder).close()
    assert traces(folder, SECRET, OLD, *RARE) == []


WORKER = """
import os, sys
from fluxmem_local.memory_store import MemoryStore, store, purging
from fluxmem_local.storage.database import Database
folder, id, point = sys.argv[1:]
def die(*_arguments, **_options):
    os._exit(9)
if point == "before":
    store.purge = die
elif point == "rewrite":
    Database.rewrite = die
elif point == "checkpoint":
    whole = Database.checkpoint
    Database.checkpoint = lambda self, patient=False: die() if patient else whole(self)
else:
    whole = Database.checkpoint
    def checkpoint(self, patient=False):
        whole(self, patient=patient)
        die()
    Database.checkpoint = checkpoint
MemoryStore.open(folder).forget(ids=[id], purge=True)
"""


@pytest.mark.parametrize("point", ["before", "rewrite", "checkpoint", "end"])
@pytest.mark.parametrize("then", ["open", "purge"])
def test_a_crash_on_the_way_is_made_up_for(make: Any, tmp_path: Path, point: str, then: str) -> None:
    folder = tmp_path / "memory"
    with make.open(folder) as store:
        id = fill(store, make)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    died = subprocess.run(
        [sys.executable, "-c", WORKER, str(folder), id, point], env=environment, capture_output=True, text=True
    )
    assert died.returncode == 9, died.stderr
    with make.open(folder) as store:
        if then == "purge":
            assert store.forget(purge=True).purged is True
        assert traces(folder, SECRET, OLD, *RARE) == []
        assert store.count(Layer.SEMANTIC) == 151
        assert store.verify().problems == ()
