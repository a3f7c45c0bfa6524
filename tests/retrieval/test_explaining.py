from __future__ import annotations

from fluxmem_local.graph import DistillEdge, GroundEdge

from .conftest import Shelf


async def test_a_hit_names_weights_tasks_edges_and_repairs(shelf: Shelf) -> None:
    await shelf.facts(lease="The lease ends in May.", rent="The rent is high.", tea="Tea is served at noon.")
    await shelf.episode("past", "when does the lease end")
    await shelf.episode("other", "grow tomatoes")
    ground = GroundEdge(source_id="lease", target_id="past")
    shelf.link(ground, GroundEdge(source_id="rent", target_id="other"))
    shelf.edit("expand", "past", "lease")
    shelf.edit("expand", "past", "rent", kept=False)
    retriever = shelf.retriever(dense_weight=2, bm25_weight=0.25)
    hits = await retriever.retrieve("when does the lease end", top_k=3, with_explanation=True)
    by_id = {hit.node.id: hit.explanation for hit in hits}
    lease, rent = by_id["lease"], by_id["rent"]
    assert lease is not None
    assert rent is not None
    assert (lease.weights["dense"], lease.weights["bm25"]) == (2, 0.25)
    assert set(lease.weights) == set(next(hit for hit in hits if hit.node.id == "lease").signals)
    assert list(lease.tasks) == ["past"]
    assert lease.tasks["past"] > 0.99
    assert lease.edges == (ground,)
    assert [edit.kind for edit in lease.edits] == ["expand"]
    assert (rent.tasks, rent.edges, rent.edits) == ({}, (), ())
    data = next(hit for hit in hits if hit.node.id == "lease").to_dict()["explanation"]
    assert data["edges"] == [{"id": ground.id, "kind": "ground", "source_id": "lease", "target_id": "past"}]
    assert data["edits"] == [{"id": lease.edits[0].id, "kind": "expand", "reason": "test"}]


async def test_a_skill_is_explained_by_the_episode_it_was_distilled_from(shelf: Shelf) -> None:
    await shelf.episode("past", "brew the tea")
    await shelf.skill("s", "Warm the pot, then brew the tea.")
    edge = DistillEdge(source_id="past", target_id="s")
    shelf.link(edge)
    (hit,) = await shelf.retriever().retrieve("brew the tea", layers=("procedural",), with_explanation=True)
    assert hit.explanation is not None
    assert hit.explanation.edges == (edge,)


async def test_without_being_asked_there_is_no_explanation(shelf: Shelf) -> None:
    await shelf.facts(lease="The lease ends in May.")
    (hit,) = await shelf.retriever().retrieve("lease")
    assert hit.explanation is None
    assert "explanation" not in hit.to_dict()
