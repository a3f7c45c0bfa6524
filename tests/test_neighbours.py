"""What stands beside a fact in its source."""

from __future__ import annotations

from fluxmem_local.graph import SemanticNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import Scope


def _store(*facts: tuple[str, str, int], scope: Scope | None = None) -> MemoryStore:
    store = MemoryStore.open(None)
    with store.transaction() as transaction:
        transaction.add_nodes(
            [
                SemanticNode(id=id, source=source, chunk_index=place, content=f"text {id}", scope=scope or Scope())
                for id, source, place in facts
            ]
        )
    return store


def test_neighbours_by_offset_up_to_a_gap() -> None:
    store = _store(*[(f"n{place}", "a.md", place) for place in (0, 1, 2, 3, 5)], ("other", "b.md", 2))
    assert store.neighbours(["n2", "n5"], 3) == {"n2": {-2: "n0", -1: "n1", 1: "n3"}, "n5": {}}


def test_texts_of_one_source_are_kept_apart_by_the_order_of_storing() -> None:
    first = [(f"a{place}", "notes", place) for place in range(3)]
    second = [(f"b{place}", "notes", place) for place in range(3)]
    store = _store(*first, *second)
    assert store.neighbours(["a1", "b1"], 1) == {"a1": {-1: "a0", 1: "a2"}, "b1": {-1: "b0", 1: "b2"}}


def test_facts_without_a_source_have_no_neighbours() -> None:
    store = _store(("a", "", 0), ("b", "", 1))
    assert store.neighbours(["a", "b"], 2) == {}


def test_neighbours_of_another_scope_are_not_seen() -> None:
    store = _store(("a", "chat", 0), ("b", "chat", 1), scope=Scope(user="ben"))
    assert store.neighbours(["a"], 1, scope=Scope(user="ana")) == {}
    assert store.neighbours(["a"], 1, scope=Scope(user="ben")) == {"a": {1: "b"}}
