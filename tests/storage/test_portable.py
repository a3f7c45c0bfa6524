"""Export and import: the same bytes again, merging without doubles, all or nothing."""

from __future__ import annotations

import json
import time

import pytest

from fluxmem_local import FluxMemAgent
from fluxmem_local.errors import ImportFormatError
from fluxmem_local.graph import DistillEdge, Edit, GroundEdge, ProceduralNode
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer, Scope


@pytest.fixture
def lines(make):
    with make.open(None) as store:
        fact = make.fact("a “quoted” fact\nof two lines 猫", source="a.md", metadata={"k": [1, {"x": None}]})
        episode = make.episode("a task", trajectory=(("saw", "did"),), success=True)
        skill = ProceduralNode(
            content="do it so", embedding=make.vector("do"), source_episode_ids=(episode.id,), pems_score=0.25
        )
        with store.transaction() as transaction:
            transaction.add_nodes([fact, episode, skill, make.fact("scoped", scope=Scope("ada"))])
            transaction.add_nodes([make.fact("a “quoted” fact of two lines 猫", source="b.md")])
            transaction.add_nodes([make.fact("the variant", variant_of=fact.id)])
            transaction.add_edges([GroundEdge(source_id=fact.id, target_id=episode.id, weight=0.1)])
            transaction.add_edges([DistillEdge(source_id=episode.id, target_id=skill.id)])
            transaction.record_outcomes([Outcome(node_id=fact.id, episode_id=episode.id, helped=2)])
            transaction.put_edit(Edit(kind="prune", targets=(fact.id,), reason="why", kept=True, episode_id=episode.id))
            transaction.set_ingested("a.md", Scope(), "digest")
            transaction.set_meta("state", "7")
        with store.transaction() as transaction:
            new = make.fact("an updated fact", id=fact.id, source="a.md", count=2)
            transaction.replace(new, reason="better")
        return list(store.export_lines())


def test_export_of_an_import_is_the_same_bytes(make, lines, tmp_path):
    with make.open(tmp_path / "copy") as store:
        report = store.import_lines(lines)
        assert (report.num_nodes, report.num_known, report.num_edges, report.num_edits) == (5, 0, 2, 1)
        assert list(store.export_lines()) == lines
        assert store.verify().problems == ()
        assert store.import_lines(lines).num_known == 5
        assert list(store.export_lines()) == lines


def test_without_an_embedder_the_vectors_come_along(make, lines):
    with MemoryStore.open(None) as store:
        store.import_lines(lines)
        assert (store.fingerprint, store.dimension, store.unembedded(9)) == (make.embedder.fingerprint, 32, [])


def test_vectors_of_another_embedder_are_left_out(make, lines):
    with make.open(None, fingerprint="another", dimension=8) as store:
        assert store.import_lines(lines).num_unembedded == 5
        assert len(store.unembedded(9)) == 5
        assert store.lexical(Layer.SEMANTIC, "updated", 1) != []


def test_facts_known_under_another_id_are_merged(make, lines):
    with make.open(None) as store:
        with store.transaction() as transaction:
            (mine,) = transaction.add_nodes([make.fact("An  UPDATED fact", source="c.md")])
        assert store.import_lines(lines).num_known == 1
        assert store.get(mine).count == 3
        assert [edge.source_id for edge in store.edges(kinds=["ground"])] == [mine]
        assert store.edits(node_id=mine)[0].targets == (mine,)
        assert store.verify().problems == ()


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, lambda line: "nonsense", "line 1: no JSON"),
        (0, lambda line: line.replace('"version":1', '"version":2'), "line 1: version 2"),
        (0, lambda line: line.replace("fluxmem-local", "other"), "line 1: format 'other'"),
        (1, lambda line: "[1]", "line 2: no JSON object"),
        (1, lambda line: line.replace('"state":"active"', '"state":"odd"'), "line 2: .*odd"),
        (1, lambda line: json.dumps({**json.loads(line), "content": " "}), "line 2: .*no visible content"),
        (1, lambda line: json.dumps({**json.loads(line), "count": "x"}), "line 2: .*count"),
        (1, lambda line: json.dumps({**json.loads(line), "embedding": "AAAA"}), "line 2: "),
        (2, lambda line: '{"type":"node"}', "line 3: .*missing"),
        (3, lambda line: '{"type":"what"}', "line 4: unknown type 'what'"),
        (-1, lambda line: '{"type":"fact","key":"a","value":"b"}', "cut off"),
        (-2, lambda line: '{"type":"fact","key":"a","value":3}', "give a text"),
    ],
)
def test_unreadable_lines_import_nothing(make, lines, place, change, message):
    lines[place] = change(lines[place])
    with make.open(None) as store:
        with pytest.raises(ImportFormatError, match=message):
            store.import_lines(lines)
        assert store.stats()["num_semantic_nodes"] == 0
        assert store.verify().problems == ()


