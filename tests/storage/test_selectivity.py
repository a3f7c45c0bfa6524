"""A part of a large memory is searched as if it were alone, and by index: no condition reads the whole memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fluxmem_local.graph import SemanticNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.storage.filters import visible
from fluxmem_local.types import Layer, Origin, Scope

NUM_FACTS, PARTS, DIMENSION, TOP_K = 20_000, 100, 16, 10
RNG = np.random.default_rng(7)
VECTORS = RNG.normal(size=(NUM_FACTS, DIMENSION)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
# One user in all, whose agents and sessions are what tells the parts apart.
SCOPES = [
    Scope(user="ada", agent=f"a{number % PARTS}", session=f"s{number % PARTS}") if number % 2 else Scope("ben")
    for number in range(NUM_FACTS)
]


def word(number: int) -> str:
    return f"{number:05}".translate(str.maketrans("0123456789", "abcdefghij"))


def fact(number: int) -> SemanticNode:
    part = number % PARTS
    return SemanticNode(
        id=f"f{number:05}",
        content=f"fact {word(number)} of zz{word(number % 50)}",
        embedding=VECTORS[number],
        created_at=float(number),
        source=f"source{part}",
        scope=SCOPES[number],
        added_by=Origin.AGENT if part == 7 else Origin.USER,
        metadata={"part": part, "name": f"part {part}", "tags": ["all", f"tag {part}"], "done": part == 7}
        | ({"rare": None if number % 200 == 7 else True} if part == 7 else {}),
    )


@pytest.fixture(scope="module")
def store() -> Iterator[MemoryStore]:
    with MemoryStore.open(None, dimension=DIMENSION, fingerprint="planned") as store:
        with store.transaction() as transaction:
            transaction.add_nodes([fact(number) for number in range(NUM_FACTS)])
        yield store


def is_seventh(number: int) -> bool:
    return number % PARTS == 7


NARROW: list[tuple[dict[str, Any], Any]] = [
    ({"scope": Scope(user="ada", agent="a7", session="s7")}, is_seventh),
    ({"scope": Scope(user="ada", agent="a7", session="s7"), "filters": {"part": {"gte": 3}}}, is_seventh),
    ({"filters": {"part": 7}}, is_seventh),
    ({"filters": {"name": "part 7"}}, is_seventh),
    ({"filters": {"name": {"in": ["part 7", "part 8"]}}}, lambda number: number % PARTS in (7, 8)),
    ({"filters": {"part": {"gte": 7, "lt": 8}}}, is_seventh),
    ({"filters": {"done": True}}, is_seventh),
    ({"filters": {"rare": {"exists": True}}}, lambda number: is_seventh(number) and number % 200 != 7),
    ({"filters": {"tags": {"contains": "tag 7"}}}, is_seventh),
    ({"filters": {"tags": ["all", "tag 7"]}}, is_seventh),
    ({"filters": {"or": [{"part": 7}, {"name": "part 9"}]}}, lambda number: number % PARTS in (7, 9)),
    ({"filters": {"and": [{"part": 7}, {"not": {"done": False}}]}}, is_seventh),
    ({"filters": {"source": "source7"}}, is_seventh),
    ({"filters": {"added_by": "agent"}}, is_seventh),
    ({"filters": {"created_at": {"lt": 200}}}, lambda number: number < 200),
    ({"known_at": 199.0}, lambda number: number < 200),
]


@pytest.mark.parametrize(("options", "holds"), NARROW, ids=[str(options) for options, _ in NARROW])
def test_a_part_is_searched_exactly_and_without_a_scan(store: MemoryStore, options: dict[str, Any], holds: Any) -> None:
    numbers = [number for number in range(NUM_FACTS) if holds(number)]
    query = VECTORS[numbers[0]] + VECTORS[1]
    exact = sorted(numbers, key=lambda number: -float(VECTORS[number] @ query))[:TOP_K]
    assert [id for id, _ in store.nearest(Layer.SEMANTIC, query, TOP_K, **options)] == [f"f{n:05}" for n in exact]
    found = {id for id, _ in store.lexical(Layer.SEMANTIC, f"zz{word(numbers[0] % 50)}", NUM_FACTS, **options)}
    assert found == {f"f{number:05}" for number in numbers if number % 50 == numbers[0] % 50}
    sql, values = visible(layers=(Layer.SEMANTIC,), **options)
    with store.database.read() as connection:
        plan = [
            row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN SELECT key FROM nodes WHERE {sql}", values)
        ]
    assert [step for step in plan if step.startswith("SCAN nodes")] == []
    # The state's index holds the whole memory, so a plan by it would read all of it.
    assert not any("nodes_by_state" in step or "nodes_by_rev" in step for step in plan), plan


def test_what_filters_only_keep_out_is_read_by_layer(store: MemoryStore) -> None:
    options: dict[str, Any] = {"filters": {"not": {"part": 7}}}
    query = VECTORS[7]
    exact = sorted((n for n in range(NUM_FACTS) if n % PARTS != 7), key=lambda n: -float(VECTORS[n] @ query))[:TOP_K]
    found = [id for id, _ in store.nearest(Layer.SEMANTIC, query, TOP_K, **options)]
    assert len(set(found) & {f"f{number:05}" for number in exact}) >= TOP_K - 1
