"""Each file of a memory cut off, emptied, changed, deleted, unreadable, or taken from another memory.

Of the database: a typed error and nothing overwritten, or what is shown is right. Of any other file: nothing is lost,
and a search finds what it found before. Never a text under another id, never a wrong vector.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.errors import FluxMemError, StorageError
from fluxmem_local.index import HNSWVectorStore
from fluxmem_local.memory_store import MemoryStore, layer_index
from fluxmem_local.types import Layer, NodeState

from ..cli.test_read_only import _heed_modes

NUM_FACTS, NUM_CUTS, NUM_FLIPS = 60, 20, 40
DATABASE, LOG = "memory.sqlite3", "memory.sqlite3-wal"
DERIVED = "derived/semantic.hnsw"
OTHERS = (DERIVED, "write.lock", "write.holder.json", "memory.sqlite3-shm")
QUESTIONS = ("fact 7", "something about 21", "subject 140 fact")


@pytest.fixture(autouse=True)
def graphs_of_small_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_index, "_WORTH_SAVING", 8)
    monkeypatch.setattr(layer_index, "_CHANGED_SHARE", 0.0)
    monkeypatch.setitem(HNSWVectorStore.__init__.__kwdefaults__, "exact_below", 12)


class Whole:
    """A memory as it should be, and what it holds and finds; ``copy`` makes one to harm.

    "closed" was closed; "crashed" has its last commits in the log alone, as after a kill.
    """

    def __init__(self, make: Any, folder: Path, name: str, *, crashed: bool) -> None:
        self.make, self.folder, self.name = make, folder / name, name
        place = folder / f"{name} at work" if crashed else self.folder
        numbers = range(NUM_FACTS)
        texts = [f"{name} fact {number} about subject {number * 7}" for number in numbers]
        with make.filled(place, *texts[: NUM_FACTS // 2]) as store:
            store.nearest(Layer.SEMANTIC, make.vector("x"), 1)
        with make.open(place) as store:
            for text in texts[NUM_FACTS // 2 :]:
                with store.transaction() as transaction:
                    transaction.add_nodes([make.fact(text)])
            self.known = {node.id: (node.content, node.embedding.tolist()) for node in store.select()}
            self.found = self.searches(store)
            if crashed:
                shutil.copytree(place, self.folder)
        assert (self.folder / DERIVED).exists()
        assert (self.folder / LOG).exists() is crashed
        self._number = 0

    def copy(self) -> Path:
        self._number += 1
        return shutil.copytree(self.folder, self.folder.with_name(f"{self.name} {self._number}"))

    def searches(self, store: MemoryStore) -> Any:
        vectors = [store.nearest(Layer.SEMANTIC, self.make.vector(question), 9) for question in QUESTIONS]
        return vectors, [store.lexical(Layer.SEMANTIC, question, 9) for question in QUESTIONS]

    def check_same(self, folder: Path) -> None:
        with self.make.open(folder) as store:
            assert self.searches(store) == self.found
            assert {node.id: (node.content, node.embedding.tolist()) for node in store.select()} == self.known
            assert store.verify().problems == ()

    def check_right(self, folder: Path) -> bool:
        """Tell whether it could be read; what was shown must be right, and an error must leave all as it was."""
        before = {name: (folder / name).read_bytes() for name in (DATABASE, LOG) if (folder / name).is_file()}
        try:
            with self.make.open(folder) as store:
                shown = store.select(states=tuple(NodeState))
                hits = self.searches(store)
                for node in (*shown, *store.get_many([id for found in hits for each in found for id, _ in each])):
                    content, vector = self.known[node.id]
                    assert (node.content, node.embedding is None or node.embedding.tolist() == vector) == (
                        content,
                        True,
                    )
                assert all(id in self.known for found in hits for each in found for id, _ in each)
        except FluxMemError:
            after = {name: (folder / name).read_bytes() for name in before if (folder / name).exists()}
            assert after == before
            return False
        return True


@pytest.fixture
def closed(make: Any, tmp_path: Path) -> Whole:
    return Whole(make, tmp_path, "mine", crashed=False)


@pytest.fixture
def crashed(make: Any, tmp_path: Path) -> Whole:
    return Whole(make, tmp_path / "crashed", "mine", crashed=True)


def harmed(content: bytes, seed: int) -> Iterator[bytes]:
    """Cut, empty and change a file."""
    chance = random.Random(seed)
    yield b""
    for part in range(NUM_CUTS):
        yield content[: len(content) * part // NUM_CUTS + chance.randrange(max(1, len(content) // NUM_CUTS))]
    for _ in range(NUM_FLIPS):
        changed = bytearray(content)
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        yield bytes(changed)
    yield chance.randbytes(max(len(content), 4096))


def test_a_harmed_database_is_an_error_or_right(closed: Whole) -> None:
    whole = (closed.folder / DATABASE).read_bytes()
    read = 0
    for content in harmed(whole, 1):
        folder = closed.copy()
        (folder / DATABASE).write_bytes(content)
        read += closed.check_right(folder)
        if len(content) < len(whole):
            with pytest.raises(StorageError):
                closed.make.open(folder)
        shutil.rmtree(folder)
    # Flips in free space and in what is not shown do no harm.
    assert 0 < read <= NUM_FLIPS


def test_many_flips_at_once(closed: Whole) -> None:
    chance, read = random.Random(2), 0
    for number in range(40):
        folder = closed.copy()
        content = bytearray((folder / DATABASE).read_bytes())
        for _ in range(1 + number * 3):
            # Behind the first page, which says what kind of file it is.
            content[chance.randrange(4096, len(content))] ^= 1 << chance.randrange(8)
        (folder / DATABASE).write_bytes(content)
        read += closed.check_right(folder)
        shutil.rmtree(folder)
    assert read < 40


def test_a_harmed_log_shows_committed_states_only(crashed: Whole) -> None:
    # What SQLite cannot tell from a crash is the state before; anything else is an error.
    for content in harmed((crashed.folder / LOG).read_bytes(), 3):
        folder = crashed.copy()
        (folder / LOG).write_bytes(content)
        crashed.check_right(folder)
        shutil.rmtree(folder)
    folder = crashed.copy()
    (folder / LOG).unlink()
    crashed.check_right(folder)
    crashed.check_same(crashed.copy())


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_file_may_be_harmed(closed: Whole, crashed: Whole, name: str) -> None:
    memory = crashed if name.endswith("-shm") else closed
    whole = (memory.folder / name).read_bytes()
    for content in harmed(whole, 4):
        folder = memory.copy()
        (folder / name).write_bytes(content)
        memory.check_same(folder)
        shutil.rmtree(folder)
    folder = memory.copy()
    (folder / name).unlink()
    memory.check_same(folder)
    with memory.make.open(folder) as store, store.transaction() as transaction:
        transaction.add_nodes([memory.make.fact("it goes on")])


def test_a_rebuilt_index_file_is_as_good_as_the_old_one(closed: Whole) -> None:
    folder = closed.copy()
    (folder / DERIVED).write_bytes(b"nonsense")
    closed.check_same(folder)
    assert (folder / DERIVED).read_bytes() != b"nonsense"
    closed.check_same(folder)


def test_files_of_another_memory(make: Any, closed: Whole, crashed: Whole, tmp_path: Path) -> None:
    other = Whole(make, tmp_path / "other", "another", crashed=True)
    for name in OTHERS:
        memory = crashed if name.endswith("-shm") else closed
        folder = memory.copy()
        shutil.copy(other.folder / name, folder / name)
        memory.check_same(folder)
    # With the other's log, and with the other's database under the own log.
    for name in (LOG, DATABASE):
        folder = crashed.copy()
        shutil.copy(other.folder / name, folder / name)
        assert not crashed.check_right(folder)
        assert not other.check_right(folder)
    # Database and log of another memory, with the own index file, are just that memory.
    folder = crashed.copy()
    for name in (LOG, DATABASE):
        shutil.copy(other.folder / name, folder / name)
    other.check_same(folder)


@pytest.mark.parametrize("name", [DATABASE, DERIVED, "derived", "write.lock", "write.holder.json"])
def test_a_folder_or_a_file_in_the_wrong_place(closed: Whole, name: str) -> None:
    folder = closed.copy()
    if name == "derived":
        shutil.rmtree(folder / name)
        (folder / name).write_text("a file")
    else:
        (folder / name).unlink()
        (folder / name).mkdir()
    if name == DATABASE:
        assert not closed.check_right(folder)
        return
    closed.check_same(folder)
    if name == "derived":
        with closed.make.open(folder) as store:
            (first, *_) = store.select()
            store.forget(ids=[first.id])
            assert first.id not in [hit for hit, _ in store.nearest(Layer.SEMANTIC, first.embedding, 9)]
        return
    try:
        with closed.make.open(folder) as store, store.transaction() as transaction:
            transaction.add_nodes([closed.make.fact("new")])
    except StorageError:
        closed.check_same(folder)


READ = """
import json, sys
from fluxmem_local.errors import FluxMemError
from fluxmem_local.index import HNSWVectorStore
from fluxmem_local.memory_store import MemoryStore, layer_index
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer
embedder = HashEmbedder(32)
for folder, name, question in json.load(sys.stdin):
    try:
        open(f"{folder}/{name}", "rb").close()
        print(json.dumps("readable"))
        continue
    except OSError:
        pass
    try:
        with MemoryStore.open(folder, fingerprint=embedder.fingerprint, dimension=32) as store:
            print(json.dumps(store.nearest(Layer.SEMANTIC, embedder._embed(question), 9)))
    except FluxMemError as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
"""


def test_files_that_may_not_be_read(closed: Whole) -> None:
    asked = []
    for name in (DATABASE, DERIVED, "write.lock", "write.holder.json"):
        folder = closed.copy()
        (folder / name).chmod(0)
        asked.append([str(folder), name, QUESTIONS[0]])
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", READ],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        timeout=120,
        preexec_fn=_heed_modes,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if "readable" in answers:
        pytest.skip("this user may read everything")
    assert answers[0].startswith("StorageError: cannot read ")
    assert [[tuple(hit) for hit in answer] for answer in answers[1:]] == [closed.found[0][0]] * 3
