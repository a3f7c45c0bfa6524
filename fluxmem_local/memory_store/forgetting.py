"""Forgetting: which nodes are meant; by id, source, filters, scope or age."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fluxmem_local.errors import InvalidInputError, NotFoundError
from fluxmem_local.storage.database import Database
from fluxmem_local.storage.filters import Condition, matching, scope_within
from fluxmem_local.storage.refusals import refuse_mention
from fluxmem_local.storage.rows import IN_LIST
from fluxmem_local.storage.times import Time, period, shown_time
from fluxmem_local.types import Scope

from .receipts import Receipt
from .removal import Removal
from .transaction import Transaction

__all__ = ["Selection", "forget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is to be forgotten: ids alone, or what meets all of the rest. ``before`` is the end of the age, as a time.

    Raises:
        InvalidInputError: ids together with something else, a source together with filters, or an empty scope.
    """

    ids: Sequence[str] | None = None
    source: str | None = None
    filters: Mapping[str, Any] | None = None
    scope: Scope | None = None
    before: Time | None = None

    def __post_init__(self) -> None:
        others = (self.source, self.filters, self.scope, self.before)
        if self.ids is not None and any(other is not None for other in others):
            raise InvalidInputError("ids and a source, filters, scope or age were given together; give ids alone")
        if self.source is not None and self.filters is not None:
            raise InvalidInputError(
                "a source and filters were given together; name the source in the filters: {'source': ...}"
            )
        if self.scope is not None and self.scope == Scope():
            raise InvalidInputError("the scope to forget names no user, agent or session; name at least one")

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is named."""
        return self == Selection()


def forget(
    database: Database, embedder: str | None, what: Selection, *, dry_run: bool, purge: bool, quotes_too: bool
) -> Receipt:
    """Delete what is meant in one transaction; see ``MemoryStore.forget``."""
    if what.is_empty:
        raise InvalidInputError("nothing to forget was named; give ids, a source, filters, a scope or an age")
    receipt = Receipt()
    try:
        with database.write() as connection:
            transaction = Transaction(database, connection, embedder)
            removal = Removal(connection, transaction, quotes_too=quotes_too, purge=purge)
            receipt = _Choice(connection, removal).run(what)
            if dry_run:
                raise _DryRun
    except _DryRun:
        pass
    return receipt


class _DryRun(Exception):
    """Ends a transaction that must leave nothing."""


class _Choice:
    def __init__(self, connection: sqlite3.Connection, removal: Removal) -> None:
        self._connection = connection
        self._removal = removal

    def run(self, what: Selection) -> Receipt:
        if what.ids is not None:
            return self._by_ids(what.ids)
        within, values = scope_within(what.scope or Scope())
        if what.before is not None:
            within, values = f"{within} AND created_at < ?", [*values, period(what.before, "before")[0]]
        if what.source is not None:
            return self._by_source(what.source, what.scope or Scope(), (within, values), whole=what.before is None)
        return self._by_conditions(what, (within, values))

    def _by_ids(self, ids: Sequence[str]) -> Receipt:
        if isinstance(ids, str):
            raise InvalidInputError(f"ids={ids!r} is one text; give a list of ids")
        found = {row["id"] for row in self._all(f"SELECT id FROM nodes WHERE id {IN_LIST}", json.dumps(list(ids)))}
        missing = [id for id in ids if id not in found]
        if missing:
            raise NotFoundError(f"no node {missing[0]!r} in this memory; nothing was forgotten")
        return self._removal.run(list(dict.fromkeys(ids)))

    def _by_conditions(self, what: Selection, within: Condition) -> Receipt:
        sql, values = within
        if what.filters is not None:
            met, wanted = matching(what.filters)
            if not wanted:
                raise InvalidInputError(
                    f"filters={what.filters!r:.200} names no condition; name one, as {{'team': 'ops'}}"
                )
            sql, values = f"{sql} AND {met}", [*values, *wanted]
        rows = self._all(f"SELECT id FROM nodes WHERE {sql} ORDER BY key", *values)
        if not rows:
            raise NotFoundError(f"no memory {_meant(what)}; nothing was forgotten")
        if what.scope is not None and what.filters is None and what.before is None:
            self._drop_digests(what.scope, None)
        return self._removal.run([row["id"] for row in rows])

    def _by_source(self, source: str, scope: Scope, within: Condition, *, whole: bool) -> Receipt:
        sql, values = within
        rows = self._all(
            f"SELECT id, source, count FROM nodes WHERE {sql} AND "
            "(id IN (SELECT node_id FROM mentions WHERE source = ?) "
            "OR (source = ? AND layer = 'semantic' AND id NOT IN (SELECT node_id FROM mentions))) ORDER BY key",
            *values,
            source,
            source,
        )
        if not rows:
            raise NotFoundError(f"no memory has the source {source!r}; nothing was forgotten")
        if whole:
            self._drop_digests(scope, source)
        gone: list[str] = []
        kept: list[tuple[str, str]] = []
        for row in rows:
            others = self._all(
                "SELECT source, chunk_index, times FROM mentions WHERE node_id = ? AND source != ? ORDER BY at, source",
                row["id"],
                source,
            )
            if not others:
                gone.append(row["id"])
                continue
            named = ", ".join(repr(name) for name in dict.fromkeys(other["source"] for other in others))
            kept.append((row["id"], f"also stated by {named}"))
            place = (
                (row["source"], None) if row["source"] != source else (others[0]["source"], others[0]["chunk_index"])
            )
            self._connection.execute("DELETE FROM mentions WHERE node_id = ? AND source = ?", (row["id"], source))
            refuse_mention(self._connection, row["id"], source)
            self._connection.execute(
                "UPDATE nodes SET count = ?, source = ?, chunk_index = coalesce(?, chunk_index) WHERE id = ?",
                (sum(other["times"] for other in others), *place, row["id"]),
            )
        return self._removal.run(gone, kept)

    def _drop_digests(self, scope: Scope, source: str | None) -> None:
        """Forget that a source was taken in, so that adding it again is not passed over."""
        for row in self._all("SELECT source, scope FROM ingested"):
            parts = dict(zip(("user", "agent", "session"), json.loads(row["scope"]), strict=True))
            named = {part: getattr(scope, part) for part in parts if getattr(scope, part) is not None}
            if all(parts[part] == value for part, value in named.items()) and source in (None, row["source"]):
                self._connection.execute(
                    "DELETE FROM ingested WHERE source = ? AND scope = ?", (row["source"], row["scope"])
                )

    def _all(self, sql: str, *values: object) -> list[sqlite3.Row]:
        return self._connection.execute(sql, values).fetchall()


def _meant(what: Selection) -> str:
    """Say in words what was asked for and is not there."""
    parts = []
    if what.filters is not None:
        parts.append("meets the filters")
    if what.scope is not None:
        whose = ", ".join(f"{part} {name!r}" for part, name in asdict(what.scope).items() if name is not None)
        parts.append(f"belongs to {whose}")
    if what.before is not None:
        parts.append(f"is older than {shown_time(what.before):.60}")
    return " and ".join(parts)
