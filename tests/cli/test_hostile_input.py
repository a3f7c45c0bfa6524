"""What a careless shell hands over: blank names, pipes in folders, names and arguments that are no UTF-8."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fluxmem_local import FluxMem

from .conftest import Fluxmem

Write = Callable[[str, str | bytes], Path]

# How Python hands over an argument with the byte 0xff.
HALF = "\udcff"
DEEP = "[" * 100_000


@pytest.mark.parametrize("name", ["", " "])
def test_a_blank_path_is_refused_and_is_not_the_current_folder(
    fluxmem: Fluxmem, write: Write, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(write("a.txt", "The lease ends in May.").parent)
    fluxmem("init")
    assert "a path is blank" in fluxmem("add", name, code=2).stderr
    assert fluxmem.data("stats")["num_semantic_nodes"] == 0
    assert "it is blank" in fluxmem("graph", "-o", name, code=2).stderr
    assert "names no file" in fluxmem("export", "-o", name, code=2).stderr
    assert "it is blank" in fluxmem("--memory", name, "init", code=2).stderr
    assert "it is blank" in fluxmem("stats", "--memory", name, code=2).stderr
    assert "name a file that export wrote" in fluxmem("import", name, code=2).stderr
    assert [file.name for file in Path.cwd().iterdir()] == ["a.txt"]


def test_a_memory_that_is_locked_ends_the_whole_add_at_the_first_file(
    fluxmem: Fluxmem, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write("a.txt", "The lease ends in May.").parent
    write("b.txt", "Rent is 900.")
    fluxmem("init")
    monkeypatch.setenv("FLUXMEM_LOCK_TIMEOUT_S", "0")
    with FluxMem(None, None, path=fluxmem.memory) as other, other.store.transaction():
        stderr = fluxmem("add", str(folder), code=4).stderr
    assert stderr.count("is being written by") == 1
    assert fluxmem.data("add", str(folder))["num_new"] == 2


def test_forgetting_a_blank_source_does_not_forget_what_names_none(fluxmem: Fluxmem) -> None:
    fluxmem("record", "-", stdin='{"task": "plan", "success": true}')
    assert "--source is blank" in fluxmem("forget", "--source", "", "--yes", code=2).stderr
    assert fluxmem.data("stats")["num_episodic_nodes"] == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_in_a_folder_is_passed_over(fluxmem: Fluxmem, write: Write) -> None:
    folder = write("a.txt", "The lease ends in May.").parent
    os.mkfifo(folder / "b.txt")
    report = fluxmem.data("add", str(folder))
    assert (report["num_new"], report["num_passed_over"], report["errors"]) == (1, 1, [])


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems refuse such names")
def test_a_file_whose_name_is_no_utf8_is_added_with_the_others(fluxmem: Fluxmem, write: Write) -> None:
    folder = write("a.txt", "The lease ends in May.").parent
    (folder / f"b{HALF}.txt").write_text("Rent is 900.")
    (folder / "c.txt").write_text("Pigeons eat bread.")
    report = fluxmem.data("add", str(folder))
    assert (report["num_new"], report["errors"]) == (3, [])
    assert [Path(source["source"]).name for source in report["sources"]] == ["a.txt", r"b\xff.txt", "c.txt"]
    assert fluxmem.data("add", str(folder))["num_unchanged_sources"] == 3
    assert "does not exist" in fluxmem("add", HALF, code=2).stderr


def test_json_that_is_nested_without_end_is_an_error_of_its_file_alone(fluxmem: Fluxmem, write: Write) -> None:
    folder = write("a.jsonl", DEEP).parent
    write("b.txt", "The lease ends in May.")
    report = fluxmem.data("add", str(folder), code=2)
    assert report["num_new"] == 1
    (error,) = report["errors"]
    assert "a.jsonl, line 1: not JSON" in error
    assert "not JSON" in fluxmem("record", "-", stdin=DEEP, code=2).stderr
    assert "not JSON" in fluxmem("add", "-", "--metadata", DEEP, stdin="x", code=2).stderr
    assert "line 1: no JSON" in fluxmem("import", "-", stdin=DEEP, code=2).stderr
    assert fluxmem.data("search", "lease", "--filter", f"team={DEEP}") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("history", HALF),
        ("undo", HALF),
        ("forget", "--source", HALF),
        ("forget", "--user", HALF),
        ("search", "lease", "--user", HALF),
        ("search", "lease", "--filter", f"team={HALF}"),
        ("search", "lease", "--filter", f"{HALF}=ops"),
        ("run", "plan", "--observation", HALF, "--", sys.executable, "-c", ""),
    ],
    ids=lambda arguments: " ".join(arguments).encode("ascii", "backslashreplace").decode(),
)
def test_an_argument_that_is_no_utf8_is_bad_input(fluxmem: Fluxmem, arguments: tuple[str, ...]) -> None:
    fluxmem("add", "-", stdin="The lease ends in May.")
    assert "half a surrogate pair" in fluxmem(*arguments, code=2).stderr
    counts = fluxmem.data("stats")
    assert (counts["num_semantic_nodes"], counts["num_episodic_nodes"]) == (1, 0)


def test_adding_under_a_source_that_is_no_utf8_is_bad_input(fluxmem: Fluxmem, write: Write) -> None:
    file = str(write("a.txt", "The lease ends in May."))
    report = json.loads(fluxmem("--json", "add", file, "--source", HALF, code=2).stdout)
    assert report["num_new"] == 0
    (error,) = report["errors"]
    assert "half a surrogate pair" in error


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems refuse such names")
def test_files_whose_names_are_no_utf8_are_written_and_named(fluxmem: Fluxmem, tmp_path: Path) -> None:
    fluxmem("add", "-", stdin="The lease ends in May.")
    page, lines = tmp_path / f"graph{HALF}.html", tmp_path / f"memory{HALF}.jsonl"
    assert r"graph\udcff.html: 1 node" in fluxmem("graph", "-o", str(page), "--title", f"a{HALF}").stdout
    assert r"<title>a\xff" in page.read_text("utf-8")
    assert fluxmem.data("graph", "-o", str(page))["file"] == str(page)
    assert "wrote 4 lines" in fluxmem("export", "-o", str(lines)).stderr
    assert fluxmem.data("export", "-o", str(lines)) == {"file": str(lines), "num_lines": 4}
    fluxmem.memory = tmp_path / f"memory{HALF}"
    assert r"memory\udcff" in fluxmem("init").stdout
    assert fluxmem.data("import", str(lines))["num_nodes"] == 1
    fluxmem("graph", "-o", str(page))
    assert "memory" in page.read_text("utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--memory", "a\0b", "init"),
        ("stats", "--memory", "a\0b"),
        ("add", "a\0b"),
        ("record", "a\0b"),
        ("import", "a\0b"),
        ("export", "-o", "a\0b"),
        ("graph", "-o", "a\0b"),
        ("demo", "--directory", "a\0b"),
        ("models", "path", "a\0b"),
        ("models", "import", "a\0b"),
        ("run", "plan", "--", "a\0b"),
    ],
    ids=lambda arguments: " ".join(arguments).replace("\0", "NUL"),
)
def test_a_nul_byte_in_an_argument_is_bad_input(fluxmem: Fluxmem, arguments: tuple[str, ...]) -> None:
    assert "an argument holds a NUL byte" in fluxmem(*arguments, code=2).stderr
    assert not fluxmem.memory.exists()
