"""A memory in a folder that may not be written: reading verbs read, writing ones say why not, and nothing changes."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local import FluxMem

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no modes of files here")

# Runs each command line that stdin lists, and prints what came of it.
SCRIPT = """
import json, os, sys
from click.testing import CliRunner
from fluxmem_local.cli.main import cli
folder, commands = json.load(sys.stdin)
assert not os.access(folder, os.W_OK), "writable"
done = [CliRunner().invoke(cli, ["--memory", folder, *command]) for command in commands]
print(json.dumps([[each.exit_code, each.stdout, each.stderr, repr(each.exception)] for each in done]))
"""
CANNOT = "may not be written by this user, or lies on a read-only medium; nothing was changed"


def _heed_modes() -> None:
    """Let a root user of Linux be bound by modes like anyone: without the capabilities that pass them over."""
    if os.geteuid() == 0:
        drop, override, search = 24, 1, 2
        for capability in (override, search):
            ctypes.CDLL(None).prctl(drop, capability, 0, 0, 0)


def _run(folder: Path, *commands: list[str]) -> list[Any]:
    root = str(Path(__file__).parents[2])
    off = {"FLUXMEM_EMBEDDING_MODEL": "none", "FLUXMEM_LLM_MODEL": "none"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([str(folder), commands]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root, **off},
        timeout=120,
        check=False,
        preexec_fn=_heed_modes,
    )
    if "AssertionError: writable" in done.stderr:
        pytest.skip("this user may write everywhere")
    assert done.returncode == 0, done.stderr
    results: list[Any] = json.loads(done.stdout)
    return results


def _bytes(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def _close_off(folder: Path) -> None:
    for file in folder.iterdir():
        file.chmod(0o400)
    folder.chmod(0o500)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A memory with one fact and an episode, closed and without the right to write; with the fact's id."""
    folder = tmp_path / "archive"
    with FluxMem(None, None, path=folder) as memory:
        (id,) = memory.add_knowledge("The lease ends in May.", source="a.txt")
        memory.record_episode("pay the rent", [("", "paid")], True, used_ids=[id])
    _close_off(folder)
    yield folder, id
    folder.chmod(0o700)


def test_every_verb_that_only_reads_works(archive: tuple[Path, str], tmp_path: Path) -> None:
    folder, id = archive
    before = _bytes(folder)
    commands = {
        "stats": (["stats"], "facts\t1"),
        "search": (["search", "lease"], "The lease ends in May."),
        "context": (["context", "lease"], "The lease ends in May."),
        "show": (["show", id], "The lease ends in May."),
        "history": (["history", id], "added"),
        "skills": (["skills", "list", "--all"], ""),
        "verify": (["verify"], "nothing is wrong"),
        "verify --fix": (["verify", "--fix"], "nothing is wrong"),
        "export": (["export"], "The lease ends in May."),
        "graph": (["graph", "-o", str(tmp_path / "graph.html")], "2 nodes"),
        "init": (["init"], "there is a memory already"),
        "consolidate": (["consolidate", "--dry-run"], "result\ta dry run: nothing was changed"),
    }
    results = _run(folder, *[command for command, _ in commands.values()])
    for (verb, (_, said)), (code, stdout, stderr, error) in zip(commands.items(), results, strict=True):
        assert (code, said in stdout) == (0, True), (verb, stdout, stderr, error)
    assert _bytes(folder) == before


def test_every_verb_that_writes_says_why_it_cannot_and_changes_nothing(
    archive: tuple[Path, str], tmp_path: Path
) -> None:
    folder, id = archive
    before = _bytes(folder)
    (tmp_path / "b.txt").write_text("Rent is 900.")
    (tmp_path / "episode.json").write_text('{"task": "plan", "success": true}')
    (tmp_path / "lines.jsonl").write_text("")
    commands = [
        ["add", str(tmp_path / "b.txt")],
        ["record", str(tmp_path / "episode.json")],
        ["update", id, "The lease ends in June."],
        ["forget", id, "--yes"],
        ["forget", id, "--dry-run"],
        ["run", "plan", "--", sys.executable, "-c", ""],
        ["consolidate"],
        ["import", str(tmp_path / "lines.jsonl")],
    ]
    for command, (code, stdout, stderr, error) in zip(commands, _run(folder, *commands), strict=True):
        assert (code, stdout) == (4, ""), (command, stderr, error)
        assert stderr.startswith(f"error: {folder} {CANNOT}"), command
        assert stderr.count("\n") == 1, command
    assert _bytes(folder) == before


def test_no_memory_is_made_where_nothing_may_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    ((code, _, stderr, _),) = _run(folder, ["init"])
    assert (code, stderr.startswith(f"error: cannot lock {folder}")) == (4, True)
    ((code, _, stderr, _),) = _run(folder, ["stats"])
    assert (code, "there is no memory at" in stderr) == (2, True)
    assert list(folder.iterdir()) == []


def test_what_a_writer_commits_is_read_while_it_has_the_memory_open(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    with FluxMem(None, None, path=folder) as memory:
        memory.add_knowledge("The lease ends in May.")
        _close_off(folder)
        ((code, stdout, _, error),) = _run(folder, ["search", "lease"])
        assert (code, "The lease ends in May." in stdout) == (0, True), error
        folder.chmod(0o700)


def test_a_log_that_was_left_behind_is_named(tmp_path: Path) -> None:
    folder, copy = tmp_path / "running", tmp_path / "copy"
    with FluxMem(None, None, path=folder) as memory:
        memory.add_knowledge("The lease ends in May.")
        # What a snapshot of the disk holds while a program has the memory open.
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
    _close_off(copy)
    before = _bytes(copy)
    ((code, _, stderr, _),) = _run(copy, ["stats"])
    assert (code, "its last changes are still in its log" in stderr) == (4, True), stderr
    assert _bytes(copy) == before
    for file in (copy, *copy.iterdir()):
        file.chmod(0o700)
    with FluxMem(None, None, path=copy) as memory:
        assert memory.stats["num_semantic_nodes"] == 1
