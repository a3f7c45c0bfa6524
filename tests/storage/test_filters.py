"""Filters on metadata, and whom a scope sees."""

from __future__ import annotations

import pytest

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import SemanticNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import Layer, Scope

ROWS = [
    {"topic": "sport", "year": 2000, "done": True, 'odd."key': "x"},
    {"topic": "art", "year": 2010.5, "done": False, "tags": ["a", "b"]},
    {"topic": None, "year": "2000"},
]


@pytest.fixture
def store():
    store = MemoryStore.open(None)
    with store.transaction() as transaction:
        transaction.add_nodes(
            [
                SemanticNode(id=str(place), content=f"fact {place}", metadata=row, source=f"s{place}", created_at=place)
                for place, row in enumerate(ROWS)
            ]
        )
    yield store
    store.close()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"topic": "sport"}, "0"),
        ({"year": 2000}, "0"),
        ({"year": "2000"}, "2"),
        ({"year": {"gt": 2000}}, "1"),
        ({"year": {"gte": 2000, "lt": 2010}}, "0"),
        ({"year": {"lte": 3000}}, "01"),
        ({"topic": None}, "2"),
        ({"absent": None}, "012"),
        ({"topic": {"ne": "sport"}}, "12"),
        ({"topic": {"in": ["art", "sport"]}}, "01"),
        ({"topic": {"in": []}}, ""),
        ({"done": True}, "0"),
        ({"done": 1}, ""),
        ({"tags": ["a", "b"]}, "1"),
        ({'odd."key': "x"}, "0"),
        ({"or": [{"topic": "art"}, {"done": True}]}, "01"),
        ({"and": [{"topic": "art"}, {"done": True}]}, ""),
        ({"not": {"topic": "art"}}, "02"),
        ({"source": "s1"}, "1"),
        ({"id": {"in": ["0", "2"]}}, "02"),
        ({"created_at": {"gte": 1}}, "12"),
        ({"topic": "' OR 1=1 --"}, ""),
    ],
)
def test_filters(store, filters, expected):
    assert "".join(node.id for node in store.select(filters=filters)) == expected
    assert "".join(sorted(id for id, _ in store.lexical(Layer.SEMANTIC, "fact", 9, filters=filters))) == expected
    assert "".join(node.id for node in store.iterate(filters=filters, batch_size=1)) == expected


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"year": {"near": 3}}, "unknown operator 'near'"),
        ({"year": {}}, "no operator"),
        ({"year": {"gt": None}}, "number or a text"),
        ({"year": {"in": "abc"}}, "takes a list"),
        ({"and": {}}, "list of filters"),
        ({"not": 3}, "must be a mapping"),
        ({3: 3}, "no text"),
        ({"year": {"gt": 2**70}}, "64 bits"),
        ({"year": object()}, "not a text, number"),
        ("abc", "must be a mapping"),
    ],
)
def test_unreadable_filters(store, filters, message):
    with pytest.raises(InvalidInputError, match=message):
        store.select(filters=filters)


def test_scopes_see_what_the_value_says():
    scopes = [
        Scope(),
        Scope("ada"),
        Scope("ben"),
        Scope("ada", "coder"),
        Scope("ada", None, "s1"),
        Scope(None, "coder"),
    ]
    with MemoryStore.open(None) as store:
        with store.transaction() as transaction:
            transaction.add_nodes(
                [SemanticNode(id=str(place), content="one fact", scope=scope) for place, scope in enumerate(scopes)]
            )
        assert store.count() == len(scopes)
        for asking in scopes:
            expected = [str(place) for place, scope in enumerate(scopes) if asking.sees(scope)]
            assert [node.id for node in store.select(scope=asking)] == expected
            assert sorted(id for id, _ in store.lexical(Layer.SEMANTIC, "fact", 9, scope=asking)) == expected
        assert len(store.select(scope=None)) == len(scopes)
