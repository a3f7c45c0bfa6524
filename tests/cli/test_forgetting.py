"""`fluxmem forget` by age and with a purge, `confirm`, and who said it: as a user sees them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from fluxmem_local.graph import SemanticNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.testing import HashEmbedder

from .conftest import Fluxmem

GATE = "The north gate opens with the green key."
DAY_S = 86_400.0


@pytest.fixture
def old(fluxmem: Fluxmem) -> list[str]:
    """Two facts, 100 and 10 days old, and one of today; returns their ids."""
    embedder = HashEmbedder(64)
    with MemoryStore.open(fluxmem.memory, fingerprint=embedder.fingerprint, dimension=64) as store:
        facts = [
            SemanticNode(
                content=f"fact of {days} days",
                embedding=embedder._embed(f"{days}"),
                created_at=time.time() - days * DAY_S,
            )
            for days in (100, 10, 0)
        ]
        with store.transaction() as change:
            return change.add_nodes(facts)


def left(fluxmem: Fluxmem) -> list[str]:
    lines = [json.loads(line) for line in fluxmem("export").stdout.splitlines()]
    return [line["id"] for line in lines if line["type"] == "node"]


@pytest.mark.parametrize(("age", "gone"), [("90d", 1), ("2w", 1), ("36h", 2), ("9.5d", 2), ("1Y", 0)])
def test_what_is_older_goes(fluxmem: Fluxmem, old: list[str], age: str, gone: int) -> None:
    if not gone:
        refused = fluxmem("forget", "--older-than", age, "--yes", code=2).stderr
        assert re.search(r"no memory is older than \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00;", refused)
    else:
        planned = fluxmem.data("forget", "--older-than", age, "--dry-run")
        assert (planned["removed"], planned["dry_run"], planned["purged"]) == (old[:gone], True, None)
        assert left(fluxmem) == old
        assert fluxmem.data("forget", "--older-than", age, "--yes")["removed"] == old[:gone]
    assert left(fluxmem) == old[gone:]


def test_before_a_day(fluxmem: Fluxmem, old: list[str]) -> None:
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 5 * DAY_S))
    assert fluxmem.data("forget", "--before", day, "--yes")["removed"] == old[:2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--older-than", "soon"), "--older-than='soon' is no age; give a number with h, d, w or y"),
        (("--older-than", "-3d"), "is no age"),
        (("--before", "soon"), "before='soon' is no time"),
        (("--older-than", "3d", "--before", "2020"), "give one of them"),
        (("x", "--older-than", "3d"), "give ids alone"),
    ],
)
def test_an_age_that_is_none_is_refused(
    fluxmem: Fluxmem, old: list[str], arguments: tuple[str, ...], message: str
) -> None:
    assert message in fluxmem("forget", *arguments, "--yes", code=2).stderr
    assert left(fluxmem) == old


def test_it_asks_and_says_what_went_changed_and_stays(fluxmem: Fluxmem) -> None:
    fluxmem("add", "-", stdin=GATE)
    fluxmem("add", "-", stdin=f"Tom says: {GATE} So do I.")
    task = {"task": f"see that {GATE}", "success": True, "trajectory": [["", "look"]]}
    fluxmem("record", "-", stdin=json.dumps(task))
    gate, tom, lived = left(fluxmem)
    asked = fluxmem("forget", gate, stdin="n\n", code=1)
    assert "Remove 1 memory for good?" in asked.stderr
    assert left(fluxmem) == [gate, tom, lived]
    done = fluxmem("forget", gate, "--purge", stdin="y\n")
    assert "removed 1 memory, 0 links" in done.stdout
    assert f"changed {lived}: quoted it" in done.stderr
    assert f"kept {tom}: quotes it, and was stated on its own" in done.stderr
    assert "no byte of it is left in any file of the memory, but in what was kept" in done.stdout
    assert "fluxmem reindex" in done.stderr
    assert "see that [forgotten]." in fluxmem("show", lived).stdout


def test_a_purge_leaves_no_byte(fluxmem: Fluxmem) -> None:
    fluxmem("add", "-", stdin=GATE)
    fluxmem("add", "-", stdin="The lease ends in May.")
    (gate, _) = left(fluxmem)
    fluxmem("forget", gate, "--yes")
    assert fluxmem("forget", "--purge").stdout == (
        "removed 0 memories, 0 links\nno byte of it is left in any file of the memory\n"
    )
    held = b"".join(file.read_bytes() for file in Path(fluxmem.memory).rglob("*") if file.is_file())
    assert b"green key" not in held
    assert b"lease ends" in held
    (lease,) = left(fluxmem)
    assert fluxmem.data("forget", lease, "--purge", "--yes")["purged"] is True


def test_who_said_it_can_be_told_shown_filtered_and_confirmed(fluxmem: Fluxmem) -> None:
    fluxmem("add", "-", "--added-by", "agent", stdin=GATE)
    fluxmem("add", "-", stdin="The south gate opens with the red key.")
    (gate,) = (hit["id"] for hit in fluxmem.data("search", "gate", "--filter", "added_by=agent"))
    assert "added_by\tagent\n" in fluxmem("show", gate).stdout
    assert 'added_by="agent" confirmed="false"' in fluxmem("context", "open the gate").stdout
    assert fluxmem("confirm", gate).stdout == "confirmed 1 memory\n"
    assert fluxmem.data("confirm", gate) == {"confirmed": []}
    assert 'confirmed="false"' not in fluxmem("context", "open the gate").stdout
    fluxmem("update", gate, "The gate is open.", "--added-by", "agent")
    assert fluxmem.data("show", gate)["confirmed_at"] is None
    assert "no node 'nobody'" in fluxmem("confirm", "nobody", code=2).stderr
    recorded = {"task": "see the gate", "success": True, "added_by": "user", "used_ids": [gate]}
    lived = fluxmem.data("record", "-", stdin=json.dumps(recorded))["id"]
    assert fluxmem.data("show", lived)["added_by"] == "user"
    assert fluxmem.data("show", gate)["confirmed_at"] is not None
    for nobody in ("robot", "import"):
        refused = fluxmem("record", "-", stdin=json.dumps({**recorded, "added_by": nobody}), code=2)
        assert f"'added_by' must be agent or user, not '{nobody}'" in refused.stderr


def test_stats_show_what_retention_takes_next_and_consolidate_takes_it(
    fluxmem: Fluxmem, old: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUXMEM_RETENTION", '[{"max_age": "90d", "max_nodes": 5}]')
    fluxmem.llm = None
    due = "to be forgotten by the next consolidate: all, older than 90d or more than 5\t{}\n"
    assert due.format(1) in fluxmem("stats").stdout
    assert fluxmem.data("stats")["retention"][0]["num_due"] == 1
    planned = fluxmem("consolidate", "--dry-run").stdout
    assert f"forgotten by the rules of retention\t{old[0]}: older than 90d (all)\n" in planned
    assert left(fluxmem) == old
    assert fluxmem.data("consolidate")["forgotten"] == [[old[0], "older than 90d (all)"]]
    assert due.format(0) in fluxmem("stats").stdout
    assert left(fluxmem) == old[1:]
