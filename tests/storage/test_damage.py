"""A damaged, cut-off, foreign or newer file: a typed error, and not a byte is changed."""

from __future__ import annotations

import os
import sqlite3
import stat

import pytest

from fluxmem_local.errors import MemoryDamagedError, MemoryNotFoundError, SchemaVersionError, StorageError
from fluxmem_local.memory_store import MemoryStore, layer_index
from fluxmem_local.storage.turns import ProcessLine
from fluxmem_local.types import Layer


def folder_of(make, tmp_path, number=40):
    path = tmp_path / "memory"
    make.filled(path, *(f"fact number {i} about subject {i * 7}" for i in range(number))).close()
    return path


def test_missing_folder_is_named_with_the_command(tmp_path):
    with pytest.raises(MemoryNotFoundError, match=r"nowhere.*fluxmem init"):
        MemoryStore.open(tmp_path / "nowhere", create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"hello, this is no database at all" * 10, b"SQLite format 3\x00"])
def test_file_that_is_no_database_stays_as_it_is(tmp_path, content):
    file = tmp_path / "memory.sqlite3"
    file.write_bytes(content)
    with pytest.raises(MemoryDamagedError, match="no SQLite database"):
        MemoryStore.open(tmp_path)
    assert file.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["memory.sqlite3"]


def test_database_of_another_program_stays_as_it_is(tmp_path):
    file = tmp_path / "memory.sqlite3"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    with pytest.raises(MemoryDamagedError, match="another program"):
        MemoryStore.open(tmp_path)
    assert file.read_bytes() == before


def test_cut_off_file_is_noticed_when_opened(make, tmp_path):
    file = folder_of(make, tmp_path) / "memory.sqlite3"
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size // 2)
    before = file.read_bytes()
    with pytest.raises(MemoryDamagedError, match="cut off"):
        make.open(file.parent)
    assert file.read_bytes() == before


def test_overwritten_pages_are_a_typed_error(make, tmp_path):
    file = folder_of(make, tmp_path, 300) / "memory.sqlite3"
    content = bytearray(file.read_bytes())
    content[4096 : len(content)] = os.urandom(len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(MemoryDamagedError, match="damaged"), make.open(file.parent) as store:
        store.select()
    assert file.read_bytes() == bytes(content)


def test_newer_schema_names_the_upgrade(make, tmp_path):
    file = folder_of(make, tmp_path) / "memory.sqlite3"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(SchemaVersionError, match=r"99.*upgrade"):
        make.open(file.parent)


def test_log_without_its_database_is_not_started_over(make, tmp_path):
    path = tmp_path / "memory"
    path.mkdir()
    (path / "memory.sqlite3-wal").write_bytes(b"x" * 100)
    with pytest.raises(MemoryDamagedError, match="is gone"):
        make.open(path)


def test_path_that_is_a_file(tmp_path):
    (tmp_path / "f").write_text("x")
    with pytest.raises(MemoryDamagedError, match="no memory"):
        MemoryStore.open(tmp_path / "f")


def test_only_the_owner_may_read(make, tmp_path, monkeypatch):
    monkeypatch.setattr(layer_index, "_WORTH_SAVING", 8)
    old = os.umask(0)
    try:
        path = folder_of(make, tmp_path)
        with make.open(path) as store:
            store.nearest(Layer.SEMANTIC, make.vector("fact"), 1)
            with store.transaction() as transaction, ProcessLine(path).joined():
                transaction.add_nodes([make.fact("one more")])
                modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.rglob("*")}
            store.backup(tmp_path / "backup")
    finally:
        os.umask(old)
    modes |= {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.rglob("*")}
    assert modes.pop("derived") == stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {name for name in modes if not name.startswith("write.turn.")} == {
        *("memory.sqlite3", "memory.sqlite3-wal", "memory.sqlite3-shm"),
        *("write.lock", "write.holder.json", "semantic.hnsw"),
    }
    assert len(modes) == 7
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "backup" / "memory.sqlite3").stat().st_mode) == 0o600


def test_full_disk_changes_nothing(make, tmp_path):
    with make.filled(tmp_path / "memory", "a fact") as store:
        before = list(store.export_lines())
        store.database._writer.execute("PRAGMA max_page_count = 1").fetchall()
        with pytest.raises(StorageError, match=r"full.*free space"), store.transaction() as transaction:
            transaction.add_nodes([make.fact(f"fact {i} " + "long " * 500) for i in range(200)])
        store.database._writer.execute("PRAGMA max_page_count = 1000000").fetchall()
        assert list(store.export_lines()) == before
        with store.transaction() as transaction:
            transaction.add_nodes([make.fact("room again")])
        assert store.count() == 2
        assert store.verify().problems == ()


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "f").write_text("x")
    with pytest.raises(StorageError, match="cannot make"):
        MemoryStore.open(tmp_path / "f" / "memory")


def test_closed_memory_says_so(make, tmp_path):
    store = make.open(tmp_path / "m")
    store.close()
    store.close()
    with pytest.raises(StorageError, match="closed"):
        store.select()


@pytest.mark.parametrize("harm", ["garbage", "cut", "stale", "missing"])
def test_derived_files_are_never_trusted(make, tmp_path, monkeypatch, harm):
    monkeypatch.setattr("fluxmem_local.memory_store.layer_index._WORTH_SAVING", 10)
    path = tmp_path / "memory"
    store = make.filled(path, *(f"fact number {i} about subject {i * 7}" for i in range(40)))
    old = store.nearest(Layer.SEMANTIC, make.vector("fact number 3"), 40)
    store.close()
    file = path / "derived" / "semantic.hnsw"
    content = file.read_bytes()
    if harm == "stale":
        with make.open(path) as store:
            gone = store.select()[0].id
            with store.transaction() as transaction:
                transaction.delete_nodes([gone])
                transaction.add_nodes([make.fact("something new entirely")])
            store.nearest(Layer.SEMANTIC, make.vector("new"), 1)
    file.unlink()
    if harm != "missing":
        file.write_bytes({"garbage": b"no index", "cut": content[: len(content) // 2], "stale": content}[harm])
    with make.open(path) as store:
        hits = store.nearest(Layer.SEMANTIC, make.vector("fact number 3"), 40)
        assert store.verify().problems == ()
        if harm == "stale":
            assert gone not in [id for id, _ in hits]
            assert len(hits) == 40
        else:
            assert hits == old
