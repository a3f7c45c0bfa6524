from __future__ import annotations

import pytest

from fluxmem_local.errors import InvalidInputError, NotFoundError
from fluxmem_local.graph import Edit, SemanticNode, Subgraph
from fluxmem_local.stages.edits import Change, undo_edit
from fluxmem_local.types import NodeState

from .worlds import CONTEXT, OBJECTION, TASK, Small, World, small_memory

A, B, C = (SemanticNode(id=name, content=name) for name in "abc")


def test_a_change_cuts_rewrites_and_adds() -> None:
    edit = Edit(kind="prune", targets=("a",), reason="r")
    change = Change(edit=edit, cut=frozenset({"a"}), variants={"b": C}, added=(SemanticNode(id="d", content="d"),))
    assert change.apply(Subgraph(task="t").with_nodes([A, B])).ids == ("d", "c")


async def _reshaped(small: Small) -> Edit:
    class Asking(World):
        async def execute(self, context: str) -> tuple[str, str, bool]:
            done = "skill" not in self.shown and "per athlete as asked" in context
            return ("done", "", True) if done else ("", OBJECTION, False)

    world = Asking()
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    return next(edit for edit in result.edits if edit.kept)


async def test_undoing_a_reshape_lets_the_original_serve_again() -> None:
    small = await small_memory()
    edit = await _reshaped(small)
    variant = edit.after["variants"]["skill"]
    hits = await small.retriever.retrieve(TASK, top_k=3, layers=("procedural",))
    assert hits[0].node.id == variant
    undone = undo_edit(small.store, edit.id)
    assert undone.kept is False
    assert small.store.get(variant).state is NodeState.DEMOTED
    hits = await small.retriever.retrieve(TASK, top_k=3, layers=("procedural",))
    assert [hit.node.id for hit in hits] == ["skill"]
    assert small.store.outcomes(node_ids=["skill"])[0].hurt == 0
    assert small.store.verify().ok


async def test_undoing_twice_is_a_clear_error() -> None:
    small = await small_memory()
    edit = await _reshaped(small)
    undo_edit(small.store, edit.id)
    with pytest.raises(InvalidInputError, match="was undone already"):
        undo_edit(small.store, edit.id)


async def test_of_two_who_undo_it_at_once_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    small = await small_memory()
    edit = await _reshaped(small)
    before = {(each.node_id, each.helped, each.hurt) for each in small.store.outcomes(episode_ids=[edit.episode_id])}
    begin = small.store.transaction

    def later() -> object:
        # What the other one does while this one waits for the lock.
        monkeypatch.setattr(small.store, "transaction", begin)
        undo_edit(small.store, edit.id)
        return begin()

    monkeypatch.setattr(small.store, "transaction", later)
    with pytest.raises(InvalidInputError, match="was undone already"):
        undo_edit(small.store, edit.id)
    after = {(each.node_id, each.helped, each.hurt) for each in small.store.outcomes(episode_ids=[edit.episode_id])}
    variant = edit.after["variants"]["skill"]
    assert before - after == {("skill", 0, 1), (variant, 1, 0)}
    assert after - before == {("skill", 0, 0), (variant, 0, 0)}


async def test_only_kept_edits_can_be_undone() -> None:
    small = await small_memory()
    world = World(needed=frozenset({"nowhere"}))
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    with pytest.raises(InvalidInputError, match="rolled back by its own task"):
        undo_edit(small.store, result.edits[0].id)
    with pytest.raises(NotFoundError):
        undo_edit(small.store, "no such edit")


async def test_undo_passes_over_nodes_that_are_gone() -> None:
    small = await small_memory()
    edit = await _reshaped(small)
    small.store.forget(ids=[edit.after["variants"]["skill"]])
    assert undo_edit(small.store, edit.id).kept is False
