"""No connection leaves the machine, no thread stays, no file is written outside the memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.agent.sync import FluxMem
from fluxmem_local.errors import ModelNotFoundError
from fluxmem_local.testing import HashEmbedder, ScriptedLLM

# Runs in a process of its own, because only there an import is a first one. Nothing but loopback may be reached, and no
# name may be looked up; HOME and the current directory are watched.
PROGRAM = """
import asyncio, socket, sys, threading
from pathlib import Path

asked = []

def refuse(*arguments, **options):
    asked.append(arguments)
    raise PermissionError("no network")

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refuse)
socket.getaddrinfo = refuse
before = threading.active_count()

import fluxmem_local
from fluxmem_local.agent.sync import FluxMem
from fluxmem_local.testing import HashEmbedder, ScriptedLLM

with FluxMem(ScriptedLLM(), HashEmbedder(64), path=sys.argv[1]) as memory:
    for number in range(4):
        memory.add_knowledge(f"Table {number} holds the medals of country {number}.")
        memory.run_task(f"sum the medals of country {number}", lambda context: ("sorted the table", "", True))
    assert memory.retrieve("medals", top_k=2)
    memory.run_task("sum the medals of Mars", lambda context: ("", "error: no such table", False))
    memory.consolidate()
    memory.verify()
assert asked == [], asked
assert threading.active_count() == before, threading.enumerate()
"""


def test_nothing_leaves_the_machine_or_the_memory(tmp_path: Path) -> None:
    home, work, memory = tmp_path / "home", tmp_path / "work", tmp_path / "memory"
    home.mkdir()
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment |= {"HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(memory)],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(home.rglob("*")) == []
    assert list(work.rglob("*")) == []
    assert (memory / "memory.sqlite3").is_file()


def test_each_object_gives_its_thread_back(tmp_path: Path, no_network: list[Any]) -> None:
    before = threading.active_count()
    for number in range(3):
        with FluxMem(ScriptedLLM(), HashEmbedder(16), path=tmp_path / str(number)) as memory:
            memory.add_knowledge("One fact.")
            assert len(memory.retrieve("fact")) == 1
    assert threading.active_count() == before
    assert no_network == []


def test_a_missing_model_is_an_error_and_no_download(
    tmp_path: Path, no_network: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = tmp_path / "absent-model"
    monkeypatch.setenv("FLUXMEM_EMBEDDING_MODEL", str(absent))
    with pytest.raises(ModelNotFoundError, match="absent-model"):
        FluxMem.open(tmp_path / "m")
    assert no_network == []
    assert not (tmp_path / "m").exists()
