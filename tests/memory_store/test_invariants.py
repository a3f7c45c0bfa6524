"""Each invariant of the graph and its indices, broken by hand in the database, is found; derived data is repaired."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.graph import DistillEdge, Edit, GroundEdge, ProceduralNode, SkillVersion, StepLinkEdge
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.storage.owner_process import OWNER, this_process
from fluxmem_local.types import Layer, NodeState, Origin

# name -> (statements, what the problem says, whether --fix puts it right)
BROKEN: dict[str, tuple[str, str, bool]] = {
    "a ground edge from an episode": (
        "UPDATE edges SET source_id = 'lived' WHERE kind = 'ground'",
        "goes from a episodic to a episodic node",
        True,
    ),
    "a distill edge to a fact": (
        "UPDATE edges SET target_id = 'gate' WHERE kind = 'distill'",
        "goes from a episodic to a semantic node",
        True,
    ),
    "an edge that dangles": ("UPDATE edges SET target_id = 'nobody' WHERE kind = 'ground'", "nobody", True),
    "an edge of no kind": (
        "UPDATE edges SET kind = 'friend' WHERE kind = 'ground'",
        "'friend' is no kind of edge",
        True,
    ),
    "an edge with unreadable metadata": ("UPDATE edges SET metadata = '{' WHERE kind = 'ground'", "unreadable", True),
    "an edge that weighs nothing known": ("UPDATE edges SET weight = 9e999", "is inf; give a finite number", True),
    "a negative count of activations": ("UPDATE edges SET failure_count = -1 WHERE kind = 'ground'", "-1", True),
    "a step edge of a finished task": (
        "UPDATE nodes SET payload = json_set(payload, '$.status', 'succeeded', '$.success', json('true')) "
        "WHERE id = 'running'",
        "was not collected",
        True,
    ),
    "a finished task without an outcome": (
        "UPDATE nodes SET payload = json_set(payload, '$.success', NULL) WHERE id = 'lived'",
        "has status succeeded and success None",
        False,
    ),
    "a task with an outcome that runs": (
        "UPDATE nodes SET payload = json_set(payload, '$.success', json('true')) WHERE id = 'running'",
        "is running, and has ended by its outcome",
        False,
    ),
    "a status that is none": (
        "UPDATE nodes SET payload = json_set(payload, '$.status', 'bored') WHERE id = 'lived'",
        "bored",
        False,
    ),
    "a trial of no task": ("UPDATE nodes SET trial_of = 'lived' WHERE id = 'tried'", "left on trial", True),
    "a text that was changed": (
        "UPDATE nodes SET content = 'x' WHERE id = 'gate'",
        "not the one that was stored",
        False,
    ),
    "an empty text": (
        "UPDATE nodes SET content = ' ', content_sum = NULL WHERE id = 'gate'",
        "has no visible content",
        False,
    ),
    "a layer that is none": ("UPDATE nodes SET layer = 'dreams' WHERE id = 'lease'", "dreams", False),
    "a state that is none": ("UPDATE nodes SET state = 'asleep' WHERE id = 'lease'", "asleep", False),
    "nobody who added it": ("UPDATE nodes SET added_by = 'robot' WHERE id = 'lease'", "robot", False),
    "unreadable metadata": ("UPDATE nodes SET metadata = '[' WHERE id = 'lease'", "unreadable", False),
    "unreadable payload": ("UPDATE nodes SET payload = '[' WHERE id = 'lived'", "unreadable", False),
    "a vector of another content": (
        "UPDATE nodes SET embedding = (SELECT embedding FROM nodes WHERE id = 'lease') WHERE id = 'gate'",
        "damaged vector",
        True,
    ),
    "a stale vector beside a new text": (
        "UPDATE nodes SET content = 'x', content_sum = NULL, vector_sum = NULL WHERE id = 'gate'",
        "has no checksum",
        True,
    ),
    "a vector that is cut off": (
        "UPDATE nodes SET embedding = substr(embedding, 1, 40), vector_sum = NULL WHERE id = 'gate'",
        "vector of 10 numbers",
        True,
    ),
    "a vector that is longer than 1": (
        "UPDATE nodes SET embedding = zeroblob(length(embedding)), vector_sum = NULL WHERE id = 'gate'",
        "length 0",
        True,
    ),
    "words of another text": ("UPDATE nodes SET terms = 'red' WHERE id = 'gate'", "not those of its content", True),
    "a key of another text": ("UPDATE nodes SET content_key = 'x' WHERE id = 'gate'", "not those of its content", True),
    "a lookup that is missing": ("DELETE FROM attributes", "not found by the metadata", True),
    "a lookup of nothing": (
        "INSERT INTO attributes SELECT 'x', 'text', 'y', key FROM nodes WHERE id = 'gate'",
        "not found by the metadata",
        True,
    ),
    "a validity that is missing": ("DELETE FROM validity", "not found by the metadata", True),
    "a lookup of a node that is gone": ("INSERT INTO attributes VALUES ('x', 'text', 'y', 4711)", "attributes", True),
    "an outcome of nobody": ("UPDATE outcomes SET node_id = 'nobody'", "outcomes name node nobody", True),
    "an outcome in a fact": ("UPDATE outcomes SET episode_id = 'lease'", "is no episode", True),
    "a negative outcome": ("UPDATE outcomes SET helped = -3", "-3", True),
    "a mention of nobody": ("UPDATE mentions SET node_id = 'nobody' WHERE source = 'b.md'", "nobody", True),
    "a mention of a skill": (
        "INSERT INTO mentions VALUES ('skill', 'b.md', 0, 1, 0)",
        "mentions name skill, which is no fact",
        True,
    ),
    "a count that is not that of its mentions": ("UPDATE nodes SET count = 7 WHERE id = 'gate'", "counts 7", True),
    "a version of nobody": ("UPDATE versions SET node_id = 'nobody'", "versions name node nobody", True),
    "a reshaped version of nobody": ("UPDATE nodes SET variant_of = 'nobody' WHERE id = 'short'", "nobody", True),
    "a version of itself": ("UPDATE nodes SET variant_of = id WHERE id = 'short'", "version of itself", True),
    "a skill of an episode that is gone": (
        "UPDATE nodes SET payload = json_set(payload, '$.source_episode_ids', json('[\"nobody\"]')) WHERE id = 'skill'",
        "names episode nobody",
        True,
    ),
    "a skill of a fact": (
        "UPDATE nodes SET payload = json_set(payload, '$.source_episode_ids', json('[\"gate\"]')) WHERE id = 'skill'",
        "names gate, which is no episode",
        True,
    ),
    "an edit of an episode that is gone": ("UPDATE edits SET episode_id = 'nobody'", "nobody", True),
    "an edit with unreadable details": ("UPDATE edits SET before = '{'", "unreadable", True),
    "targets of no edit": ("UPDATE edit_targets SET edit_id = 'none'", "edit_targets", True),
    "one fact twice in a scope": (
        "UPDATE nodes SET content = (SELECT content FROM nodes WHERE id = 'gate'), content_key = "
        "(SELECT content_key FROM nodes WHERE id = 'gate'), terms = (SELECT terms FROM nodes WHERE id = 'gate'), "
        "content_sum = NULL WHERE id = 'lease'",
        "say the same in one scope",
        True,
    ),
    "a node among the deleted": (
        "INSERT INTO deleted VALUES ('gate', 'semantic', 1)",
        "is listed as deleted",
        True,
    ),
    "a node of a commit to come": ("UPDATE nodes SET rev = 4711 WHERE id = 'gate'", "commit 4711", True),
    "a refusal of a node that is there": ("INSERT INTO forgotten VALUES ('id', 'gate')", "was forgotten", True),
    "a new vector of a node that is gone": ("INSERT INTO reembedded VALUES (4711, x'00')", "reembedded", True),
}


@pytest.fixture
def folder(make: Any, tmp_path: Path) -> Path:
    place = tmp_path / "memory"
    with make.open(place) as store, store.transaction() as change:
        change.add_nodes(
            [
                make.fact(
                    "The gate is green.", id="gate", source="a.md", metadata={"team": "ops", "valid_from": "2026"}
                ),
                make.fact("The gate is green.", source="b.md", added_by=Origin.AGENT),
                make.fact("The lease ends in May.", id="lease", source="a.md"),
                make.fact("Green.", id="short", variant_of="gate"),
                make.episode("open the gate", id="lived", success=True),
                make.episode("open it again", id="running", metadata={OWNER: this_process()}),
                ProceduralNode(
                    id="skill",
                    skill_text="turn",
                    embedding=make.vector("turn"),
                    source_episode_ids=("lived",),
                    version=2,
                    version_history=(SkillVersion(version=1, skill_text="push", ended_because="it is worse"),),
                ),
            ]
        )
        change.add_nodes([make.fact("Gate!", id="tried", variant_of="gate")], trial_of="running")
        change.replace(replace(store.get("lease"), content="The lease ends in June.", embedding=make.vector("June")))
        change.add_edges(
            [
                GroundEdge(source_id="gate", target_id="lived"),
                DistillEdge(source_id="lived", target_id="skill"),
                StepLinkEdge(source_id="running", target_id="gate"),
            ]
        )
        change.record_outcomes([Outcome(node_id="gate", episode_id="lived", helped=1)])
        change.put_edit(Edit(kind="expand", targets=("gate",), reason="r", episode_id="lived", kept=True))
        change.set_state(["short"], NodeState.ACTIVE)
    return place


def run(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement behind the package's back."""
    with closing(sqlite3.connect(folder / "memory.sqlite3", isolation_level=None)) as connection:
        cursor = connection.execute(statement)
        assert cursor.rowcount != 0
        return cursor.fetchall()


