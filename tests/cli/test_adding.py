from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.errors import ModelError, StorageError

from .conftest import Fluxmem

Write = Callable[[str, str | bytes], Path]


def _contents(fluxmem: Fluxmem) -> dict[str, dict[str, object]]:
    lines = fluxmem("export").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    return {record["content"]: record for record in records if record["type"] == "node"}


def test_init_makes_an_empty_memory_once(fluxmem: Fluxmem) -> None:
    first = fluxmem.data("init")
    assert (first["created"], first["num_semantic_nodes"]) == (True, 0)
    assert fluxmem.data("init")["created"] is False
    assert (fluxmem.memory / "memory.sqlite3").is_file()


def test_text_and_markdown_become_facts(fluxmem: Fluxmem, write: Write) -> None:
    notes = write("notes.md", "# Lease\n\nIt ends in May.\n\n# Rent\n\nIt is 900 euros.\n")
    report = fluxmem.data("add", str(notes), "--chunk-size", "30", "--metadata", '{"team": "ops"}', "--user", "ada")
    assert (report["num_sources"], report["num_new"], report["errors"]) == (1, report["num_facts"], [])
    stored = _contents(fluxmem)
    assert len(stored) == report["num_facts"] >= 2
    for record in stored.values():
        assert record["source"] == str(notes.resolve())
        assert record["metadata"] == {"headings": "Lease" if "May" in record["content"] else "Rent", "team": "ops"}
        assert record["scope"] == {"user": "ada", "agent": None, "session": None}


def test_stdin_is_read_and_each_piece_is_new(fluxmem: Fluxmem) -> None:
    fluxmem("add", "-", stdin="The lease ends in May.")
    fluxmem("add", "-", stdin="Pigeons eat bread.")
    assert set(_contents(fluxmem)) == {"The lease ends in May.", "Pigeons eat bread."}
    fluxmem("add", "-", "--jsonl", "--source", "chat", stdin='{"text": "Rent is 900."}\n')
    assert _contents(fluxmem)["Rent is 900."]["source"] == "chat"


def test_facts_as_json_lines(fluxmem: Fluxmem, write: Write) -> None:
    facts = write(
        "facts.jsonl",
        '{"content": "One.", "metadata": {"k": 1}, "source": "book", "id": "first"}\n\n{"text": "Two.", "page": 7}\n',
    )
    assert fluxmem.data("add", str(facts))["num_new"] == 2
    stored = _contents(fluxmem)
    assert (stored["One."]["id"], stored["One."]["source"], stored["One."]["metadata"]) == ("first", "book", {"k": 1})
    assert (stored["Two."]["source"], stored["Two."]["metadata"]) == (str(facts.resolve()), {"page": 7})


def test_chat_messages_keep_speaker_and_time(fluxmem: Fluxmem, write: Write) -> None:
    chat = write(
        "chat.jsonl",
        '{"speaker": "Ada", "text": "I moved to Rome.", "time": "2031-05-01"}\n{"role": "user", "content": "Hi"}\n',
    )
    fluxmem("add", str(chat))
    stored = _contents(fluxmem)
    assert stored["Ada: I moved to Rome."]["metadata"] == {"speaker": "Ada", "time": "2031-05-01"}
    assert stored["user: Hi"]["metadata"] == {"speaker": "user"}


def test_folders_are_read_with_all_below(fluxmem: Fluxmem, write: Write) -> None:
    root = write("a.txt", "Alpha.").parent
    write("deep/er/b.md", "Beta.")
    write(".hidden/c.txt", "Hidden.")
    write(".d.txt", "Hidden too.")
    write("e.png", b"\x89PNG")
    write("f.txt", b"binary \x00 text")
    write("deep/__init__.py", "")
    write("deep/blank.md", " \n")
    report = fluxmem.data("add", str(root))
    assert (report["num_sources"], report["num_passed_over"]) == (2, 6)
    assert set(_contents(fluxmem)) == {"Alpha.", "Beta."}


def test_adding_again_changes_nothing_and_a_changed_file_is_followed(fluxmem: Fluxmem, write: Write) -> None:
    notes = write("notes.txt", "Berlin is the seat.")
    fluxmem("add", str(notes))
    before = fluxmem("export").stdout
    again = fluxmem.data("add", str(notes), str(notes))
    assert (again["num_unchanged_sources"], again["num_facts"]) == (1, 0)
    assert fluxmem("export").stdout == before
    notes.write_text("Paris is the seat.")
    changed = fluxmem.data("add", str(notes))
    assert (changed["num_new"], changed["num_removed"]) == (1, 1)
    assert set(_contents(fluxmem)) == {"Paris is the seat."}
    assert fluxmem.data("verify")["ok"] is True


