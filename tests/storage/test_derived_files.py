"""Derived files: used when they are known to show an older state of this very memory, made anew otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.index import HNSWVectorStore
from fluxmem_local.memory_store import MemoryStore, layer_index
from fluxmem_local.memory_store.layer_index import LayerIndex
from fluxmem_local.types import Layer

QUESTIONS = ("fact 7 about subject 49", "subject 140", "something else")


@pytest.fixture(autouse=True)
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Save files of small memories, with graphs in them, and note from which revision on rows are read."""
    monkeypatch.setattr(layer_index, "_WORTH_SAVING", 8)
    monkeypatch.setitem(HNSWVectorStore.__init__.__kwdefaults__, "exact_below", 12)
    read: list[int] = []
    plain = LayerIndex._embedded_since

    def noted(self: LayerIndex, connection: Any, since: int) -> Any:
        if self.layer is Layer.SEMANTIC:
            read.append(since)
        return plain(self, connection, since)

    monkeypatch.setattr(LayerIndex, "_embedded_since", noted)
    return read


def facts(make: Any, name: str, numbers: range) -> list[Any]:
    return [make.fact(f"{name} fact {number} about subject {number * 7}") for number in numbers]


def add(make: Any, store: MemoryStore, name: str, numbers: range) -> None:
    with store.transaction() as transaction:
        transaction.add_nodes(facts(make, name, numbers))


def found(make: Any, store: MemoryStore) -> Any:
    vectors = [store.nearest(Layer.SEMANTIC, make.vector(question), 50) for question in QUESTIONS]
    return vectors, [store.lexical(Layer.SEMANTIC, question, 50) for question in QUESTIONS]


def check_right(make: Any, folder: Path) -> None:
    """Compare with a memory that has no derived files."""
    with make.open(folder) as store:
        shown = found(make, store)
        assert store.verify().problems == ()
    shutil.rmtree(folder / "derived", ignore_errors=True)
    with make.open(folder) as store:
        assert found(make, store) == shown


@pytest.fixture
def folder(make: Any, tmp_path: Path) -> Path:
    with make.open(tmp_path / "memory") as store:
        add(make, store, "old", range(40))
        found(make, store)
    return tmp_path / "memory"


def test_only_rows_that_are_newer_than_the_file_are_read(make: Any, folder: Path, rows_read: list[int]) -> None:
    _, generation = HNSWVectorStore.load(folder / "derived" / "semantic.hnsw")
    with make.open(folder) as store:
        add(make, store, "new", range(3))
        with store.transaction() as transaction:
            transaction.delete_nodes([store.select()[0].id])
        rows_read.clear()
        shown = found(make, store)
    assert rows_read == [generation]
    check_right(make, folder)
    with make.open(folder) as store:
        assert found(make, store) == shown


def test_a_file_is_of_no_use_to_an_older_copy_of_the_database(make: Any, folder: Path, rows_read: list[int]) -> None:
    older = shutil.copytree(folder, folder.with_name("older"))
    for name, numbers in (("mine", range(30)), ("theirs", range(35))):
        with make.open(folder) as store:
            add(make, store, name, numbers)
            found(make, store)
        if name == "mine":
            with_mine = (folder / "derived" / "semantic.hnsw").read_bytes()
            shutil.rmtree(folder)
            shutil.copytree(older, folder)
    (folder / "derived" / "semantic.hnsw").write_bytes(with_mine)
    rows_read.clear()
    check_right(make, folder)
    assert rows_read[0] == -1


def test_a_changed_file_with_a_checksum_that_fits_is_compared_with_all_rows(make: Any, folder: Path) -> None:
    file = folder / "derived" / "semantic.hnsw"
    store, generation = HNSWVectorStore.load(file)
    one, two = store.ids[:2]
    store.add([one, two], [store.get_vector(two), store.get_vector(one)])
    store.delete(store.ids[5:7])
    store.add(["nobody"], [store.get_vector(one)])
    store.save(file, generation=generation)
    check_right(make, folder)


def test_a_reader_without_the_right_to_write_saves_nothing(make: Any, folder: Path) -> None:
    shutil.rmtree(folder / "derived")
    before = (folder / "memory.sqlite3").read_bytes()
    with make.open(folder) as store:
        store.database.read_only = True
        found(make, store)
    assert not (folder / "derived").exists()
    assert (folder / "memory.sqlite3").read_bytes() == before


def test_forgetting_deletes_the_files_and_the_next_end_writes_them_anew(make: Any, folder: Path) -> None:
    with make.open(folder) as store:
        found(make, store)
        gone = store.select()[3].id
        store.forget(ids=[gone])
        assert not list((folder / "derived").iterdir())
    kept, _ = HNSWVectorStore.load(folder / "derived" / "semantic.hnsw")
    assert gone not in kept
    check_right(make, folder)