def test_cut_off_file(make, lines):
    with make.open(None) as store:
        with pytest.raises(ImportFormatError, match=f"line {len(lines)}: the end line is missing"):
            store.import_lines(lines[:-1])
        with pytest.raises(ImportFormatError, match="line 1: the end line"):
            store.import_lines([])
        assert store.count() == 0


async def test_what_was_known_at_a_time_is_found_in_the_copy_by_meaning_too(tmp_path):
    async with FluxMemAgent(None, HashEmbedder(64), path=tmp_path / "m") as agent:
        (id,) = await agent.add_knowledge("the capital is Teapot")
        await agent.add_knowledge("pigeons eat bread")
        between = time.time()
        await agent.update(id, "the seat is Chess")
        before = [(hit.node.content, dict(hit.signals)) for hit in await agent.retrieve("teapot", as_of=between)]
        lines = list(agent.store.export_lines())
    async with FluxMemAgent(None, HashEmbedder(64), path=tmp_path / "copy") as copy:
        copy.store.import_lines(lines)
        after = [(hit.node.content, dict(hit.signals)) for hit in await copy.retrieve("teapot", as_of=between)]
        assert (before[0][0], after) == ("the capital is Teapot", before)
        assert list(copy.store.export_lines()) == lines


def test_exports_without_the_vectors_of_old_contents_are_read(make, lines):
    (place,) = (number for number, line in enumerate(lines) if json.loads(line)["type"] == "version")
    version = json.loads(lines[place])
    assert len(version.pop("old_embedding")) > 32
    lines[place] = json.dumps(version)
    with make.open(None) as store:
        store.import_lines(lines)
        assert [row[0] for row in store._rows("SELECT old_embedding FROM versions", [])] == [None]


def test_memories_that_share_a_part_become_one_without_doubles(make, lines, tmp_path):
    with make.open(tmp_path / "mine") as store:
        store.import_lines(lines)
        with store.transaction() as transaction:
            transaction.add_nodes([make.fact("mine alone"), make.fact("of both, found by each")])
        (shared,) = (node.id for node in store.select() if node.content == "of both, found by each")
        mine = {node.id for node in store.select()}
        edges = {edge.id for edge in store.edges()}
        with make.open(None) as other:
            other.import_lines(lines)
            new_fact, new_task = make.fact("theirs alone"), make.episode("their task", success=True)
            with other.transaction() as transaction:
                (twin, *_) = transaction.add_nodes([make.fact("of both, found by each"), new_fact, new_task])
                transaction.add_edges([GroundEdge(source_id=id, target_id=new_task.id) for id in (twin, new_fact.id)])
            theirs = list(other.export_lines())
        report = store.import_lines(theirs)
        assert (report.num_nodes, report.num_known, report.num_edges) == (2, 6, 2)
        assert {node.id for node in store.select()} == mine | {new_fact.id, new_task.id}
        assert {edge.id for edge in store.edges()} > edges
        assert {edge.source_id for edge in store.edges(target_ids=[new_task.id])} == {shared, new_fact.id}
        assert store.verify().problems == ()
        merged = list(store.export_lines())
        again = store.import_lines(theirs)
        assert (again.num_nodes, again.num_known, again.num_edges) == (0, 8, 0)
        assert list(store.export_lines()) == merged


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "zap"},
        {"kept": "yes"},
        {"created_at": "now"},
        {"round": -1},
        {"reason": None},
        {"targets": [5]},
        {"after": 5},
        {"after": {"helped": 5}},
        {"after": {"hurt": [["a"]]}},
        {"after": {"edge_ids": "abc"}},
        {"after": {"variants": ["a"]}},
        {"after": {"variants": {"a": 5}}},
        {"after": {"undone_at": "then"}},
    ],
)
def test_an_edit_that_nobody_could_undo_is_refused(make, lines, tmp_path, wrong):
    number = next(place for place, line in enumerate(lines) if json.loads(line)["type"] == "edit")
    changed = [*lines[:number], json.dumps(json.loads(lines[number]) | wrong), *lines[number + 1 :]]
    with make.open(tmp_path / "copy") as store:
        with pytest.raises(ImportFormatError, match=f"line {number + 1}: "):
            store.import_lines(changed)
        assert store.select() == []
