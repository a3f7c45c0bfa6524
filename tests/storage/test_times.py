"""Times that users write, and what holds when."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.errors import ImportFormatError, InvalidInputError
from fluxmem_local.graph import SemanticNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.storage.database import DATABASE_NAME
from fluxmem_local.storage.schema import _FIRST, _SECOND, APPLICATION_ID, SCHEMA_VERSION
from fluxmem_local.storage.times import moment, period, shown_time, validity
from fluxmem_local.types import Layer

DAY = 86_400
MAY = 1_777_593_600  # 2026-05-01 00:00 UTC


@pytest.mark.parametrize(
    ("value", "begin", "end"),
    [
        ("2026-05-01", MAY, MAY + DAY),
        (date(2026, 5, 1), MAY, MAY + DAY),
        ("2026-05", MAY, MAY + 31 * DAY),
        ("2026", 1_767_225_600, 1_798_761_600),
        (2026, 1_767_225_600, 1_798_761_600),
        ("2026-12", 1_796_083_200, 1_798_761_600),
        ("9999-12-31", 253_402_214_400, 253_402_300_800),
        ("9999", 253_370_764_800, 253_402_300_800),
        ("2026-05-01T14:30", MAY + 52_200, MAY + 52_200),
        ("2026-05-01 14:30:15.5Z", MAY + 52_215.5, MAY + 52_215.5),
        ("2026-05-01T14:30:00+02:00", MAY + 45_000, MAY + 45_000),
        ("2026-05-01T14:30-0330", MAY + 64_800, MAY + 64_800),
        (datetime(2026, 5, 1, 14, 30, tzinfo=timezone(timedelta(hours=2))), MAY + 45_000, MAY + 45_000),
        (MAY + 0.25, MAY + 0.25, MAY + 0.25),
        (0, 0, 0),
        (-5.5, -5.5, -5.5),
    ],
)
def test_periods(value: Any, begin: float, end: float) -> None:
    assert period(value, "t") == (begin, end)


def test_a_naive_datetime_is_local_time_as_python_takes_it() -> None:
    naive = datetime(2026, 5, 1, 14, 30)
    assert period(naive, "t") == (naive.timestamp(), naive.timestamp())


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "2026-13-01",
        "2026-02-30",
        "2026-05-01T25:00",
        "26-05-01",
        None,
        True,
        float("nan"),
        1e15,
        [],
        "२०२६",
    ],
)
def test_what_is_no_time_is_refused_with_what_is(value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"t=.* is no time.* give ISO 8601 as 2026-05-31"):
        period(value, "t")


def test_the_moment_of_a_day_is_its_last() -> None:
    assert MAY + DAY - 0.001 < moment("2026-05-01", "t") < MAY + DAY
    assert moment("2026-05-01T00:00", "t") == MAY


def test_validity_takes_the_last_day_in() -> None:
    assert validity({"valid_from": "2026-05-01", "valid_to": "2026-05-02"}, "it") == (MAY, MAY + 2 * DAY)
    assert validity({"valid_to": "2026-05-01T12:00"}, "it") == (None, MAY + DAY / 2)
    assert validity({"valid_from": None, "valid_to": ""}, "it") == (None, None)
    with pytest.raises(InvalidInputError, match=r"it would end .valid_to='2026-05-01'. before it begins"):
        validity({"valid_from": "2026-05-02", "valid_to": "2026-05-01"}, "it")


def facts(**metadata: dict[str, Any]) -> list[SemanticNode]:
    return [SemanticNode(id=id, content=f"fact {id}", metadata=given) for id, given in metadata.items()]


BOUNDED = facts(
    always={}, ended={"valid_to": "2026-04-30"}, during={"valid_from": "2026-05-01", "valid_to": "2026-05-31"}
) + facts(later={"valid_from": "2026-06-01"})


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-04-30", ["always", "ended"]),
        ("2026-05-01T00:00", ["always", "during"]),
        ("2026-05-31", ["always", "during"]),
        ("2026-06-01", ["always", "later"]),
    ],
)
def test_what_holds_at_a_time(at: str, expected: list[str]) -> None:
    with MemoryStore.open(None) as store:
        with store.transaction() as transaction:
            transaction.add_nodes(BOUNDED)
        assert [node.id for node in store.select(valid_at=moment(at, "at"))] == expected
        found = store.lexical(Layer.SEMANTIC, "fact", 9, valid_at=moment(at, "at"))
        assert sorted(id for id, _ in found) == expected
        assert len(store.select()) == 4


def test_a_changed_validity_counts_at_once() -> None:
    with MemoryStore.open(None) as store:
        with store.transaction() as transaction:
            transaction.add_nodes(BOUNDED)
            transaction.replace(replace(store.get("always"), metadata={"valid_to": "2026-05-10"}))
            transaction.replace(replace(store.get("ended"), metadata={}))
        assert [node.id for node in store.select(valid_at=MAY + 20 * DAY)] == ["ended", "during"]


@pytest.mark.parametrize("value", ["soon", [], True, {"a": 1}])
async def test_a_validity_that_is_no_time_is_refused_before_anything_is_stored(value: Any) -> None:
    async with FluxMemAgent(None, None) as agent:
        with pytest.raises(InvalidInputError, match=r"valid_to of node .* is no time"):
            await agent.add_knowledge("The lease ends.", metadata={"valid_to": value})
        assert agent.stats["num_semantic_nodes"] == 0


async def test_validity_goes_through_export_and_import() -> None:
    async with FluxMemAgent(None, None) as agent, FluxMemAgent(None, None) as copy:
        await agent.add_knowledge_nodes(BOUNDED)
        first, second = StringIO(), StringIO()
        agent.export(first)
        copy.import_(StringIO(first.getvalue()))
        copy.export(second)
        assert second.getvalue() == first.getvalue()
        assert [node.id for node in copy.store.select(valid_at=float(MAY))] == ["always", "during"]
        broken = first.getvalue().replace('"2026-04-30"', '"soon"')
        with pytest.raises(ImportFormatError, match=r"line 3: valid_to of node 'ended'='soon' is no time"):
            copy.import_(StringIO(broken))


def test_a_memory_of_the_second_schema_gets_its_indices(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "new") as store:
        with store.transaction() as transaction:
            transaction.add_nodes([*BOUNDED, SemanticNode(id="odd", content="odd", metadata={"k": [1, "a"]})])
        # The columns of that schema, which come first.
        rows = [tuple(row)[:20] for row in store._rows("SELECT * FROM nodes ORDER BY key", [])]
    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    connection.executescript(
        f"PRAGMA application_id = {APPLICATION_ID}; BEGIN; {_FIRST}{_SECOND} PRAGMA user_version = 2; COMMIT;"
        "INSERT INTO meta VALUES ('uuid', 'x');"
    )
    places = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO nodes VALUES ({places})", rows)
    connection.execute("""UPDATE nodes SET metadata = '{"valid_to": "soon"}' WHERE id = 'always'""")
    connection.commit()
    connection.close()
    with MemoryStore.open(tmp_path) as store:
        assert [node.id for node in store.select(valid_at=float(MAY))] == ["always", "during", "odd"]
        assert [node.id for node in store.select(filters={"k": {"contains": "a"}})] == ["odd"]
        assert store._rows("PRAGMA user_version", [])[0][0] == SCHEMA_VERSION


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (86_400.5, "1970-01-02T00:00:00+00:00"),
        (-3600, "1969-12-31T23:00:00+00:00"),
        (2020, "2020"),
        ("2026-05", "2026-05"),
        (-1e11, "-100000000000.0"),
    ],
)
def test_times_are_shown_as_people_write_them(value: float | str, text: str) -> None:
    assert shown_time(value) == text
