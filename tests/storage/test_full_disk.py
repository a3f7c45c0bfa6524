"""A full disk and a read-only one: a clear error, the memory as it was, and readable all the same."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local import FluxMem
from fluxmem_local.errors import StorageError
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer

MEBIBYTE = 2**20


def _mount(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two mebibytes."""
    place = tmp_path / "disk"
    place.mkdir()
    if not _mount("-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(place)):
        pytest.skip("this user may not mount a small disk")
    yield place
    assert subprocess.run(["umount", "--lazy", str(place)], check=False).returncode == 0


def fill(disk: Path) -> Path:
    """Leave no byte free."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (MEBIBYTE // 4, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast


def files_of(folder: Path) -> dict[str, bytes]:
    names = ("memory.sqlite3", "memory.sqlite3-wal")
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def contents(store: Any) -> list[str]:
    return [node.content for node in store.select()]


def test_a_writer_on_a_full_disk_changes_nothing_and_goes_on_when_there_is_room(make: Any, disk: Path) -> None:
    with make.filled(disk / "m", "a fact") as store:
        ballast = fill(disk)
        for _ in range(3):
            with pytest.raises(StorageError, match=r"full|free space"), store.transaction() as transaction:
                transaction.add_nodes([make.fact(f"fact {i} " + "long " * 500) for i in range(200)])
            assert contents(store) == ["a fact"]
            assert store.nearest(Layer.SEMANTIC, make.vector("a fact"), 1)[0][1] == 1
        ballast.unlink()
        with store.transaction() as transaction:
            transaction.add_nodes([make.fact("room again")])
        assert contents(store) == ["a fact", "room again"]
        assert store.verify().problems == ()


def test_a_closed_memory_on_a_full_disk_is_read(make: Any, disk: Path) -> None:
    make.filled(disk / "m", "a fact", "another fact").close()
    before = files_of(disk / "m")
    ballast = fill(disk)
    with make.open(disk / "m") as store:
        assert contents(store) == ["a fact", "another fact"]
        assert store.nearest(Layer.SEMANTIC, make.vector("another fact"), 1)[0][1] == 1
        assert store.lexical(Layer.SEMANTIC, "another", 5) != []
        assert store.verify().problems == ()
        assert len(list(store.export_lines())) > 2
        with (
            pytest.raises(StorageError, match=r"cannot .*: free|free space|No space left"),
            store.transaction() as writing,
        ):
            writing.add_nodes([make.fact("no room for this")])
        # A reader sees what is written once there is room, without opening again.
        ballast.unlink()
        with make.open(disk / "m") as other, other.transaction() as writing:
            writing.add_nodes([make.fact("room again")])
        assert contents(store) == ["a fact", "another fact", "room again"]
    assert before["memory.sqlite3"] != files_of(disk / "m")["memory.sqlite3"]


def test_a_memory_that_a_crash_left_with_a_log_is_read_on_a_full_disk(make: Any, disk: Path, tmp_path: Path) -> None:
    with make.filled(tmp_path / "m", "a fact") as store:
        with store.transaction() as transaction:
            transaction.add_nodes([make.fact("in the log alone")])
        shutil.copytree(tmp_path / "m", disk / "m", ignore=shutil.ignore_patterns("*-shm"))
    ballast = fill(disk)
    with make.open(disk / "m") as store:
        assert contents(store) == ["a fact", "in the log alone"]
    ballast.unlink()
    with make.open(disk / "m") as store:
        assert contents(store) == ["a fact", "in the log alone"]
        assert store.verify().problems == ()


def test_what_runs_full_half_way_leaves_nothing(make: Any, disk: Path, tmp_path: Path) -> None:
    with make.open(tmp_path / "big") as store:
        with store.transaction() as transaction:
            transaction.add_nodes([make.fact(f"fact {i} " + f"word{i} " * 300) for i in range(400)])
        lines = list(store.export_lines())
        with pytest.raises(StorageError, match=r"full|No space left"):
            store.backup(disk / "backup")
        assert list((disk / "backup").iterdir()) == []
    with make.open(disk / "m") as store:
        with store.transaction() as transaction:
            transaction.add_nodes([make.fact("a fact")])
        with pytest.raises(StorageError, match=r"full|free space"):
            store.import_lines(lines)
        assert contents(store) == ["a fact"]
        assert store.verify().problems == ()
    fill(disk)
    with pytest.raises(StorageError, match=r"full|No space left|cannot"):
        make.open(disk / "new")


def test_a_read_only_disk(make: Any, disk: Path) -> None:
    folder = disk / "m"
    with FluxMem(None, HashEmbedder(32), path=folder) as memory:
        memory.add_knowledge("the lease ends in May")
    before = files_of(folder)
    if not _mount("-o", "remount,ro", str(disk)):
        pytest.skip("this user may not mount a disk read-only")
    with FluxMem(None, HashEmbedder(32), path=folder) as memory:
        assert [hit.node.content for hit in memory.retrieve("lease")] == ["the lease ends in May"]
        assert memory.verify().problems == ()
        with pytest.raises(StorageError, match="read-only medium; nothing was changed"):
            memory.add_knowledge("more")
        with pytest.raises(StorageError, match="cannot make"):
            memory.backup(disk / "backup")
    assert files_of(folder) == before


LIMITED = """
import resource, signal, sys
from fluxmem_local.errors import StorageError
from fluxmem_local.graph import SemanticNode
from fluxmem_local.memory_store import MemoryStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with MemoryStore.open(sys.argv[1]) as store:
    with store.transaction() as transaction:
        transaction.add_nodes([SemanticNode(content="a fact")])
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
    failed = 0
    for number in range(50):
        try:
            with store.transaction() as transaction:
                transaction.add_nodes([SemanticNode(content=f"{number} {each} " + "word " * 900) for each in range(20)])
        except StorageError as error:
            failed += 1
            assert "free space" in str(error), error
    numbers = {node.content.split()[0] for node in store.select() if node.content != "a fact"}
    print(failed, len(numbers), store.count(), store.verify().problems)
"""


def test_a_limit_on_the_size_of_files_is_met_as_a_full_disk(tmp_path: Path) -> None:
    if not hasattr(signal, "SIGXFSZ"):
        pytest.skip("the system has no such limit")
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "m")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    failed, batches, count, problems = done.stdout.strip().split(" ", 3)
    assert int(failed) + int(batches) == 50
    assert int(failed) > 0
    assert (int(count), problems) == (1 + 20 * int(batches), "()")
