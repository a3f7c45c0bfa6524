"""Derived files: used when they are known to show an older state of this very memory, made anew otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.errors import MemoryDamagedError
from fluxmem_local.index import HNSWVectorStore, LexicalIndex
from fluxmem_local.memory_store import MemoryStore, layer_index
from fluxmem_local.memory_store import store as memory_store_module
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
            mine = {file: file.read_bytes() for file in (folder / "derived").iterdir()}
            shutil.rmtree(folder)
            shutil.copytree(older, folder)
    assert {file.suffix for file in mine} == {".hnsw", ".words"}
    for file, content in mine.items():
        file.write_bytes(content)
    rows_read.clear()
    check_right(make, folder)
    assert rows_read[0] == -1


def test_words_of_the_file_are_used_and_only_newer_ones_are_read(
    make: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    plain = LexicalIndex.add

    def noted(index: LexicalIndex, id: str, tokens: Any) -> None:
        read.append(id)
        plain(index, id, tokens)

    monkeypatch.setattr(LexicalIndex, "add", noted)
    with make.open(folder) as store:
        with store.transaction() as transaction:
            ids = transaction.add_nodes(facts(make, "new", range(3)))
            transaction.delete_nodes([store.select()[0].id])
        found(make, store)
        assert read == ids
    check_right(make, folder)


def test_many_new_texts_are_added_at_once(make: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_index, "_MANY", 5)
    monkeypatch.setattr(LexicalIndex, "add", None)
    with make.open(folder) as store:
        found(make, store)
        add(make, store, "new", range(20))
        with store.transaction() as transaction:
            transaction.delete_nodes([node.id for node in store.select()[38:42]])
        found(make, store)
    check_right(make, folder)


@pytest.mark.parametrize("harm", ["cut", "changed", "another memory's", "missing"])
def test_a_harmed_file_of_words_is_made_anew(make: Any, folder: Path, tmp_path: Path, harm: str) -> None:
    with make.open(folder) as store:
        shown = found(make, store)
    with make.open(tmp_path / "other") as store:
        add(make, store, "other", range(40))
        found(make, store)
    file = folder / "derived" / "semantic.words"
    content = file.read_bytes()
    other = (tmp_path / "other" / "derived" / "semantic.words").read_bytes()
    file.write_bytes({"cut": content[:-9], "another memory's": other}.get(harm, content[:-9] + b"x" + content[-8:]))
    if harm == "missing":
        file.unlink()
    with make.open(folder) as store:
        assert found(make, store) == shown
    check_right(make, folder)


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
        with store.transaction() as transaction:
            (gone,) = transaction.add_nodes([make.fact("the subject is a secretword")])
        found(make, store)
    assert b"secretword" in (folder / "derived" / "semantic.words").read_bytes()
    with make.open(folder) as store:
        found(make, store)
        store.forget(ids=[gone])
        assert not list((folder / "derived").iterdir())
    kept, _ = HNSWVectorStore.load(folder / "derived" / "semantic.hnsw")
    assert gone not in kept
    words = (folder / "derived" / "semantic.words").read_bytes()
    assert gone.encode() not in words
    assert b"subject" in words
    assert b"secretword" not in words
    check_right(make, folder)


def test_a_large_commit_is_linked_at_once_and_the_end_waits_for_it(
    make: Any, folder: Path, rows_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_store_module, "_MANY_ADDED", 20)
    with make.open(folder) as store:
        add(make, store, "few", range(5))
        assert store._following is None
        rows_read.clear()
        for number in range(5):
            add(make, store, f"many {number}", range(20))
    assert rows_read
    kept, generation = HNSWVectorStore.load(folder / "derived" / "semantic.hnsw")
    assert (len(kept), generation) == (145, store_generation(make, folder))
    check_right(make, folder)


def test_a_large_commit_that_cannot_be_linked_is_kept(make: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_store_module, "_MANY_ADDED", 20)

    def fails(*_values: Any) -> None:
        raise MemoryDamagedError("no room in a test")

    with monkeypatch.context() as broken, make.open(folder) as store:
        broken.setattr(HNSWVectorStore, "add", fails)
        add(make, store, "many", range(20))
        store._following.join()
        broken.undo()
    check_right(make, folder)


def test_the_end_does_not_wait_for_another_writer_to_save_a_file(
    make: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_store_module, "_SAVING_PATIENCE_S", 0.01)
    shutil.rmtree(folder / "derived")
    with make.open(folder, lock_timeout_s=3600) as other, make.open(folder, lock_timeout_s=3600) as store:
        shown = found(make, store)
        with other.transaction():
            store.close()
        assert not (folder / "derived").exists()
        assert found(make, other) == shown
    assert len(list((folder / "derived").iterdir())) == 2


def store_generation(make: Any, folder: Path) -> int:
    with make.open(folder) as store:
        return int(store.stats()["generation"])