def test_one_source_name_for_several_files_keeps_all(fluxmem: Fluxmem, write: Write) -> None:
    one, two = write("one.txt", "One."), write("two.txt", "Two.")
    fluxmem("add", str(one), str(two), "--source", "book")
    assert set(_contents(fluxmem)) == {"One.", "Two."}
    assert {record["source"] for record in _contents(fluxmem).values()} == {"book"}


def test_undecodable_bytes_are_reported_and_the_rest_is_added(fluxmem: Fluxmem, write: Write) -> None:
    good, bad = write("good.txt", "Fine."), write("bad.txt", b"abc\xff def")
    binary, blank = write("binary.txt", b"a\x00b"), write("blank.txt", " \n")
    result = fluxmem("add", str(bad), str(binary), str(blank), str(good), code=2)
    assert f"error: {bad.resolve()}: byte 0xff at offset 3 is not UTF-8" in result.stderr
    assert f"{binary.resolve()}: NUL byte at offset 1" in result.stderr
    assert f"{blank.resolve()} is blank" in result.stderr
    assert set(_contents(fluxmem)) == {"Fine."}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json}", "line 2: not JSON"),
        ("[1]", "line 2: list where a JSON object"),
        ('{"content": " "}', "line 2: no visible text"),
        ('{"content": "x", "metadata": 7}', "line 2: 'metadata' must be"),
        ('{"content": "x", "id": ""}', "line 2: 'id' must be"),
        ('{"content": "half \\ud800"}', "surrogate"),
    ],
)
def test_a_bad_line_is_named_and_nothing_of_its_file_is_added(
    fluxmem: Fluxmem, write: Write, line: str, message: str
) -> None:
    facts = write("facts.jsonl", f'{{"content": "Good."}}\n{line}\n')
    result = fluxmem("add", str(facts), code=2)
    assert message in result.stderr
    assert str(facts.resolve()) in result.stderr
    assert _contents(fluxmem) == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.txt",), "nowhere.txt does not exist"),
        (("-", "--chunk-size", "0"), "chunk_size=0"),
        (("-", "--metadata", "[1]"), "must be a JSON object"),
        (("-", "--metadata", "{"), "--metadata is not JSON"),
        (("-", "--user", " "), "scope user"),
        ((), "Missing argument"),
    ],
)
def test_bad_arguments_store_nothing(fluxmem: Fluxmem, arguments: tuple[str, ...], message: str) -> None:
    assert message in fluxmem("add", *arguments, stdin="text", code=2).stderr
    assert not fluxmem.memory.exists() or _contents(fluxmem) == {}


def test_blank_stdin_is_an_error(fluxmem: Fluxmem) -> None:
    assert "blank" in fluxmem("add", "-", stdin=" \n\t", code=2).stderr
    assert "offset 1" in fluxmem("add", "-", stdin=b"a\xff", code=2).stderr
    assert _contents(fluxmem) == {}


@pytest.mark.parametrize(
    ("stop", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "\ninterrupted"),
        (StorageError("the disk is full"), 4, "error: the disk is full"),
        (ModelError("the model cannot work"), 3, "error: the model cannot work"),
    ],
    ids=["Ctrl-C", "full disk", "broken model"],
)
def test_an_add_that_is_stopped_says_what_it_stored(
    fluxmem: Fluxmem, write: Write, monkeypatch: pytest.MonkeyPatch, stop: BaseException, code: int, said: str
) -> None:
    folder = write("a.txt", "The lease ends in May.").parent
    for name in ("b.txt", "c.txt", "d.txt"):
        write(name, f"What {name} says.")
    ingest = FluxMemAgent.ingest

    async def stopping(self: FluxMemAgent, source: str, *given: Any, **options: Any) -> Any:
        if source.endswith("c.txt"):
            raise stop
        return await ingest(self, source, *given, **options)

    monkeypatch.setattr(FluxMemAgent, "ingest", stopping)
    result = fluxmem("add", str(folder), code=code)
    assert result.stdout == "facts: 2, new: 2, sources: 2, sources not reached: 2\n"
    assert result.stderr == f"stopped before the end; the same command goes on where it stopped\n{said}\n"
    monkeypatch.setattr(FluxMemAgent, "ingest", ingest)
    report = fluxmem.data("add", str(folder))
    assert (report["num_new"], report["num_unchanged_sources"], report["num_not_reached"]) == (2, 2, 0)


