"""Older tables are brought forward after a copy of them; newer ones and another memory's log are refused."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.errors import MemoryDamagedError, StorageError
from fluxmem_local.graph import SemanticNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.storage import database
from fluxmem_local.storage.schema import _FIRST, _SECOND, _THIRD, APPLICATION_ID, SCHEMA_VERSION

TEXTS = ("the lease ends in May", "rent is 900", "the gate is green")


def old_memory(make: Any, folder: Path) -> dict[str, str]:
    """Make a memory of the third schema, with vectors; return its texts by id."""
    with make.filled(folder.with_name("new"), *TEXTS) as store:
        rows = [tuple(row)[:20] for row in store._rows("SELECT * FROM nodes ORDER BY key", [])]
        facts = [tuple(row) for row in store._rows("SELECT key, value FROM meta", [])]
    folder.mkdir()
    with closing(sqlite3.connect(folder / "memory.sqlite3")) as connection:
        connection.executescript(
            f"PRAGMA application_id = {APPLICATION_ID}; BEGIN; {_FIRST}{_SECOND}{_THIRD} PRAGMA user_version = 3; "
            "COMMIT; PRAGMA journal_mode = WAL; INSERT INTO meta VALUES ('uuid', 'x');"
        )
        connection.executemany(f"INSERT INTO nodes VALUES ({', '.join('?' * 20)})", rows)
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts)
        connection.commit()
    return {row[1]: row[16] for row in rows}


def version_of(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_an_older_memory_is_copied_and_then_brought_forward(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    texts = old_memory(make, folder)
    with make.open(folder) as store:
        assert {node.id: node.content for node in store.select()} == texts
        assert store.verify().problems == ()
        sums = store._rows("SELECT count(content_sum), count(vector_sum) FROM nodes", [])[0]
        assert tuple(sums) == (3, 3)
    copy = folder / "memory.schema-3.sqlite3"
    assert (version_of(copy), version_of(folder / "memory.sqlite3")) == (3, SCHEMA_VERSION)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert dict(connection.execute("SELECT id, content FROM nodes")) == texts
    # A second opening makes no copy of what is new already.
    copy.unlink()
    make.open(folder).close()
    assert not copy.exists()


def test_without_room_for_the_copy_the_old_memory_stays(make: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "old"
    old_memory(make, folder)

    def full(*_arguments: Any) -> None:
        raise StorageError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(database, "copy_of", full)
        with pytest.raises(StorageError, match="no room"):
            make.open(folder)
    assert version_of(folder / "memory.sqlite3") == 3
    with make.open(folder) as store:
        assert store.count() == 3


def test_forgetting_takes_the_copy_of_the_old_tables_away(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    (first, *_) = old_memory(make, folder)
    with make.open(folder) as store:
        assert list(folder.glob("memory.schema-*"))
        store.forget(ids=[first])
        assert list(folder.glob("memory.schema-*")) == []
    assert all(TEXTS[0].encode() not in file.read_bytes() for file in folder.rglob("*") if file.is_file())


def running_copy(make: Any, folder: Path, *texts: str) -> Path:
    """Copy a memory, which has these texts in its log alone, as a crash would leave it."""
    copy = folder.with_name(f"{folder.name}-crashed")
    make.filled(folder).close()
    with make.open(folder) as store, store.transaction() as transaction:
        transaction.add_nodes([make.fact(text) for text in texts])
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
    with make.open(folder) as store:
        with store.transaction() as transaction:
            transaction.add_nodes([make.fact("one more")])
        shutil.rmtree(copy)
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
    return copy


def test_the_log_of_another_memory_is_refused(make: Any, tmp_path: Path) -> None:
    mine = running_copy(make, tmp_path / "mine", "my own fact", "my other fact")
    other = running_copy(make, tmp_path / "other", "a fact of somebody else", "and another")
    with make.open(shutil.copytree(mine, tmp_path / "whole")) as store:
        assert sorted(node.content for node in store.select()) == ["my other fact", "my own fact", "one more"]
    shutil.copy(other / "memory.sqlite3-wal", mine / "memory.sqlite3-wal")
    before = {file.name: file.read_bytes() for file in mine.iterdir()}
    with pytest.raises(MemoryDamagedError, match="the log of another memory; nothing was overwritten"):
        make.open(mine)
    assert {file.name: file.read_bytes() for file in mine.iterdir()} == before


def test_what_changes_nothing_is_no_commit(make: Any, tmp_path: Path) -> None:
    def commits(store: MemoryStore) -> int:
        return int(store._rows("SELECT commits FROM identity", [])[0][0])

    with make.filled(tmp_path / "m", "one") as store:
        before = commits(store)
        with store.transaction():
            pass
        assert commits(store) == before
        with store.transaction() as transaction:
            transaction.add_nodes([make.fact("two")])
            with store.transaction() as part:
                part.add_nodes([make.fact("three")])
        assert commits(store) == before + 1


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("UPDATE nodes SET content = 'the lease ends in Mai' WHERE content = 'a'", "its text is not the one"),
        ("UPDATE nodes SET embedding = zeroblob(128) WHERE content = 'a'", "the vector of node .* is damaged"),
        (
            "UPDATE nodes SET embedding = (SELECT embedding FROM nodes WHERE content = 'b'), "
            "vector_sum = (SELECT vector_sum FROM nodes WHERE content = 'b') WHERE content = 'a'",
            "the vector of node .* is damaged",
        ),
        ("UPDATE nodes SET id = 'other' WHERE content = 'a'", "its text is not the one that was stored under this id"),
    ],
)
def test_a_row_that_does_not_fit_its_checksums_is_not_shown(make: Any, tmp_path: Path, sql: str, message: str) -> None:
    make.filled(tmp_path / "m", "a", "b").close()
    with closing(sqlite3.connect(tmp_path / "m" / "memory.sqlite3")) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(sql)
        connection.commit()
    with make.open(tmp_path / "m") as store:
        with pytest.raises(MemoryDamagedError, match=message):
            store.select()
        assert not store.verify().ok


def test_a_damaged_vector_is_made_anew(make: Any, tmp_path: Path) -> None:
    with make.filled(tmp_path / "m", "a", "b") as store:
        with store.database.write() as connection:
            connection.execute("UPDATE nodes SET embedding = zeroblob(128) WHERE content = 'a'")
        (problem,) = store.verify().problems
        assert problem.endswith("has a damaged vector")
        assert store.verify(fix=True).ok
        (bare,) = store.unembedded(9)
        with store.transaction() as transaction:
            transaction.set_embeddings([bare.id], make.vector("a")[None, :])
        assert store.verify().problems == ()
        assert isinstance(store.get(bare.id), SemanticNode)
