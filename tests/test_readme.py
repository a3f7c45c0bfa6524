"""What README.md promises: its example of the library finds the fact; its commands and those of --help exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fluxmem_local.cli.main import cli

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[list[str]]:
    """Return the words after `fluxmem` of each command in a shell text, without settings, comments and redirections."""
    found = []
    for line in text.splitlines():
        for part in re.split(r" [|>] ", line):
            words = shlex.split(part, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                del words[0]
            if words and words[0] == "fluxmem":
                found.append(words[1:])
    return found


def verbs(group: click.Group, parent: click.Context | None = None) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, parent=parent)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {verb}", part) for verb, part in verbs(command, context))


def parse(words: list[str]) -> click.Command:
    """Read a command's words as a call would, without running it, and return the command they name."""
    command: click.Command = cli
    context = click.Context(cli, info_name="fluxmem")
    while isinstance(command, click.Group):
        words = command.make_parser(context).parse_args(words)[1]
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=context)
    command.make_context(name, words, parent=context)
    return command


@pytest.mark.parametrize("words", commands("".join(blocks("sh"))), ids=" ".join)
def test_each_command_of_the_readme_is_one_that_click_accepts(words: list[str]) -> None:
    assert parse(words).name in words


def test_the_readmes_shell_blocks_show_the_common_verbs() -> None:
    shown = {words[0] for words in commands("".join(blocks("sh")))}
    assert {"init", "add", "search", "ask", "run", "consolidate", "graph"} <= shown


def test_the_set_up_block_puts_fluxmem_on_the_path_before_any_block_calls_it() -> None:
    first, *_ = blocks("sh")
    lines = first.splitlines()
    assert [line.split(" #")[0].split()[:2] for line in lines] == [
        ["scripts/quickstart.sh"],
        ["scripts/test.sh"],
        [".", ".venv/bin/activate"],
    ]


@pytest.mark.parametrize(
    "words", [["serch", "x"], ["search", "x", "--bogus"], ["search"], ["skills", "lst"], ["run", "x"]], ids=" ".join
)
def test_a_command_that_does_not_exist_would_be_found(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse(words)


@pytest.mark.parametrize(("name", "command"), [*verbs(cli)], ids=lambda value: value if isinstance(value, str) else "")
def test_the_help_of_each_verb_has_an_example_that_click_accepts(name: str, command: click.Command) -> None:
    assert command.help is not None
    examples = commands(command.help.partition("Example")[2].partition(":")[2])
    assert examples
    for words in examples:
        assert name in " ".join(words)
        parse(words)


@pytest.mark.real_model
@pytest.mark.timeout(300)
def test_the_library_example_finds_the_fact_and_its_task_succeeds(tmp_path: Path) -> None:
    (example,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, task, consolidated = done.stdout.splitlines()
    assert re.fullmatch(r"The staging database is reset every Monday at 06:00 UTC\. \{'dense': 0\.\d+, .*\}", first)
    assert task == "True 1 []"
    assert consolidated == "1 ()"
    assert (tmp_path / "my-memory" / "memory.sqlite3").is_file()
