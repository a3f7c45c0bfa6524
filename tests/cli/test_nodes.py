from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Fluxmem


@pytest.fixture
def lease(fluxmem: Fluxmem) -> str:
    fluxmem("add", "-", "--source", "deed", "--metadata", '{"k": "v"}', stdin="The lease ends in May.")
    fluxmem("add", "-", "--user", "ada", stdin="Ada likes tea.")
    return str(fluxmem.data("search", "lease", "-k", "1")[0]["id"])


def test_show_prints_content_fields_and_links(fluxmem: Fluxmem, lease: str) -> None:
    episode = fluxmem.data(
        "record", "-", stdin=json.dumps({"task": "call the owner", "success": True, "used_ids": [lease]})
    )["id"]
    data = fluxmem.data("show", lease)
    assert (data["layer"], data["content"], data["source"]) == ("semantic", "The lease ends in May.", "deed")
    assert "embedding" not in data
    assert [(edge["kind"], edge["target_id"]) for edge in data["edges"]] == [("ground", episode)]
    printed = fluxmem("show", lease).stdout
    assert printed.startswith("The lease ends in May.\n")
    assert f"ground to\t{episode}\t1.00\t0\t0\n" in printed
    assert f"ground from\t{lease}\t" in fluxmem("show", episode).stdout


def test_update_and_history(fluxmem: Fluxmem, lease: str) -> None:
    assert fluxmem("update", lease, "The lease ends in June.").stdout == f"updated {lease}\n"
    assert fluxmem.data("update", lease, "-", stdin="It ends in July.")["metadata"] == {"k": "v"}
    entries = fluxmem.data("history", lease)
    assert [entry["action"] for entry in entries] == ["added", "updated", "updated"]
    assert "updated by hand" in fluxmem("history", lease).stdout
    assert "blank" in fluxmem("update", lease, " ", code=2).stderr


def test_forget_asks_first(fluxmem: Fluxmem, lease: str) -> None:
    assert "nothing was removed" in fluxmem("forget", lease, stdin="n\n", code=1).stderr
    dry = fluxmem.data("forget", lease, "--dry-run")
    assert (dry["removed"], dry["dry_run"]) == ([lease], True)
    assert fluxmem("show", lease).exit_code == 0
    assert "removed 1 memory" in fluxmem("forget", lease, stdin="y\n").stdout
    assert "no node" in fluxmem("show", lease, code=2).stderr
    assert fluxmem.data("search", "lease", "--user", "ben") == []


def test_forget_without_an_answer_removes_nothing_and_names_the_option(fluxmem: Fluxmem, lease: str) -> None:
    assert "nothing was removed; give --yes" in fluxmem("forget", lease, stdin="", code=2).stderr
    assert fluxmem.data("show", lease)["id"] == lease


def test_forget_by_source_and_scope(fluxmem: Fluxmem, lease: str) -> None:
    assert fluxmem.data("forget", "--source", "deed", "--yes")["removed"] == [lease]
    assert len(fluxmem.data("forget", "--user", "ada", "--yes")["removed"]) == 1
    assert fluxmem.data("stats")["num_semantic_nodes"] == 0


def test_forget_takes_a_file_by_the_name_it_was_added_by(fluxmem: Fluxmem) -> None:
    Path("notes.md").write_text("Pigeons eat bread.")
    fluxmem("add", "notes.md")
    (id,) = [node["id"] for node in fluxmem.data("search", "pigeons")]
    Path("notes.md").unlink()
    assert "no memory has the source 'other.md'" in fluxmem("forget", "--source", "other.md", code=2).stderr
    assert fluxmem.data("forget", "--source", "notes.md", "--yes")["removed"] == [id]


def test_show_names_the_scope_only_where_there_is_one(fluxmem: Fluxmem, lease: str) -> None:
    assert "scope" not in fluxmem("show", lease).stdout
    ada = next(
        hit["id"] for hit in fluxmem.data("search", "tea", "--user", "ada") if hit["content"] == "Ada likes tea."
    )
    assert "scope\tuser=ada\n" in fluxmem("show", ada).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nobody"), "no node 'nobody'"),
        (("history", "nobody"), "nobody"),
        (("undo", "nothing"), "no edit 'nothing'"),
        (("update", "nobody", "text"), "no node 'nobody'"),
        (("forget", "nobody", "--yes"), "no node 'nobody'"),
        (("forget", "--yes"), "nothing to forget was named"),
        (("forget", "x", "--source", "y", "--yes"), "ids alone"),
        (("forget", "--user", "ben", "--yes"), "error: no memory belongs to user 'ben'; nothing was forgotten"),
        (("forget", "--user", "a", "--session", "b", "-y"), "no memory belongs to user 'a', session 'b';"),
        (("skills", "show", "nobody"), "no node 'nobody'"),
    ],
)
def test_what_is_not_there_is_named(fluxmem: Fluxmem, lease: str, arguments: tuple[str, ...], message: str) -> None:
    before = fluxmem("export").stdout
    assert message in fluxmem(*arguments, code=2).stderr
    assert fluxmem("export").stdout == before


def test_control_characters_do_not_reach_the_terminal(fluxmem: Fluxmem) -> None:
    fluxmem("add", "-", stdin="danger \x1b[2J zone")
    (hit,) = fluxmem.data("search", "danger")
    assert "\x1b" not in fluxmem("show", hit["id"]).stdout
    assert "\x1b" not in fluxmem("search", "danger").stdout
    assert hit["content"] == "danger \x1b[2J zone"


def test_a_memory_and_its_history_are_shown_to_those_it_belongs_to(fluxmem: Fluxmem) -> None:
    fluxmem("add", "-", "--user", "ada", stdin="The lease ends in May.")
    fluxmem("record", "-", "--user", "ben", stdin='{"task": "pay the rent", "success": true}')
    (fact,) = fluxmem.data("search", "lease")
    for verb in ("show", "history"):
        assert "The lease ends in May." in fluxmem(verb, fact["id"], "--user", "ada").stdout
        assert "no node" in fluxmem(verb, fact["id"], "--user", "ben", code=2).stderr
    exported = [json.loads(line) for line in fluxmem("export", "--user", "ben").stdout.splitlines()]
    assert [line.get("content") for line in exported if line["type"] == "node"] == ["pay the rent"]
    assert exported[-1] == {"type": "end", "lines": len(exported) - 1}