def test_an_add_that_is_stopped_at_once_says_only_why(
    fluxmem: Fluxmem, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(write("a.txt", "The lease ends in May."))

    async def stopping(self: FluxMemAgent, *given: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(FluxMemAgent, "ingest", stopping)
    result = fluxmem("add", file, code=130)
    assert (result.stdout, result.stderr) == ("", "\ninterrupted\n")


def test_facts_follow_the_headings_and_places_of_their_document(fluxmem: Fluxmem, write: Write) -> None:
    guide = write("guide.md", "# Install\n\n## Linux\n\n" + "Run the script as root. " * 3)
    fluxmem("add", str(guide), "--chunk-size", "40")
    before = _contents(fluxmem)
    assert {record["metadata"]["headings"] for record in before.values()} == {"Install > Linux"}
    guide.write_text("Read it all.\n\n# Set up\n\n## Linux\n\n" + "Run the script as root. " * 3)
    report = fluxmem.data("add", str(guide), "--chunk-size", "40", "--metadata", '{"team": "ops"}')
    after = _contents(fluxmem)
    (kept,) = set(before) & set(after)
    assert after[kept]["id"] == before[kept]["id"]
    assert after[kept]["metadata"] == {"headings": "Set up > Linux", "team": "ops"}
    assert (before[kept]["chunk_index"], after[kept]["chunk_index"]) == (1, 2)
    assert after[kept]["count"] == before[kept]["count"]
    assert sorted(record["chunk_index"] for record in after.values()) == [0, 1, 2]
    assert report["num_new"] == 2
    again = fluxmem.data("add", str(guide), "--chunk-size", "40", "--metadata", '{"team": "ops"}')
    assert (again["num_unchanged_sources"], _contents(fluxmem)) == (1, after)


def test_stdin_is_markdown_when_its_source_is_named_so(fluxmem: Fluxmem) -> None:
    fluxmem("add", "-", "--source", "notes.md", stdin="# Lease\n\nIt ends in May.")
    fluxmem("add", "-", stdin="# Rent\n\nIt is 900 euros.")
    assert [record["metadata"] for record in _contents(fluxmem).values()] == [{"headings": "Lease"}, {}]


def test_a_known_fact_takes_over_the_metadata_that_another_source_gives_it(fluxmem: Fluxmem, write: Write) -> None:
    text = "# Lease\n\nThe lease ends in May.\n"
    notes = write("notes.md", text)
    fluxmem("add", str(notes), "--metadata", '{"floor": 2}')
    again = ("add", "-", "--metadata", '{"team": "ops", "floor": 3}')
    report = fluxmem.data(*again, stdin=text)
    (hit,) = fluxmem.data("search", "lease", "--filter", "team=ops")
    assert (report["num_new"], report["num_updated"]) == (0, 1)
    assert report["sources"][0]["updated"] == [hit["id"]]
    assert hit["metadata"] == {"floor": 2, "headings": "Lease", "team": "ops"}
    assert fluxmem(*again, stdin=text).stdout == "facts: 1, new: 0, sources: 1\n"
    entries = fluxmem.data("history", hit["id"])
    assert [(entry["action"], entry["reason"]) for entry in entries] == [
        ("added", ""),
        ("updated", "new metadata: team"),
    ]
    assert entries[0]["metadata"] == {"floor": 2, "headings": "Lease"}
    changed = fluxmem("add", str(notes), "--metadata", '{"floor": 4}')
    assert changed.stdout == "facts: 1, new: 0, sources: 1, updated: 1\n"
    (hit,) = fluxmem.data("search", "lease", "--filter", "floor=4")
    assert hit["metadata"] == {"floor": 4, "headings": "Lease", "team": "ops"}
    assert fluxmem.data("verify")["problems"] == []


def test_of_a_fact_that_one_file_states_twice_the_first_values_stand(fluxmem: Fluxmem) -> None:
    lines = '{"text": "Bye!", "n": 1}\n{"text": "Bye!", "n": 2, "last": true}\n'
    report = fluxmem.data("add", "-", "--jsonl", stdin=lines)
    assert (report["num_new"], report["num_updated"]) == (1, 0)
    assert _contents(fluxmem)["Bye!"]["metadata"] == {"n": 1, "last": True}


def test_a_period_is_not_made_of_halves_of_two_sources(fluxmem: Fluxmem, write: Write) -> None:
    old = '{"text": "Rent is 900.", "metadata": {"valid_to": "2020"}}\n'
    fluxmem("add", str(write("old.jsonl", old)))
    new = '{"text": "Rent is 900.", "metadata": {"valid_from": "2024", "by": "ada"}}\n'
    assert fluxmem.data("add", str(write("new.jsonl", new)))["num_updated"] == 1
    assert _contents(fluxmem)["Rent is 900."]["metadata"] == {"valid_to": "2020", "by": "ada"}
    assert fluxmem.data("search", "rent", "--filter", "by=ada") == []
