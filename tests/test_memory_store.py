"""The store's promises: what is stored, found, merged, forgotten and kept apart."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from fluxmem_local.errors import (
    BlankTextError,
    DimensionError,
    EmbedderMismatchError,
    InvalidInputError,
    NotFoundError,
)
from fluxmem_local.graph import DistillEdge, Edit, EpisodicNode, GroundEdge, ProceduralNode, SemanticNode, StepLinkEdge
from fluxmem_local.index import ExactVectorStore, HNSWVectorStore
from fluxmem_local.memory_store import MemoryStore, Outcome, Receipt
from fluxmem_local.stages.edits import undo_edit
from fluxmem_local.types import Layer, NodeState, Scope

from .storage.conftest import Maker

SEMANTIC = Layer.SEMANTIC


@pytest.fixture
def make() -> Maker:
    return Maker()


@pytest.fixture(params=["in memory", "in a folder"])
def store(request, make, tmp_path):
    with make.open(None if request.param == "in memory" else tmp_path / "memory") as store:
        yield store


def add(store, *nodes, **options):
    with store.transaction() as transaction:
        return transaction.add_nodes(list(nodes), **options)


def found(store, make, text, top_k=9, **options):
    near = [id for id, _ in store.nearest(SEMANTIC, make.vector(text), top_k, **options)]
    words = [id for id, _ in store.lexical(SEMANTIC, text, top_k, **options)]
    return near, words


# What is stored


def test_all_layers_come_back_as_they_were(store, make):
    nodes = [
        make.fact("a fact", source="s", chunk_index=3, metadata={"a": [1, None]}, scope=Scope("ada"), created_at=1.5),
        make.episode("a task", trajectory=(("saw", "did"),), success=False, feedback="bad"),
        ProceduralNode(content="a skill", embedding=make.vector("a skill"), source_episode_ids=("x",), pems_score=0.5),
    ]
    ids = add(store, *nodes)
    assert ids == [node.id for node in nodes]
    assert store.get_many(ids[::-1]) == nodes[::-1]
    assert store.embeddings(ids).tolist() == [make.vector(node.content).tolist() for node in nodes]
    assert store.select(newest_first=True, limit=1) == nodes[2:]


def test_vectors_are_stored_at_unit_length(store):
    (id,) = add(store, SemanticNode(content="long vector", embedding=np.full(32, 7.0)))
    assert np.linalg.norm(store.get(id).embedding) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"content": " \n\u200b"}, BlankTextError, "no visible content"),
        ({"embedding": np.ones(31)}, DimensionError, r"shape \(31,\)"),
        ({"embedding": np.full(32, np.nan)}, DimensionError, "NaN"),
        ({"embedding": np.zeros(32)}, DimensionError, "length zero"),
        ({"embedding": None}, InvalidInputError, "no embedding"),
        ({"metadata": {"x": object()}}, InvalidInputError, "JSON"),
        ({"metadata": {"x": float("nan")}}, InvalidInputError, "JSON"),
        ({"content": "half \ud800"}, InvalidInputError, "surrogate"),
        ({"count": 0}, InvalidInputError, "count .* is 0"),
        ({"created_at": float("inf")}, InvalidInputError, "created_at"),
        ({"state": NodeState.TRIAL}, InvalidInputError, "trial_of"),
        ({"variant_of": "nobody"}, NotFoundError, "nobody"),
        ({"id": ""}, InvalidInputError, "non-blank"),
        ({"id": "a\0b"}, InvalidInputError, "NUL"),
    ],
)
def test_a_bad_node_leaves_nothing_of_its_batch(store, make, fields, error, message):
    add(store, make.fact("here before"))
    before = list(store.export_lines())
    with pytest.raises(error, match=message):
        add(store, make.fact("good one"), replace(make.fact("bad one"), **fields))
    assert list(store.export_lines()) == before
    assert found(store, make, "good one")[1] == []
    assert store.verify().problems == ()


def test_caught_error_inside_a_transaction_keeps_the_rest(store, make):
    with store.transaction() as transaction:
        transaction.add_nodes([make.fact("first")])
        with pytest.raises(DimensionError):
            transaction.add_nodes([make.fact("second"), SemanticNode(content="third", embedding=np.ones(3))])
    assert [node.content for node in store.select()] == ["first"]


def test_what_follows_a_caught_error_is_found(store, make):
    add(store, make.fact("first"))
    assert found(store, make, "first")[0] != []
    with store.transaction() as transaction:
        with pytest.raises(NotFoundError):
            transaction.add_nodes([make.fact("bad", variant_of="nobody")])
        (id,) = transaction.add_nodes([make.fact("second")])
    assert found(store, make, "second", 1) == ([id], [id])
    assert store.verify().problems == ()


def test_inner_transaction_is_a_part_of_the_outer_one(store, make):
    with pytest.raises(RuntimeError, match="stop"), store.transaction() as outer:  # noqa: PT012
        outer.add_nodes([make.fact("outer")])
        with store.transaction() as inner:
            inner.add_nodes([make.fact("inner")])
        raise RuntimeError("stop")
    assert store.count() == 0
    assert found(store, make, "outer inner") == ([], [])


def test_a_transaction_sees_itself_and_rolls_back_without_a_trace(store, make):
    add(store, make.fact("cats sleep"), make.fact("dogs bark"), make.fact("cows moo"))
    assert len(found(store, make, "cats")[0]) == 3
    with pytest.raises(RuntimeError, match="stop"), store.transaction() as transaction:  # noqa: PT012
        (new,) = transaction.add_nodes([make.fact("cats purr")])
        transaction.delete_nodes([store.select()[0].id])
        assert found(store, make, "cats purr", 1) == ([new], [new])
        assert store.count() == 3
        raise RuntimeError("stop")
    assert store.count() == 3
    assert new not in found(store, make, "cats purr")[0] + found(store, make, "cats purr")[1]
    assert store.verify().problems == ()


def test_id_that_is_taken(store, make):
    fact = make.fact("the content")
    add(store, fact)
    with pytest.raises(InvalidInputError, match=f"id '{fact.id}' is taken"):
        add(store, make.fact("another content", id=fact.id))
    assert add(store, fact) == [fact.id]
    assert store.get(fact.id).count == 2


# Duplicates


def test_user_report_6_same_text_twice_is_one_node_with_count_two(store, make):
    (first,) = add(store, make.fact("Ada likes tea"))
    assert add(store, make.fact("Ada likes tea")) == [first]
    assert (store.count(), store.get(first).count) == (1, 2)
    assert [entry.action for entry in store.history(first)] == ["added"]


def test_user_report_7_noise_vectors_cannot_keep_equal_names_apart(store):
    rng = np.random.default_rng(0)
    texts = ["DGIA é", "dgia É", "DGIA  e\u0301", "  DGIA é\n"]
    ids = add(store, *(SemanticNode(content=text, embedding=rng.normal(size=32)) for text in texts))
    assert len(set(ids)) == 1
    assert store.get(ids[0]).count == 4


def test_scopes_keep_equal_facts_apart(store, make):
    ids = add(store, *(make.fact("tea", scope=scope) for scope in (Scope(), Scope("ada"), Scope("ben"), Scope("ada"))))
    assert (len(set(ids)), ids[1]) == (3, ids[3])
    assert found(store, make, "tea", scope=Scope("ada")) == (sorted(ids[:2]), sorted(ids[:2]))


def test_stating_a_demoted_fact_again_brings_it_back(store, make):
    (id,) = add(store, make.fact("tea"))
    with store.transaction() as transaction:
        transaction.set_state([id], NodeState.DEMOTED)
    assert found(store, make, "tea") == ([], [])
    add(store, make.fact("tea"))
    assert found(store, make, "tea") == ([id], [id])


def test_merge_moves_what_the_dropped_nodes_had(store, make):
    keep, drop, episode = make.fact("tea is hot"), make.fact("hot is tea", source="b"), make.episode("task")
    other = make.episode("other task")
    add(store, keep, drop, episode, other)
    with store.transaction() as transaction:
        transaction.add_edges([GroundEdge(source_id=keep.id, target_id=episode.id, weight=0.2, success_count=1)])
        transaction.add_edges([GroundEdge(source_id=drop.id, target_id=episode.id, weight=0.7, success_count=2)])
        transaction.add_edges([GroundEdge(source_id=drop.id, target_id=other.id)])
        transaction.record_outcomes(
            [
                Outcome(node_id=keep.id, episode_id=episode.id, helped=1),
                Outcome(node_id=drop.id, episode_id=episode.id, hurt=2),
            ]
        )
        transaction.merge_nodes(keep.id, [drop.id])
    assert store.get(keep.id).count == 2
    edges = {edge.target_id: (edge.weight, edge.success_count) for edge in store.edges(source_ids=[keep.id])}
    assert edges == {episode.id: (0.7, 3), other.id: (1.0, 0)}
    assert store.outcomes() == [Outcome(node_id=keep.id, episode_id=episode.id, helped=1, hurt=2)]
    assert store.forget(source="b").kept == ((keep.id, "also stated by ''"),)
    assert store.verify().problems == ()


# Search


def test_newest_fact_is_found_at_once(store, make):
    for number in range(6):
        (id,) = add(store, make.fact(f"fact {number} of colour{number}"))
        assert found(store, make, f"fact {number} of colour{number}", 1)[0] == [id]


def test_filters_do_not_lower_recall(store, make, monkeypatch):
    monkeypatch.setattr("fluxmem_local.memory_store.search._FEW", 3)
    add(store, *(make.fact(f"apple number {i}", metadata={"even": i % 2 == 0, "n": i}) for i in range(60)))
    expected = [node.id for node in store.select(filters={"n": {"gte": 55}})]
    near, words = found(store, make, "apple number 1", 5, filters={"n": {"gte": 55}})
    assert sorted(near) == sorted(expected)
    assert sorted(words) == sorted(expected)
    assert len(found(store, make, "apple", 30, filters={"even": True})[0]) == 30


def test_few_and_many_matches_rank_alike(store, make, monkeypatch):
    ids = add(store, *(make.fact(f"apple number {i} tastes {i % 3}", metadata={"n": i % 2}) for i in range(30)))
    few = store.nearest(SEMANTIC, make.vector("apple 2"), 10, filters={"n": 0}, exclude=ids[:2])
    monkeypatch.setattr("fluxmem_local.memory_store.search._FEW", 2)
    assert store.nearest(SEMANTIC, make.vector("apple 2"), 10, filters={"n": 0}, exclude=ids[:2]) == few
    assert ids[0] not in [id for id, _ in few]
    assert len(few) == 10


def test_trial_nodes_are_seen_by_their_episode_only(store, make):
    episode, original = make.episode("task"), make.fact("tea is hot")
    add(store, episode, original)
    (variant,) = add(store, make.fact("tea is very hot", variant_of=original.id), trial_of=episode.id)
    assert found(store, make, "very hot tea") == ([original.id], [original.id])
    assert set(found(store, make, "very hot tea", trial_of=episode.id)[0]) == {variant, original.id}
    assert found(store, make, "very", trial_of=episode.id)[1] == [variant]
    assert store.variants(original.id) == []
    with store.transaction() as transaction:
        transaction.set_state([variant], NodeState.ACTIVE)
    assert variant in found(store, make, "very hot tea")[0]
    assert [node.id for node in store.variants(original.id)] == [variant]


def test_lexical_scores_are_those_of_the_search(store, make):
    ids = add(store, make.fact("tea"), make.fact("hot tea pot"), make.fact("snow"), make.fact("ice"), make.fact("fog"))
    hits = dict(store.lexical(SEMANTIC, "tea", 9))
    assert set(hits) == set(ids[:2])
    assert store.lexical_scores(SEMANTIC, "tea", [*ids, "unknown"]).tolist() == [hits[ids[0]], hits[ids[1]], 0, 0, 0, 0]


def test_query_vector_of_the_wrong_size(store, make):
    add(store, make.fact("tea"))
    with pytest.raises(DimensionError, match=r"\(3,\)"):
        store.nearest(SEMANTIC, np.ones(3), 1)


def test_given_vector_stores_are_filled_and_kept(make):
    mine = ExactVectorStore()
    first = make.fact("tea is hot")
    mine.add([first.id], np.stack([make.vector("tea is hot")]))
    with make.open(None, vector_stores={SEMANTIC: mine}) as store:
        (second,) = add(store, make.fact("snow is cold"))
        add(store, first)
        assert store.nearest(SEMANTIC, make.vector("snow"), 1)[0][0] == second
        assert sorted(mine.ids) == sorted([first.id, second])
        store.forget(ids=[second])
        assert mine.ids == [first.id]
        store.rebuild_indices()
        assert [id for id, _ in store.nearest(SEMANTIC, make.vector("tea"), 5)] == [first.id]
        assert mine.ids == [first.id]


def test_other_processes_writes_are_found(make, tmp_path):
    with make.open(tmp_path / "m") as mine, make.open(tmp_path / "m") as theirs:
        (first,) = add(mine, make.fact("tea is hot"))
        assert found(theirs, make, "tea", 5) == ([first], [first])
        (second,) = add(theirs, make.fact("tea is wet"))
        with theirs.transaction() as transaction:
            transaction.delete_nodes([first])
        assert found(mine, make, "tea", 5) == ([second], [second])


# Changes


def test_user_report_10_update_keeps_metadata_and_moves_the_vector(store, make):
    (id,) = add(store, make.fact("tea is hot", metadata={"k": "v"}))
    add(store, make.fact("snow is cold"))
    old = store.get(id)
    with store.transaction() as transaction:
        transaction.replace(
            replace(old, content="coffee tastes bitter", embedding=make.vector("coffee tastes bitter")), reason="r"
        )
    assert found(store, make, "coffee", 1, filters={"k": "v"}) == ([id], [id])
    assert store.lexical(SEMANTIC, "tea", 5) == []
    assert dict(store.nearest(SEMANTIC, make.vector("tea is hot"), 5))[id] < 0.5
    assert [(entry.action, entry.content, entry.reason) for entry in store.history(id)] == [
        ("added", "tea is hot", ""),
        ("updated", "coffee tastes bitter", "r"),
    ]
    with store.transaction() as transaction:
        transaction.replace(old)
    assert store.history(id)[-1].action == "reverted"
    assert store.verify().problems == ()


def test_replace_refuses_what_would_break_a_rule(store, make):
    first, second = add(store, make.fact("tea"), make.fact("snow"))
    before = list(store.export_lines())
    for node, error, message in (
        (make.fact("x", id="nobody"), NotFoundError, "nobody"),
        (SemanticNode(id=first, content="new"), InvalidInputError, "no embedding"),
        (make.fact("SNOW", id=first), InvalidInputError, f"already that of '{second}'"),
        (make.episode("tea", id=first), InvalidInputError, "is semantic"),
    ):
        with pytest.raises(error, match=message), store.transaction() as transaction:
            transaction.replace(node)
    assert list(store.export_lines()) == before


def test_history_tells_of_reshapes(store, make):
    (id,) = add(store, make.fact("tea"))
    variant = make.fact("tea, spelled out", variant_of=id)
    add(store, variant)
    kept = Edit(kind="reshape", targets=(id,), reason="too coarse", kept=True, after={"variants": {id: variant.id}})
    undone = Edit(kind="reshape", targets=(id,), reason="too fine", kept=False)
    with store.transaction() as transaction:
        transaction.put_edit(kept)
        transaction.put_edit(undone)
    entries = store.history(id)
    assert [(entry.action, entry.reason, entry.edit_id) for entry in entries] == [
        ("added", "", None),
        ("reshaped into", "too coarse", kept.id),
        ("reshape undone", "too fine", undone.id),
    ]
    assert entries[1].content == "tea, spelled out"
    assert store.get_edit(kept.id) == kept
    assert store.edits(node_id=id) == [kept, undone]


def test_history_names_the_expansions_and_prunes_that_undo_takes(store, make):
    (id,) = add(store, make.fact("tea"))
    start = store.get(id).created_at
    edits = [
        Edit(kind="expand", targets=(id,), reason="missing", kept=True, created_at=start + 1),
        Edit(kind="prune", targets=(id,), reason="misled", kept=True, created_at=start + 2),
        Edit(kind="prune", targets=(id,), reason="rolled back", kept=False, created_at=start + 3),
        Edit(kind="expand", targets=(id,), reason="running", created_at=start + 4),
    ]
    with store.transaction() as transaction:
        for edit in edits:
            transaction.put_edit(edit)
    told = [(entry.action, entry.reason, entry.edit_id) for entry in store.history(id)]
    assert told == [
        ("added", "", None),
        ("expanded into a context", "missing", edits[0].id),
        ("pruned from a context", "misled", edits[1].id),
    ]
    undone = undo_edit(store, edits[0].id)
    (new,) = [entry for entry in store.history(id) if (entry.action, entry.reason, entry.edit_id) not in told]
    assert (new.action, new.edit_id, new.at) == ("expand undone", edits[0].id, undone.after["undone_at"])
    assert len(store.history(id)) == 4


def test_edges_obey_the_layers_and_join_what_is_there(store, make):
    fact, episode = add(store, make.fact("tea"), make.episode("task"))
    for edge, message in (
        (GroundEdge(source_id=episode, target_id=fact), "cannot go from a episodic"),
        (DistillEdge(source_id=fact, target_id=episode), "cannot go"),
        (GroundEdge(source_id=fact, target_id="nobody"), "nobody"),
        (GroundEdge(source_id=fact, target_id=episode, weight=float("nan")), "weight"),
    ):
        with pytest.raises(InvalidInputError, match=message), store.transaction() as transaction:
            transaction.add_edges([GroundEdge(source_id=fact, target_id=episode), edge])
    assert store.edges() == []


def test_edges_count_and_reweigh(store, make):
    fact, episode = add(store, make.fact("tea"), make.episode("task"))
    edge = GroundEdge(source_id=fact, target_id=episode, weight=0.5, metadata={"a": 1})
    step = StepLinkEdge(source_id=episode, target_id=fact, step_index=4)
    with store.transaction() as transaction:
        transaction.add_edges([edge, GroundEdge(source_id=fact, target_id=episode, weight=0.9), step])
        transaction.count_activations([edge.id], success=True)
        transaction.count_activations([edge.id, step.id], success=False)
        transaction.reweigh_edges({step.id: 0.1})
    (ground,) = store.edges(source_ids=[fact], target_ids=[episode], kinds=["ground"])
    assert ground == replace(edge, weight=0.9, success_count=1, failure_count=1)
    assert store.edges(kinds=["step"]) == [replace(step, weight=0.1, failure_count=1)]
    assert store.edges(source_ids=[]) == []
    with store.transaction() as transaction:
        transaction.delete_edges([step.id])
    assert len(store.edges()) == 1
    with pytest.raises(NotFoundError, match="no edge"), store.transaction() as transaction:
        transaction.delete_edges([step.id])


def test_outcomes_add_up(store, make):
    fact, episode = add(store, make.fact("tea"), make.episode("task"))
    for _ in range(2):
        with store.transaction() as transaction:
            transaction.record_outcomes([Outcome(node_id=fact, episode_id=episode, helped=1, hurt=2)])
    assert store.outcomes(node_ids=[fact]) == [Outcome(node_id=fact, episode_id=episode, helped=2, hurt=4)]
    assert store.outcomes(episode_ids=["other"]) == []


def test_unknown_ids_change_nothing(store, make):
    add(store, make.fact("tea"))
    for call in (
        lambda t: t.delete_nodes(["nobody"]),
        lambda t: t.set_state(["nobody"], NodeState.DEMOTED),
        lambda t: t.set_embeddings(["nobody"], np.ones((1, 32))),
        lambda t: t.record_outcomes([Outcome(node_id="nobody", episode_id="x")]),
        lambda t: t.merge_nodes("nobody", []),
    ):
        with pytest.raises(NotFoundError, match="nobody"), store.transaction() as transaction:
            call(transaction)
    with pytest.raises(NotFoundError, match="'nobody'"):
        store.get_many([store.select()[0].id, "nobody"])
    with pytest.raises(NotFoundError, match="no edit"):
        store.get_edit("nobody")


# Forgetting


def test_user_report_8_forgetting_a_fact_leaves_nothing_dangling(store, make):
    fact, first, second = make.fact("secret recipe of tea"), make.episode("one"), make.episode("two")
    skill = ProceduralNode(content="brew", embedding=make.vector("brew"), source_episode_ids=(first.id, second.id))
    variant = make.fact("secret recipe, spelled out", variant_of=fact.id)
    add(store, fact, first, second, skill, variant)
    quoting = Edit(
        kind="expand", targets=(first.id,), reason="because of: secret recipe of tea", before={"ids": [fact.id]}
    )
    with store.transaction() as transaction:
        transaction.add_edges([GroundEdge(source_id=fact.id, target_id=each.id) for each in (first, second)])
        transaction.add_edges([DistillEdge(source_id=each.id, target_id=skill.id) for each in (first, second)])
        transaction.record_outcomes([Outcome(node_id=fact.id, episode_id=first.id, helped=1)])
        transaction.put_edit(Edit(kind="prune", targets=(fact.id,), reason="r"))
        transaction.put_edit(quoting)
    planned = store.forget(ids=[fact.id], dry_run=True)
    assert store.count() == 5
    receipt = store.forget(ids=[fact.id])
    assert receipt == planned
    assert receipt == Receipt(removed=(fact.id, variant.id), num_edges=2, num_edits=2)
    assert store.outcomes() == []
    assert store.edits() == [replace(quoting, reason="", before={"ids": []})]
    assert store.forget(ids=[first.id]).changed == ((skill.id, "lost a source"),)
    assert store.get(skill.id).source_episode_ids == (second.id,)
    assert store.verify().problems == ()


def test_user_report_9_deleted_is_not_found_and_may_come_back(make, tmp_path):
    facts = [make.fact(f"tea number {i}") for i in range(10)]
    with make.open(tmp_path / "m") as store:
        add(store, *facts)
        assert len(found(store, make, "tea")[0]) == 9
        store.forget(ids=[fact.id for fact in facts[1:]])
        assert found(store, make, "tea", 5) == ([facts[0].id], [facts[0].id])
    with make.open(tmp_path / "m") as store:
        assert found(store, make, "tea", 5) == ([facts[0].id], [facts[0].id])
        add(store, facts[3])
        assert found(store, make, "tea number 3", 1)[0] == [facts[3].id]
        assert store.verify().problems == ()


def test_forgotten_text_is_in_no_file(make, tmp_path):
    with make.open(tmp_path / "m") as store:
        (id,) = add(store, make.fact("the password is xylophone-4711"), make.fact("something else"))[:1]
        with store.transaction() as transaction:
            transaction.replace(replace(store.get(id), content="gone", embedding=make.vector("gone")))
        store.forget(ids=[id])
        content = b"".join(file.read_bytes() for file in (tmp_path / "m").rglob("*") if file.is_file())
        assert b"something else" in content
        assert b"xylophone" not in content


def test_forget_by_source_keeps_what_others_state(store, make):
    both, only = add(store, make.fact("tea", source="a.md"), make.fact("snow", source="a.md", chunk_index=1))
    add(store, make.fact("tea", source="b.md", chunk_index=7))
    with store.transaction() as transaction:
        transaction.set_ingested("a.md", Scope(), "digest")
    receipt = store.forget(source="a.md")
    assert (receipt.removed, receipt.kept) == ((only,), ((both, "also stated by 'b.md'"),))
    node = store.get(both)
    assert (node.source, node.chunk_index, node.count) == ("b.md", 7, 1)
    assert store.ingested("a.md", Scope()) is None
    with pytest.raises(NotFoundError, match=r"a\.md"):
        store.forget(source="a.md")


def test_forget_by_scope(store, make):
    ids = add(
        store, *(make.fact("tea", scope=scope) for scope in (Scope(), Scope("ada"), Scope("ada", "x"), Scope("ben")))
    )
    assert store.forget(scope=Scope("ada")).removed == tuple(ids[1:3])
    assert [node.id for node in store.select()] == [ids[0], ids[3]]
    for options, error in (
        ({"scope": Scope("ada")}, NotFoundError),
        ({"scope": Scope()}, InvalidInputError),
        ({}, InvalidInputError),
    ):
        with pytest.raises(error):
            store.forget(**options)


# Embedders


def test_another_embedder_is_refused_by_name_until_reindexed(make, tmp_path):
    make.filled(tmp_path / "m", "tea is hot", "snow is cold").close()
    with pytest.raises(EmbedderMismatchError, match=r"hash-embedder-1/32.*other/16.*fluxmem reindex"):
        MemoryStore.open(tmp_path / "m", fingerprint="other/16", dimension=16)
    with MemoryStore.open(tmp_path / "m", fingerprint="other/16", dimension=16, accept_other_embedder=True) as store:
        with pytest.raises(EmbedderMismatchError):
            add(store, SemanticNode(content="new", embedding=np.ones(16)))
        with pytest.raises(EmbedderMismatchError):
            store.nearest(SEMANTIC, np.ones(16), 5)
        with pytest.raises(InvalidInputError, match="no re-embedding is under way"):
            store.end_reembedding()
        store.begin_reembedding("other/16", 16)
        nodes = store.not_reembedded(10)
        assert [node.content for node in nodes] == ["tea is hot", "snow is cold"]
        store.reembed(nodes[:1], np.eye(16)[:1])
        assert not store.end_reembedding()
        store.reembed(nodes[1:], np.eye(16)[1:2])
        assert store.end_reembedding()
        assert store.nearest(SEMANTIC, np.eye(16)[1], 1) == [(nodes[1].id, 1.0)]
        assert store.verify().problems == ()
        assert store.stats()["num_unembedded"] == 0


def test_reindex_to_another_size_while_the_old_vectors_are_in_memory(store, make):
    (id,) = add(store, make.fact("tea"))
    assert found(store, make, "tea") == ([id], [id])
    store.begin_reembedding("other/4", 4)
    store.reembed([store.get(id)], np.ones((1, 4)))
    assert store.end_reembedding()
    assert store.nearest(SEMANTIC, np.ones(4), 3) == [(id, 1.0)]


def test_without_an_embedder_words_find_it(tmp_path):
    with MemoryStore.open(tmp_path / "m") as store:
        (id,) = add(store, SemanticNode(content="tea"))
        assert (store.fingerprint, store.dimension, store.stats()["num_unembedded"]) == (None, None, 1)
        assert [hit for hit, _ in store.lexical(SEMANTIC, "tea", 3)] == [id]
        assert store.nearest(SEMANTIC, np.ones(3), 3) == []
        assert store.embeddings([id]).shape == (1, 0)


# The rest


def test_user_report_11_a_copy_of_a_changed_memory_is_whole(make, tmp_path):
    make.filled(tmp_path / "one", "tea is hot", "snow is cold").close()
    with make.open(tmp_path / "one") as one, make.open(tmp_path / "two") as two:
        before = list(one.export_lines())
        two.import_lines(one.export_lines())
        add(two, make.fact("tea is wet"))
        assert list(one.export_lines()) == before
    with make.open(tmp_path / "two") as two:
        assert two.count() == 3
        assert {two.get(id).content for id in found(two, make, "tea")[1]} == {"tea is hot", "tea is wet"}


def test_stats_and_meta(store, make):
    fact, episode = add(store, make.fact("tea"), make.episode("task"))
    with store.transaction() as transaction:
        transaction.add_edges([GroundEdge(source_id=fact, target_id=episode)])
        transaction.set_meta("a", "b")
    stats = store.stats()
    assert {
        name: stats[name] for name in ("num_semantic_nodes", "num_episodic_nodes", "num_ground_edges", "num_edits")
    } == {
        "num_semantic_nodes": 1,
        "num_episodic_nodes": 1,
        "num_ground_edges": 1,
        "num_edits": 0,
    }
    assert stats["size_bytes"] > 4096
    assert (store.meta("a"), store.meta("generation")) == ("b", None)
    assert [store.count(layer) for layer in Layer] == [1, 1, 0]


def test_reads_from_many_threads(store, make):
    add(store, *(make.fact(f"tea number {i}") for i in range(20)))
    results = []
    threads = [
        threading.Thread(target=lambda: results.append((len(store.select()), found(store, make, "tea number 7", 1)[0])))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert len({str(result) for result in results}) == 1


def test_verify_finds_and_mends_what_was_broken_by_hand(make, tmp_path):
    with make.open(tmp_path / "m") as store:
        fact, episode, third = add(store, make.fact("tea"), make.episode("task", success=True), make.fact("snow"))
        skill = ProceduralNode(content="brew", embedding=make.vector("brew"), source_episode_ids=("gone",))
        add(store, skill)
        with store.transaction() as transaction:
            transaction.add_edges([StepLinkEdge(source_id=episode, target_id=fact)])
        with store.database.write() as connection:
            connection.execute("UPDATE nodes SET terms = 'wrong' WHERE id = ?", (fact,))
            connection.execute("UPDATE nodes SET embedding = ? WHERE id = ?", (b"\0" * 128, third))
        report = store.verify()
        assert not report.ok
        assert sorted(problem.split(" ")[0] for problem in report.problems) == ["node", "skill", "step", "the"]
        mended = store.verify(fix=True)
        assert mended.ok
        assert mended.fixed == mended.problems
        assert store.verify().problems == ()
        assert [node.id for node in store.unembedded(9)] == [third]
        assert store.edges() == []
        assert store.get(skill.id).source_episode_ids == ()
        assert [id for id, _ in store.lexical(SEMANTIC, "tea", 3)] == [fact]


def test_adding_and_searching_read_the_same_number_of_rows_at_any_size(make):
    def steps(store, call):
        count = 0

        def tick():
            nonlocal count
            count += 1

        store.database._writer.set_progress_handler(tick, 1)
        call()
        store.database._writer.set_progress_handler(None, 1)
        return count

    def measured(store, text):
        found(store, make, "fact", 5)
        return (
            steps(store, lambda: add(store, make.fact(text))),
            steps(store, lambda: found(store, make, "fact one", 5)),
        )

    with make.open(None) as store:
        add(store, *(make.fact(f"fact {i}") for i in range(30)))
        small = measured(store, "one more")
        add(store, *(make.fact(f"another fact {i}") for i in range(1000)))
        large = measured(store, "yet another")
        assert large[0] <= small[0] + 60
        assert large[1] <= small[1] + 60


def test_episode_without_a_result_is_told_apart(make):
    with make.open(None) as store:
        add(store, make.episode("odd", status="succeeded", success=None))
        assert store.verify().problems != ()
        assert isinstance(store.select()[0], EpisodicNode)


def test_a_given_store_holds_each_vector_as_soon_as_it_is_added() -> None:
    given = HNSWVectorStore()
    with MemoryStore.open(None, dimension=2, fingerprint="f", vector_stores={Layer.SEMANTIC: given}) as store:
        with store.transaction() as transaction:
            ids = transaction.add_nodes(
                [
                    SemanticNode(content="one", embedding=np.array([1, 0], np.float32)),
                    SemanticNode(content="two", embedding=np.array([0, 1], np.float32)),
                ]
            )
        assert len(given) == 2
        store.rebuild_indices()
        assert sorted(given.ids) == sorted(ids)
        store.forget(ids=[ids[0]])
        assert given.ids == [ids[1]]


def test_a_given_store_of_another_size_is_refused_before_anything_is_stored(tmp_path) -> None:
    with pytest.raises(DimensionError, match="vectors of 3, the embedder makes 2"):
        MemoryStore.open(
            tmp_path / "memory", dimension=2, fingerprint="f", vector_stores={Layer.SEMANTIC: HNSWVectorStore(3)}
        )
    assert not (tmp_path / "memory").exists()