def test_the_memory_of_these_tests_is_sound(make: Any, folder: Path) -> None:
    with make.open(folder) as store:
        report = store.verify()
        assert (report.problems, report.ok) == ((), True)
        assert report.counts["nodes"] == 7
        assert report.counts["edges"] == 3
        assert report.counts["vectors"] == report.counts["words"] == 7
        assert report.counts["edits"] == report.counts["outcomes"] == report.counts["versions"] == 1
        assert report.counts["mentions"] == 3


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found_and_repaired(make: Any, folder: Path, name: str) -> None:
    statement, says, repaired = BROKEN[name]
    run(folder, statement)
    contents = "SELECT id, content FROM nodes WHERE id NOT IN ('tried', 'lease') ORDER BY key"
    before = run(folder, contents)
    with make.open(folder) as store:
        problems = store.verify().problems
        assert any(says in problem for problem in problems), problems
    with make.open(folder) as store:
        report = store.verify(fix=True)
        assert report.problems == problems
        assert report.ok is repaired, (report.problems, report.fixed)
        again = store.verify()
        assert (again.problems == ()) is repaired, again.problems
        if repaired:
            assert sound(store)
    # Content is never touched; only an unfinished version may go, and one of two facts that say the same.
    assert run(folder, contents) == before


def sound(store: MemoryStore) -> bool:
    """Tell whether search finds by word and by vector what the rows hold."""
    for node in store.select(layers=(Layer.SEMANTIC,)):
        if node.embedding is not None and (node.id, 1.0) not in [
            (id, round(score, 4)) for id, score in store.nearest(Layer.SEMANTIC, node.embedding, 5)
        ]:
            return False
        if node.id not in [id for id, _ in store.lexical(Layer.SEMANTIC, node.content, 5)]:
            return False
    return True
