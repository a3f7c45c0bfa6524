"""Salvage copies out what can be read, and nothing that was not stored: never a text or a vector under another id."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fluxmem_local import FluxMem
from fluxmem_local.cli.main import cli
from fluxmem_local.errors import InvalidInputError, MemoryDamagedError, MemoryNotFoundError
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import Layer

from .test_backup import lived
from .test_schema import old_memory

NUM_FACTS = 120


def big_memory(make: Any, folder: Path, *, crashed: bool) -> dict[str, tuple[str, list[float]]]:
    """Make a memory of many pages, with long texts; return its texts and vectors by id."""
    place = folder.with_name("at work") if crashed else folder
    with make.open(place) as store:
        for number in range(NUM_FACTS):
            long = f" and {number * 7}" * (900 if number % 10 == 0 else 3)
            with store.transaction() as transaction:
                transaction.add_nodes(
                    [make.fact(f"fact {number}{long}", source=f"{number}.md", metadata={"n": number})]
                )
        known = {node.id: (node.content, node.embedding.tolist()) for node in store.select()}
        if crashed:
            shutil.copytree(place, folder, ignore=shutil.ignore_patterns("*-shm"))
    return known


def check(store: MemoryStore, known: dict[str, tuple[str, list[float]]]) -> int:
    nodes = store.select()
    for node in nodes:
        content, vector = known[node.id]
        assert node.content == content
        assert node.embedding is None or node.embedding.tolist() == vector
    assert store.verify().problems == ()
    return len(nodes)


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "with a log"])
def test_of_a_whole_memory_it_copies_everything(make: Any, tmp_path: Path, crashed: bool) -> None:
    known = big_memory(make, tmp_path / "m", crashed=crashed)
    before = {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()}
    salvaged = MemoryStore.salvage(tmp_path / "m", tmp_path / "out")
    assert (salvaged.num_nodes, salvaged.num_damaged, salvaged.num_missing, salvaged.num_unembedded) == (
        NUM_FACTS,
        *(0, 0, 0),
    )
    assert {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()} == before
    with make.open(tmp_path / "m") as old, make.open(tmp_path / "out") as new:
        assert check(new, known) == NUM_FACTS
        assert list(new.export_lines()) == list(old.export_lines())


async def test_of_a_lived_memory_it_copies_every_kind_of_row(tmp_path: Path) -> None:
    async with await lived(tmp_path / "m") as agent:
        await agent.forget([(await agent.retrieve("the chest"))[0].node.id])
        agent.store.begin_reembedding("other", 8)
        lines = list(agent.store.export_lines())
    assert {json.loads(line)["type"] for line in lines} >= {
        "node",
        "mention",
        "edge",
        "outcome",
        "version",
        "forgotten",
    }
    FluxMem.salvage(tmp_path / "m", tmp_path / "out")
    with MemoryStore.open(tmp_path / "out") as store:
        assert list(store.export_lines()) == lines
        assert store.verify().problems == ()


@pytest.mark.parametrize("harm", ["first page", "middle", "cut in half", "noise", "log of another"])
def test_what_is_left_of_a_damaged_memory_is_right(make: Any, tmp_path: Path, harm: str) -> None:
    known = big_memory(make, tmp_path / "m", crashed=harm == "log of another")
    file = tmp_path / "m" / "memory.sqlite3"
    content = bytearray(file.read_bytes())
    chance = random.Random(7)
    if harm == "first page":
        content[:4096] = bytes(4096)
    elif harm == "middle":
        middle = len(content) // 8192 * 4096
        content[middle : middle + 5 * 4096] = chance.randbytes(5 * 4096)
    elif harm == "cut in half":
        del content[len(content) // 2 :]
    elif harm == "noise":
        for _ in range(300):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    else:
        with make.filled(tmp_path / "other", "theirs") as other:
            with other.transaction() as transaction:
                transaction.add_nodes([make.fact("theirs too")])
            shutil.copy(tmp_path / "other" / "memory.sqlite3-wal", tmp_path / "m" / "memory.sqlite3-wal")
    file.write_bytes(content)
    salvaged = MemoryStore.salvage(tmp_path / "m", tmp_path / "out")
    with make.open(tmp_path / "out") as store:
        found = check(store, known)
        assert found == salvaged.num_nodes
        # With the log that is gone went what was in no page of the file yet.
        assert (1 if harm == "log of another" else NUM_FACTS // 4) <= found <= NUM_FACTS
        some = store.select()[0]
        assert store.lexical(Layer.SEMANTIC, some.content, 200) != []
    assert bytes(content) == file.read_bytes()


def test_there_must_be_something_and_room_for_it(make: Any, tmp_path: Path) -> None:
    make.filled(tmp_path / "m", "a fact").close()
    with pytest.raises(MemoryNotFoundError, match="the folder of the damaged one"):
        MemoryStore.salvage(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(InvalidInputError, match="is not empty"):
        MemoryStore.salvage(tmp_path / "m", tmp_path / "m")
    (tmp_path / "m" / "memory.sqlite3").write_bytes(b"")
    with pytest.raises(MemoryDamagedError, match="no memory can be read any more"):
        MemoryStore.salvage(tmp_path / "m", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command(make: Any, tmp_path: Path) -> None:
    make.filled(tmp_path / "m", "one", "two").close()
    file = tmp_path / "m" / "memory.sqlite3"
    content = bytearray(file.read_bytes())
    content[:4096] = bytes(4096)
    file.write_bytes(content)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ["--memory", str(tmp_path / "m"), *arguments])

    refused = run("stats")
    assert (refused.exit_code, "fluxmem verify --salvage DIR" in refused.stderr) == (4, True)
    assert run("verify", "--salvage", str(tmp_path / "out")).stdout == f"{tmp_path / 'out'}: 2 memories, 0 links\n"
    report = json.loads(run("--json", "verify", "--salvage", str(tmp_path / "again")).stdout)
    assert (report["num_nodes"], report["num_damaged"], report["num_unembedded"]) == (2, 0, 0)


def test_a_memory_of_an_older_schema(make: Any, tmp_path: Path) -> None:
    texts = old_memory(make, tmp_path / "m")
    salvaged = MemoryStore.salvage(tmp_path / "m", tmp_path / "out")
    assert (salvaged.num_nodes, salvaged.num_damaged, salvaged.num_unembedded) == (3, 0, 0)
    with make.open(tmp_path / "out") as store:
        assert {node.id: node.content for node in store.select()} == texts
        assert store.verify().problems == ()
