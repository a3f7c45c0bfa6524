"""All that a memory writes is readable and writable by its owner alone, and nothing that is read is executed."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

import fluxmem_local
from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.graph import ProceduralNode, SemanticNode
from fluxmem_local.storage import skill_md
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer
from tests.cli.conftest import Fluxmem, fluxmem

__all__ = ["fluxmem"]

PACKAGE = Path(fluxmem_local.__file__).parent


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """List what others than the owner may do anything with."""
    return {
        str(path.relative_to(folder)): oct(stat.S_IMODE(path.lstat().st_mode))
        for path in [folder, *folder.rglob("*")]
        if stat.S_IMODE(path.lstat().st_mode) & 0o077
    }


@pytest.mark.usefixtures("open_umask")
async def test_every_file_and_folder_of_a_memory_is_the_owners(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "memory"
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2100, 16))
    nodes = [SemanticNode(content=f"number {place}", embedding=row) for place, row in enumerate(rows)]
    seen: set[str] = set()
    for _ in range(2):
        async with FluxMemAgent(None, HashEmbedder(16), path=folder) as agent:
            await agent.add_knowledge_nodes(nodes)
            await agent.retrieve("number 7", layers=tuple(Layer))
            seen |= {path.name for path in folder.rglob("*")}
            assert open_to_others(folder) == {}
            if not (tmp_path / "backup").exists():
                agent.backup(tmp_path / "backup")
        assert open_to_others(folder) == {}
    assert seen >= {"memory.sqlite3", "memory.sqlite3-wal", "memory.sqlite3-shm", "write.lock", "write.holder.json"}
    assert (folder / "derived" / "semantic.hnsw").exists()
    FluxMemAgent.restore(tmp_path / "backup", tmp_path / "restored")
    FluxMemAgent.salvage(folder, tmp_path / "salvaged")
    async with FluxMemAgent(None, HashEmbedder(16), path=folder) as agent:
        await agent.forget([node.id for node in nodes[:5]], purge=True)
    for place in ("backup", "restored", "salvaged", "data/memory"):
        assert open_to_others(tmp_path / place) == {}, place


@pytest.mark.usefixtures("open_umask")
def test_what_the_command_line_writes_is_the_owners(fluxmem: Fluxmem, tmp_path: Path) -> None:
    fluxmem("add", "-", stdin="The lease ends in May.")
    with FluxMemAgent.open(fluxmem.memory, llm=None, embedder=None) as agent, agent.store.transaction() as change:
        change.add_nodes([ProceduralNode(skill_text="turn the key", embedding=HashEmbedder(64)._embed("turn"))])
    places = {
        "export": ("export", "--output", str(tmp_path / "out.jsonl")),
        "graph": ("graph", "--output", str(tmp_path / "graph.html")),
        "report": ("consolidate", "--report", str(tmp_path / "report.html")),
        "backup": ("backup", str(tmp_path / "copy")),
        "skills": ("skills", "export", str(tmp_path / "skills"), "--force"),
    }
    fluxmem.llm = None
    for arguments in places.values():
        fluxmem(*arguments)
    written = [path for path in tmp_path.iterdir() if path.name in {"out.jsonl", "graph.html", "report.html"}]
    assert len(written) == 3
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in written} == {
        path.name: "0o600" for path in written
    }
    for name in ("copy", "skills", "memory"):
        assert open_to_others(tmp_path / name) == {}, name


# Modules that run code when they read data, and calls that do unless told otherwise.
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle"}
UNSAFE_CALLS = {"eval", "exec", "compile", "torch.load", "np.load", "numpy.load", "yaml.load", "yaml.unsafe_load"}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def dotted(node: ast.expr) -> str:
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_nothing_is_unpickled_anywhere() -> None:
    assert issubclass(skill_md._Loader, yaml.SafeLoader)
    safe = {"skill_md.py": {"yaml.load"}}
    found = []
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            found += [(path.name, name) for name in names if name in UNSAFE_MODULES]
            if isinstance(node, ast.Call) and dotted(node.func) in UNSAFE_CALLS - safe.get(path.name, set()):
                found.append((path.name, dotted(node.func)))
            # To say that it is not done is fine.
            refused = isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant) and not node.value.value
            if isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "trust_remote_code") and not refused:
                found.append((path.name, str(node.arg)))
    assert len(sources()) > 150
    assert found == []


def test_hnswlib_reads_only_what_was_checked() -> None:
    """Only one file hands bytes to hnswlib, after header, checksum and every size in them were looked at."""
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("load_index", "__setstate__")
    }
    assert readers == {"index/graph.py"}
