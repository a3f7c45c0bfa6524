from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fluxmem_local.agent import agent as agent_module
from fluxmem_local.cli.main import cli
from fluxmem_local.testing import HashEmbedder, ScriptedLLM


class Fluxmem:
    """Runs the command on a memory of the test's own, with doubles in place of the configured models."""

    def __init__(self, memory: Path) -> None:
        self.memory = memory
        self.llm: ScriptedLLM | None = ScriptedLLM()

    def __call__(self, *arguments: str, stdin: str | bytes | None = None, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["--memory", str(self.memory), *arguments], input=stdin)
        assert result.exit_code == code, (result.output, result.stderr, result.exception)
        assert "Traceback" not in result.output + result.stderr
        return result

    def data(self, *arguments: str, stdin: str | bytes | None = None, code: int = 0) -> Any:
        return json.loads(self("--json", *arguments, stdin=stdin, code=code).stdout)


@pytest.fixture
def fluxmem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fluxmem:
    runner = Fluxmem(tmp_path / "memory")
    monkeypatch.setattr(agent_module, "build_embedder", lambda config: HashEmbedder(64))
    monkeypatch.setattr(agent_module, "build_llm", lambda config: runner.llm)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return runner


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make
