"""Backup of a memory at work, and a memory made from it: one committed state, equal results, nothing overwritten."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local import FluxMem, FluxMemAgent
from fluxmem_local.errors import InvalidInputError, MemoryDamagedError, MemoryNotFoundError, SchemaVersionError
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.testing import HashEmbedder

from .test_lock import start

PAIRS = """
import sys
from fluxmem_local.graph import EpisodicNode, GroundEdge, SemanticNode
from fluxmem_local.memory_store import MemoryStore
store = MemoryStore.open(sys.argv[1])
for number in range(100000):
    fact, episode = SemanticNode(content=f"fact {number}"), EpisodicNode(content=f"task {number}")
    with store.transaction() as transaction:
        transaction.add_nodes([fact, episode])
        transaction.add_edges([GroundEdge(source_id=fact.id, target_id=episode.id)])
    print(number, flush=True)
"""


async def lived(path: Path | None) -> FluxMemAgent:
    agent = FluxMemAgent(None, HashEmbedder(64), path=path)
    for place, colour in (("gate", "green"), ("door", "red"), ("chest", "blue")):
        await agent.add_knowledge(f"the {place} opens with the {colour} key", source="keys.md")
    (id,) = await agent.add_knowledge("the well is dry", source="well.md", metadata={"depth": 9})
    await agent.update(id, "the well is full")
    for place in ("gate", "door", "chest"):
        hits = await agent.retrieve(place)
        await agent.record_episode(f"open the {place}", [("locked", "turned")], True, used_ids=[hits[0].node.id])
    await agent.consolidate()
    return agent


async def results(agent: FluxMemAgent) -> Any:
    layers = ("semantic", "episodic", "procedural")
    queries = ("gate", "which key opens the door", "well", "open the chest")
    return [
        [(hit.node, hit.score, dict(hit.signals)) for hit in await agent.retrieve(query, top_k=9, layers=layers)]
        for query in queries
    ]


def plain(found: Any) -> Any:
    return [[(node.id, node.content, score, signals) for node, score, signals in hits] for hits in found]


async def test_a_restored_backup_gives_equal_results(tmp_path: Path) -> None:
    async with await lived(tmp_path / "m") as agent:
        (tmp_path / "m" / "fluxmem.toml").write_text("top_k_semantic = 7\n")
        report = agent.backup(tmp_path / "backup")
        assert (report.num_nodes, report.num_edges) == (agent.store.count(), len(agent.store.edges()))
        before, lines = plain(await results(agent)), list(agent.store.export_lines())
        await agent.add_knowledge("a later fact")
    assert sorted(file.name for file in (tmp_path / "backup").iterdir()) == ["fluxmem.toml", "memory.sqlite3"]
    copied = (tmp_path / "backup" / "memory.sqlite3").read_bytes()
    again = FluxMemAgent.restore(tmp_path / "backup", tmp_path / "again")
    assert (again.num_nodes, again.num_edges) == (report.num_nodes, report.num_edges)
    async with FluxMemAgent(None, HashEmbedder(64), path=tmp_path / "again", create=False) as agent:
        assert plain(await results(agent)) == before
        assert list(agent.store.export_lines()) == lines
        assert agent.verify().problems == ()
        assert agent.config.top_k_semantic == 7
    assert (tmp_path / "backup" / "memory.sqlite3").read_bytes() == copied
    for folder in ("backup", "again"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / folder).iterdir()} == {0o600}


async def test_a_memory_in_ram_can_be_backed_up(tmp_path: Path) -> None:
    async with await lived(None) as agent:
        before = plain(await results(agent))
        agent.backup(tmp_path / "backup")
    async with FluxMemAgent(None, HashEmbedder(64), path=tmp_path / "backup") as agent:
        assert plain(await results(agent)) == before


def test_backups_while_a_writer_works_hold_whole_commits(tmp_path: Path) -> None:
    writer = start(PAIRS, tmp_path / "m")
    try:
        with_at_least = []
        for number in range(8):
            for _ in range(20):
                acknowledged = int(writer.stdout.readline())
            with MemoryStore.open(tmp_path / "m") as store:
                store.backup(tmp_path / f"backup {number}")
            with_at_least.append(acknowledged + 1)
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate(timeout=60)
    for number, least in enumerate(with_at_least):
        with MemoryStore.open(tmp_path / f"backup {number}", create=False) as store:
            stats = store.stats()
            assert stats["num_semantic_nodes"] == stats["num_episodic_nodes"] == stats["num_ground_edges"] >= least
            assert {f"fact {each}" for each in range(least)} <= {node.content for node in store.select()}
            assert store.verify().problems == ()


def test_nothing_is_overwritten(make: Any, tmp_path: Path) -> None:
    make.filled(tmp_path / "other", "theirs").close()
    before = (tmp_path / "other" / "memory.sqlite3").read_bytes()
    (tmp_path / "file").write_text("x")
    with make.filled(tmp_path / "m", "mine") as store:
        for place in ("other", "file", "m"):
            with pytest.raises(InvalidInputError, match="is not empty: nothing there was changed"):
                store.backup(tmp_path / place)
        with pytest.raises(InvalidInputError, match="after the transaction"), store.transaction():
            store.backup(tmp_path / "new")
        store.backup(tmp_path / "backup")
    with pytest.raises(InvalidInputError, match="is not empty"):
        FluxMem.restore(tmp_path / "backup", tmp_path / "other")
    with pytest.raises(MemoryNotFoundError, match="name a folder that `fluxmem backup` wrote"):
        FluxMem.restore(tmp_path / "nowhere", tmp_path / "new")
    assert (tmp_path / "other" / "memory.sqlite3").read_bytes() == before
    assert not (tmp_path / "new").exists()


def test_a_damaged_or_newer_backup_makes_no_memory(make: Any, tmp_path: Path) -> None:
    with make.filled(tmp_path / "m", *(f"fact {number} " * 50 for number in range(100))) as store:
        store.backup(tmp_path / "backup")
    file = tmp_path / "backup" / "memory.sqlite3"
    whole = file.read_bytes()
    file.write_bytes(whole[: 4096 * 20] + bytes(4096 * 5) + whole[4096 * 25 :])
    with pytest.raises(MemoryDamagedError, match=r"no copy of it was kept; .*verify --salvage"):
        FluxMem.restore(tmp_path / "backup", tmp_path / "again")
    file.write_bytes(whole)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(SchemaVersionError, match="99"):
        FluxMem.restore(tmp_path / "backup", tmp_path / "again")
    assert not (tmp_path / "again" / "memory.sqlite3").exists()


def test_a_backup_and_its_memory_do_not_take_each_others_log(make: Any, tmp_path: Path) -> None:
    with make.filled(tmp_path / "m", "a fact") as store:
        store.backup(tmp_path / "backup")
        mine = store._rows("SELECT uuid FROM identity", [])[0][0]
    with make.open(tmp_path / "backup") as store:
        assert store._rows("SELECT uuid FROM identity", [])[0][0] != mine


def test_the_commands(make: Any, tmp_path: Path) -> None:
    make.filled(tmp_path / "m", "one", "two").close()
    environment = {"FLUXMEM_EMBEDDING_MODEL": "none", "FLUXMEM_LLM_MODEL": "none"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        from click.testing import CliRunner

        from fluxmem_local.cli.main import cli

        done = CliRunner(env=environment).invoke(cli, list(arguments))
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    memory, copy, again = (str(tmp_path / name) for name in ("m", "backup", "again"))
    report = json.loads(run("--memory", memory, "--json", "backup", copy).stdout)
    assert (report["path"], report["num_nodes"], report["num_edges"]) == (copy, 2, 0)
    assert run("--memory", again, "restore", copy).stdout.startswith(f"{again}: 2 memories, ")
    assert json.loads(run("--memory", again, "--json", "stats").stdout)["num_semantic_nodes"] == 2
    refused = run("--memory", again, "restore", copy)
    assert (refused.returncode, "is not empty" in refused.stderr) == (2, True)
