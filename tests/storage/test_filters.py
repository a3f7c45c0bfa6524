"""Filters on metadata, and whom a scope sees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import EpisodicNode, ProceduralNode, SemanticNode
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
        ({"created_at": {"lt": "1970-01-02"}}, "012"),
        ({"created_at": "1970-01-01"}, "012"),
        ({"created_at": {"gt": "1970-01-01"}}, ""),
        ({"created_at": {"lte": "1970-01-01T00:00:01Z"}}, "01"),
        ({"created_at": {"in": [0, 2]}}, "02"),
        ({"topic": {"exists": True}}, "01"),
        ({"topic": {"exists": False}}, "2"),
        ({"tags": {"exists": True}}, "1"),
        ({"tags": {"contains": "b"}}, "1"),
        ({"tags": {"contains": "c"}}, ""),
        ({"topic": {"contains": "sport"}}, ""),
        ({"topic": {"in": ["art", "sport", None]}}, "012"),
        ({"year": {"in": [2000, "2000"]}}, "02"),
        ({"topic": {"gte": "art", "lt": "b"}}, "1"),
        ({"not": {"year": {"gt": 0}}}, "2"),
        ({"not": {"or": [{"topic": "art"}, {"year": "2000"}]}}, "0"),
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
        ({"year": {"exists": 1}}, "'exists' takes true or false, not 1"),
        ({"tags": {"contains": ["a"]}}, "'contains' asks a list for a text or number"),
        ({"created_at": {"gte": "soon"}}, "'created_at'='soon' is no time; give ISO 8601"),
        ({"source": 3}, "is no text"),
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


LONG = "x" * 99


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"t": LONG}, "0"),
        ({"t": LONG + "a"}, "1"),
        ({"t": LONG + "ab"}, "2"),
        ({"t": {"gt": LONG}}, "12"),
        ({"t": {"gte": LONG + "ab"}}, "2"),
        ({"t": {"lt": LONG + "ab"}}, "01"),
        ({"t": {"in": [LONG, LONG + "ab"]}}, "02"),
        ({"l": {"contains": LONG + "ab"}}, "2"),
        ({"l": {"contains": LONG}}, "0"),
    ],
)
def test_texts_longer_than_the_index_holds(filters, expected):
    with MemoryStore.open(None) as store:
        with store.transaction() as transaction:
            transaction.add_nodes(
                [
                    SemanticNode(id=str(place), content=f"fact {place}", metadata={"t": text, "l": [text]})
                    for place, text in enumerate([LONG, LONG + "a", LONG + "ab"])
                ]
            )
        assert "".join(node.id for node in store.select(filters=filters)) == expected


def test_filters_follow_changed_and_forgotten_metadata(store):
    with store.transaction() as transaction:
        transaction.replace(replace(store.get("0"), metadata={"topic": "art", "tags": ["b", "b"]}))
    assert [node.id for node in store.select(filters={"topic": "art"})] == ["0", "1"]
    assert [node.id for node in store.select(filters={"tags": {"contains": "b"}})] == ["0", "1"]
    assert store.select(filters={"year": 2000}) == []
    store.forget(ids=["0", "1"])
    with store.database.read() as connection:
        assert connection.execute("SELECT DISTINCT node FROM attributes").fetchall() != []
        left = connection.execute("SELECT DISTINCT id FROM attributes JOIN nodes ON key = node").fetchall()
    assert [row["id"] for row in left] == ["2"]


def test_verify_finds_and_renews_what_filters_look_up(store):
    with store.transaction() as transaction:
        transaction.replace(replace(store.get("0"), metadata={"valid_to": "2020", "topic": "sport"}))
    assert store.verify().problems == ()
    with store.database.write() as connection:
        connection.execute("DELETE FROM attributes WHERE node IN (SELECT key FROM nodes WHERE id = '1')")
        connection.execute("UPDATE attributes SET value = 'x' WHERE value = 'sport'")
        connection.execute("DELETE FROM validity")
    assert store.verify(fix=True).problems == (
        "node 0 is not found by the metadata that it has",
        "node 1 is not found by the metadata that it has",
    )
    assert store.verify().problems == ()
    assert [node.id for node in store.select(filters={"topic": {"in": ["art", "sport"]}})] == ["0", "1"]
    assert [node.id for node in store.select(valid_at=2e9)] == ["1", "2"]


def test_filters_hold_on_every_layer():
    with MemoryStore.open(None) as store:
        with store.transaction() as transaction:
            for number in (1, 2):
                transaction.add_nodes(
                    [
                        SemanticNode(id=f"f{number}", content=f"fact {number}", metadata={"n": number}),
                        EpisodicNode(id=f"e{number}", task_description="fact", success=True, metadata={"n": number}),
                        ProceduralNode(id=f"s{number}", skill_text="fact", metadata={"n": number}),
                    ]
                )
        for layer, id in ((Layer.SEMANTIC, "f2"), (Layer.EPISODIC, "e2"), (Layer.PROCEDURAL, "s2")):
            assert [node.id for node in store.select(layers=(layer,), filters={"n": {"gt": 1}})] == [id]
            assert [found for found, _ in store.lexical(layer, "fact", 9, filters={"n": 2})] == [id]
