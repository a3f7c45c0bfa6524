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


def test_a_short_text_does_not_go_on_in_a_longer_one_of_its_source() -> None:
    first = [(f"a{place}", "notes", place) for place in range(2)]
    second = [(f"b{place}", "notes", place) for place in range(4)]
    store = _store(*first, *second)
    assert store.neighbours(["a1", "b2"], 2) == {"a1": {-1: "a0"}, "b2": {-2: "b0", -1: "b1", 1: "b3"}}


def test_a_chunk_that_came_into_a_document_later_stands_at_its_place() -> None:
    store = _store(("c0", "a.md", 0), ("c2", "a.md", 2), ("c3", "a.md", 3), ("c1", "a.md", 1))
    assert store.neighbours(["c1", "c2"], 2) == {
        "c1": {-1: "c0", 1: "c2", 2: "c3"},
        "c2": {-2: "c0", -1: "c1", 1: "c3"},
    }


def test_what_no_longer_holds_stands_beside_nothing() -> None:
    store = MemoryStore.open(None)
    with store.transaction() as transaction:
        transaction.add_nodes(
            [
                SemanticNode(id="a", source="log", chunk_index=0, content="first", metadata={"valid_to": "2020-01-01"}),
                SemanticNode(id="b", source="log", chunk_index=1, content="second"),
            ]
        )
    assert store.neighbours(["b"], 1) == {"b": {-1: "a"}}
    assert store.neighbours(["b"], 1, valid_at=1.7e9) == {}


def test_facts_without_a_source_have_no_neighbours() -> None:
    store = _store(("a", "", 0), ("b", "", 1))
    assert store.neighbours(["a", "b"], 2) == {}


def test_neighbours_of_another_scope_are_not_seen() -> None:
    store = _store(("a", "chat", 0), ("b", "chat", 1), scope=Scope(user="ben"))
    assert store.neighbours(["a"], 1, scope=Scope(user="ana")) == {}
    assert store.neighbours(["a"], 1, scope=Scope(user="ben")) == {"a": {1: "b"}}
