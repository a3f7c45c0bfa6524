"""Who added a node, and since when an agent's own word is trusted: stored, exported, imported, brought forward."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import ANSWERED, EpisodicNode, ProceduralNode, SemanticNode
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.storage.schema import _FIRST, _FOURTH, _SECOND, _THIRD, APPLICATION_ID
from fluxmem_local.types import Layer, Origin

GATE = "The north gate opens with the green key."


def add(store: MemoryStore, *nodes: Any) -> list[str]:
    with store.transaction() as change:
        return change.add_nodes(nodes)


def test_each_origin_is_kept(make: Any, tmp_path: Path) -> None:
    nodes = [make.fact(f"fact by {origin}", id=str(origin), added_by=origin) for origin in Origin]
    with make.open(tmp_path / "memory") as store:
        add(store, *nodes, make.episode("open the gate", id="lived"))
    with make.open(tmp_path / "memory") as store:
        assert [(node.added_by, node.trusted) for node in store.get_many([str(origin) for origin in Origin])] == [
            (Origin.USER, True),
            (Origin.AGENT, False),
            (Origin.IMPORT, True),
            (Origin.DERIVED, True),
        ]
        assert store.get("lived").added_by is Origin.AGENT
        assert [node.id for node in store.select(filters={"added_by": "agent"})] == ["agent", "lived"]


def test_an_origin_that_is_none_is_refused(make: Any) -> None:
    with make.open(None) as store:
        with pytest.raises(InvalidInputError, match="added_by 'robot'; known are user, agent, import, derived"):
            add(store, make.fact("x is y", added_by="robot"))
        with pytest.raises(InvalidInputError, match="confirmed_at"):
            add(store, make.fact("x is y", confirmed_at=float("nan")))
        assert store.count() == 0


@pytest.mark.parametrize(
    ("second", "trusted"), [(Origin.USER, True), (Origin.IMPORT, True), (Origin.AGENT, False)], ids=str
)
def test_the_word_of_another_confirms_an_agents(make: Any, second: Origin, trusted: bool) -> None:
    with make.open(None) as store:
        (first,) = add(store, make.fact(GATE, added_by=Origin.AGENT))
        (again,) = add(store, make.fact(GATE, added_by=second, created_at=77.0))
        node = store.get(first)
        assert (again, node.added_by, node.trusted) == (first, Origin.AGENT, trusted)
        assert node.confirmed_at == (77.0 if trusted else None)


@pytest.mark.parametrize(
    ("helped", "hurt", "metadata", "trusted"),
    [(1, 0, {}, True), (0, 1, {}, False), (1, 1, {}, False), (1, 0, {ANSWERED: True}, False)],
    ids=["helped", "hurt", "both", "only answered"],
)
def test_a_success_confirms_what_served_it(
    make: Any, helped: int, hurt: int, metadata: dict[str, bool], trusted: bool
) -> None:
    with make.open(None) as store:
        ids = add(
            store,
            make.fact(GATE, added_by=Origin.AGENT),
            make.fact("unused", added_by=Origin.AGENT),
            make.episode("open the gate", success=True, metadata=metadata),
        )
        with store.transaction() as change:
            change.record_outcomes([Outcome(node_id=ids[0], episode_id=ids[2], helped=helped, hurt=hurt)])
        assert [node.trusted for node in store.get_many(ids[:2])] == [trusted, False]


def test_merging_takes_the_owners_word_over(make: Any) -> None:
    with make.open(None) as store:
        mine, theirs = add(
            store,
            make.fact(GATE, added_by=Origin.AGENT),
            make.fact("the north gate opens with the green key", created_at=5.0),
        )
        with store.transaction() as change:
            change.merge_nodes(mine, [theirs])
        assert (store.get(mine).added_by, store.get(mine).confirmed_at) == (Origin.AGENT, 5.0)


def test_export_and_import_keep_it(make: Any) -> None:
    with make.open(None) as store, make.open(None) as other:
        ids = add(
            store,
            make.fact("one", added_by=Origin.AGENT),
            make.fact("two", added_by=Origin.AGENT, confirmed_at=12.5),
            make.fact("three", added_by=Origin.DERIVED),
        )
        lines = list(store.export_lines())
        other.import_lines(lines)
        assert list(other.export_lines()) == lines
        assert [(node.added_by, node.confirmed_at) for node in other.get_many(ids)] == [
            (Origin.AGENT, None),
            (Origin.AGENT, 12.5),
            (Origin.DERIVED, None),
        ]


def test_what_an_import_does_not_say_is_import(make: Any) -> None:
    with make.open(None) as store, make.open(None) as other:
        (id,) = add(store, make.fact(GATE))
        records = [json.loads(line) for line in store.export_lines()]
        for record in records:
            record.pop("added_by", None)
            record.pop("confirmed_at", None)
        other.import_lines([json.dumps(record) for record in records])
        assert (other.get(id).added_by, other.get(id).trusted) == (Origin.IMPORT, True)


def test_an_import_of_the_owners_word_confirms_what_an_agent_wrote_here(make: Any) -> None:
    with make.open(None) as store, make.open(None) as other:
        add(store, make.fact(GATE, created_at=3.0))
        (id,) = add(other, make.fact(GATE, added_by=Origin.AGENT))
        other.import_lines(list(store.export_lines()))
        assert other.get(id).confirmed_at == 3.0


def test_an_older_memory_tells_what_was_made_from_others(make: Any, tmp_path: Path) -> None:
    with make.open(tmp_path / "new") as store:
        (fact,) = add(store, make.fact(GATE))
        version = SemanticNode(id="version", content="Gate: green.", embedding=make.vector("Gate"), variant_of=fact)
        lived = EpisodicNode(id="lived", task_description="open", embedding=make.vector("open"), success=True)
        learned = ProceduralNode(
            id="learned", skill_text="turn", embedding=make.vector("turn"), metadata={"structure": {"steps": []}}
        )
        written = ProceduralNode(id="written", skill_text="pull", embedding=make.vector("pull"))
        add(store, version, lived, learned, written)
        rows = [tuple(row)[:22] for row in store._rows("SELECT * FROM nodes ORDER BY key", [])]
        facts = [tuple(row) for row in store._rows("SELECT key, value FROM meta", [])]
    (tmp_path / "old").mkdir()
    with closing(sqlite3.connect(tmp_path / "old" / "memory.sqlite3")) as connection:
        connection.executescript(
            f"PRAGMA application_id = {APPLICATION_ID}; BEGIN; {_FIRST}{_SECOND}{_THIRD}{_FOURTH} "
            "PRAGMA user_version = 4; COMMIT; PRAGMA journal_mode = WAL; INSERT INTO identity VALUES ('x', 0);"
        )
        connection.executemany(f"INSERT INTO nodes VALUES ({', '.join('?' * 22)})", rows)
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts)
        connection.commit()
    with make.open(tmp_path / "old") as store:
        found = {node.id: node.added_by for layer in Layer for node in store.select(layers=(layer,))}
        assert found == {
            fact: Origin.USER,
            "version": Origin.DERIVED,
            "lived": Origin.AGENT,
            "learned": Origin.DERIVED,
            "written": Origin.USER,
        }
        assert store.verify().ok
