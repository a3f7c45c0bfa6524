from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.cli.main import cli
from fluxmem_local.cli.output import EXIT_CODES, exit_code
from fluxmem_local.errors import (
    BlankTextError,
    EmbedderMismatchError,
    MemoryDamagedError,
    MemoryLockedError,
    MemoryNotFoundError,
    ModelError,
    ModelNotFoundError,
    ModelOutputError,
    StorageError,
)
from fluxmem_local.graph import EpisodicNode
from fluxmem_local.types import Layer

from .conftest import Fluxmem

COMMAND = [sys.executable, "-c", "from fluxmem_local.cli.main import main; main()"]


def _verbs() -> list[tuple[str, ...]]:
    context = click.Context(cli)
    verbs: list[tuple[str, ...]] = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        verbs += [(name, inner) for inner in command.commands] if isinstance(command, click.Group) else [(name,)]
    return verbs


def _run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, **options.pop("env", {})}
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, env=environment, timeout=120, check=False, **options
    )


@pytest.mark.parametrize("verb", _verbs(), ids=" ".join)
def test_every_verb_has_help_with_an_example_and_the_shared_options(verb: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*verb, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"fluxmem {' '.join(verb)}" in result.stdout or "fluxmem --memory" in result.stdout
    assert "--json" in result.stdout
    assert "--memory" in result.stdout


def test_help_lists_verbs_and_exit_codes_as_they_are() -> None:
    text = CliRunner().invoke(cli, ["--help"]).stdout
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert name in text
    assert all(str(code) in text for code in EXIT_CODES)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BlankTextError(""), 2),
        (ModelNotFoundError(""), 2),
        (EmbedderMismatchError(""), 2),
        (ModelError(""), 3),
        (ModelOutputError(""), 3),
        (MemoryNotFoundError(""), 2),
        (StorageError(""), 4),
        (MemoryLockedError(""), 4),
        (MemoryDamagedError(""), 4),
        (PermissionError(""), 4),
    ],
)
def test_errors_have_the_documented_codes(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_options_stand_on_either_side_of_the_verb(fluxmem: Fluxmem, tmp_path: Path) -> None:
    other = tmp_path / "other"
    fluxmem("init", "--memory", str(other))
    assert other.is_dir()
    assert not fluxmem.memory.exists()
    assert CliRunner().invoke(cli, ["stats", "--memory", str(other), "--json"]).stdout.startswith("{")


def test_the_memory_may_come_from_the_environment(fluxmem: Fluxmem, tmp_path: Path) -> None:
    home = tmp_path / "from-home"
    result = CliRunner().invoke(cli, ["init"], env={"FLUXMEM_HOME": str(home)})
    assert result.exit_code == 0
    assert (home / "memory.sqlite3").is_file()


def test_bad_usage_ends_with_two() -> None:
    for arguments in (["nonsense"], ["add"], ["stats", "extra"], ["--unknown"]):
        assert CliRunner().invoke(cli, arguments).exit_code == 2


def test_a_file_that_is_no_database_is_left_alone(fluxmem: Fluxmem) -> None:
    fluxmem.memory.mkdir()
    file = fluxmem.memory / "memory.sqlite3"
    file.write_bytes(b"something else" * 100)
    result = fluxmem("stats", code=4)
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert file.read_bytes() == b"something else" * 100


def test_a_verb_without_models_imports_no_model_library(tmp_path: Path) -> None:
    memory = str(tmp_path / "m")
    code = (
        "import sys\n"
        "from fluxmem_local.cli.main import cli\n"
        "try:\n    cli.main(sys.argv[1:])\n"
        "except SystemExit as stop:\n    assert stop.code == 0, stop.code\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'sklearn', 'outlines', 'hnswlib', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    for arguments in (["init"], ["stats"], ["verify"], ["--help"], ["skills", "list"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "--memory", memory, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            timeout=120,
            check=True,
        )
        assert done.stderr.splitlines()[-1] == "[]", arguments


def test_the_real_command(tmp_path: Path) -> None:
    models_off = {"FLUXMEM_EMBEDDING_MODEL": "none", "FLUXMEM_LLM_MODEL": "none", "FLUXMEM_HOME": str(tmp_path / "m")}
    added = _run("add", "-", input="The lease ends in May.", env=models_off)
    assert (added.returncode, added.stdout, added.stderr) == (0, "facts: 1, new: 1, sources: 1\n", "")
    found = _run("search", "lease", env=models_off)
    assert "The lease ends in May." in found.stdout
    blank = _run("add", "-", input=" ", env=models_off)
    assert (blank.returncode, blank.stderr.startswith("error: ")) == (2, True)
    level = _run("stats", env={**models_off, "FLUXMEM_LOG_LEVEL": "loud"})
    assert (level.returncode, "FLUXMEM_LOG_LEVEL" in level.stderr) == (2, True)
    assert _run("stats", env={**models_off, "FLUXMEM_LOG_LEVEL": "debug"}).returncode == 0


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "FLUXMEM_EMBEDDING_MODEL": "none"}
    memory = str(tmp_path / "m")
    many = "".join(f'{{"text": "fact number {number}"}}\n' for number in range(3000))
    subprocess.run(
        [*COMMAND, "--memory", memory, "add", "-", "--jsonl"], input=many, text=True, env=env, check=True, timeout=120
    )
    process = subprocess.Popen(
        [*COMMAND, "--memory", memory, "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_missing_model_is_named_without_a_look_at_the_network(tmp_path: Path, no_network: list[Any]) -> None:
    absent = str(tmp_path / "no-model")
    result = _run("--memory", str(tmp_path / "m"), "add", "-", input="text", env={"FLUXMEM_EMBEDDING_MODEL": absent})
    assert result.returncode == 2
    assert absent in result.stderr
    assert "fluxmem models" in result.stderr
    assert not (tmp_path / "m").exists()


def test_a_second_writer_waits_and_then_says_who_holds_the_memory(tmp_path: Path) -> None:
    memory = tmp_path / "m"
    env = {"FLUXMEM_EMBEDDING_MODEL": "none", "FLUXMEM_LOCK_TIMEOUT_S": "0.3"}
    with FluxMemAgent(None, None, path=memory) as agent, agent.store.transaction():
        held = _run("--memory", str(memory), "add", "-", input="text", env=env)
    assert (held.returncode, held.stderr.startswith("error: ")) == (4, True)
    assert str(os.getpid()) in held.stderr
    assert _run("--memory", str(memory), "add", "-", input="text", env=env).returncode == 0


def test_an_interrupt_ends_the_program_that_runs_and_records_it(tmp_path: Path) -> None:
    memory, started = tmp_path / "m", tmp_path / "started"
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "FLUXMEM_EMBEDDING_MODEL": "none",
        "FLUXMEM_LLM_MODEL": "none",
    }
    FluxMemAgent(None, None, path=memory).close()
    code = f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(100)"
    process = subprocess.Popen(
        [*COMMAND, "--memory", str(memory), "run", "wait", "--", sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        # A test run in the background of a shell ignores interrupts, and its children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not (started.exists() and started.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith("interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    with FluxMemAgent(None, None, path=memory) as agent:
        (episode,) = agent.store.select(layers=(Layer.EPISODIC,))
        assert isinstance(episode, EpisodicNode)
        assert episode.status == "interrupted"
        assert agent.verify().problems == ()


@pytest.mark.parametrize(
    ("arguments", "near"),
    [(["serch", "lease"], "search"), (["models", "lst"], "list"), (["skills", "shwo", "x"], "show")],
)
def test_a_misspelt_verb_is_answered_with_the_nearest(arguments: list[str], near: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert f"did you mean {near!r}?" in result.stderr


def test_a_verb_like_none_is_answered_with_where_they_are_listed() -> None:
    result = CliRunner().invoke(cli, ["xyzzy"])
    assert (result.exit_code, "there is no verb 'xyzzy'; see --help" in result.stderr) == (2, True)


def test_an_option_in_place_of_a_verb_is_named_as_an_option() -> None:
    assert "No such option" in CliRunner().invoke(cli, ["--serch"]).stderr


def test_json_is_json_where_stdout_is_no_utf8(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("Die Miete beträgt 900 €.", "utf-8")
    env = {"FLUXMEM_EMBEDDING_MODEL": "none", "FLUXMEM_HOME": str(tmp_path / "m"), "PYTHONIOENCODING": "ascii"}
    assert _run("add", str(file), env=env).returncode == 0
    (hit,) = json.loads(_run("--json", "search", "Miete", env=env).stdout)
    assert hit["content"] == "Die Miete beträgt 900 €."
    exported = [json.loads(line) for line in _run("export", env=env).stdout.splitlines()]
    assert exported[1]["content"] == "Die Miete beträgt 900 €."
    assert _run("search", "Miete", env=env).returncode == 0
