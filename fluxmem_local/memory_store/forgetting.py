"""Forgetting: nodes and everything that is derived from them or quotes them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fluxmem_local.errors import InvalidInputError, NotFoundError
from fluxmem_local.storage.codec import decode_json
from fluxmem_local.storage.database import Database
from fluxmem_local.storage.filters import matching, scope_within
from fluxmem_local.storage.journal import forget_in_edits
from fluxmem_local.storage.refusals import refuse_mention, refuse_nodes
from fluxmem_local.storage.rows import IN_LIST
from fluxmem_local.types import Scope

from .receipts import Receipt
from .transaction import Transaction

__all__ = ["forget"]


class _DryRun(Exception):
    """Ends a transaction that must leave nothing."""


def forget(
    database: Database,
    embedder: str | None,
    *,
    ids: Sequence[str] | None,
    source: str | None,
    filters: Mapping[str, Any] | None,
    scope: Scope | None,
    dry_run: bool,
) -> Receipt:
    """Delete by ids, source, filters or scope in one transaction; see ``MemoryStore.forget``."""
    if ids is None and source is None and scope is None and filters is None:
        raise InvalidInputError("nothing to forget was named; give ids, a source, filters or a scope")
    if ids is not None and (source is not None or scope is not None or filters is not None):
        raise InvalidInputError("ids and a source, filters or scope were given together; give ids alone")
    if source is not None and filters is not None:
        raise InvalidInputError(
            "a source and filters were given together; name the source in the filters: {'source': ...}"
        )
    if scope is not None and scope == Scope():
        raise InvalidInputError("the scope to forget names no user, agent or session; name at least one")
    receipt = Receipt()
    try:
        with database.write() as connection:
            run = _Forgetting(connection, Transaction(database, connection, embedder))
            if ids is not None:
                receipt = run.by_ids(ids)
            elif source is not None:
                receipt = run.by_source(source, scope)
            elif filters is not None:
                receipt = run.by_filters(filters, scope)
            elif scope is not None:
                receipt = run.by_scope(scope)
            if dry_run:
                raise _DryRun
    except _DryRun:
        pass
    return receipt


class _Forgetting:
    def __init__(self, connection: sqlite3.Connection, transaction: Transaction) -> None:
        self._connection = connection
        self._transaction = transaction

    def by_ids(self, ids: Sequence[str]) -> Receipt:
        if isinstance(ids, str):
            raise InvalidInputError(f"ids={ids!r} is one text; give a list of ids")
        found = {row["id"] for row in self._all(f"SELECT id FROM nodes WHERE id {IN_LIST}", json.dumps(list(ids)))}
        missing = [id for id in ids if id not in found]
        if missing:
            raise NotFoundError(f"no node {missing[0]!r} in this memory; nothing was forgotten")
        return self._remove(list(dict.fromkeys(ids)), [])

    def by_scope(self, scope: Scope) -> Receipt:
        sql, values = scope_within(scope)
        rows = self._all(f"SELECT id FROM nodes WHERE {sql} ORDER BY key", *values)
        if not rows:
            whose = ", ".join(f"{part} {name!r}" for part, name in asdict(scope).items() if name is not None)
            raise NotFoundError(f"no memory belongs to {whose or 'anyone'}; nothing was forgotten")
        self._drop_digests(scope, None)
        return self._remove([row["id"] for row in rows], [])

    def by_filters(self, filters: Mapping[str, Any], scope: Scope | None) -> Receipt:
        within, owners = scope_within(scope or Scope())
        met, values = matching(filters)
        if not values:
            raise InvalidInputError(f"filters={filters!r:.200} names no condition; name one, as {{'team': 'ops'}}")
        rows = self._all(f"SELECT id FROM nodes WHERE {within} AND {met} ORDER BY key", *owners, *values)
        if not rows:
            raise NotFoundError("no memory meets the filters; nothing was forgotten")
        return self._remove([row["id"] for row in rows], [])

    def by_source(self, source: str, scope: Scope | None) -> Receipt:
        within, values = scope_within(scope or Scope())
        rows = self._all(
            f"SELECT id, source, count FROM nodes WHERE {within} AND "
            "(id IN (SELECT node_id FROM mentions WHERE source = ?) "
            "OR (source = ? AND layer = 'semantic' AND id NOT IN (SELECT node_id FROM mentions))) ORDER BY key",
            *values,
            source,
            source,
        )
        if not rows:
            raise NotFoundError(f"no memory has the source {source!r}; nothing was forgotten")
        self._drop_digests(scope or Scope(), source)
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
        return self._remove(gone, kept)

    def _remove(self, ids: list[str], kept: list[tuple[str, str]]) -> Receipt:
        ids, spared = self._with_variants(ids)
        listed = json.dumps(ids)
        texts = self._texts(listed)
        num_edges = self._count(f"edges WHERE source_id {IN_LIST} OR target_id {IN_LIST}", listed, listed)
        num_versions = self._count(f"versions WHERE node_id {IN_LIST}", listed)
        self._connection.execute(
            f"DELETE FROM ingested WHERE source IN (SELECT source FROM mentions WHERE node_id {IN_LIST})",
            (listed,),
        )
        num_edits = forget_in_edits(self._connection, set(ids), texts) if ids else 0
        episodes = self._all(f"SELECT id FROM nodes WHERE layer = 'episodic' AND id {IN_LIST}", listed)
        changed = self._transaction.drop_source_episodes([row["id"] for row in episodes])
        if ids:
            refuse_nodes(self._connection, ids)
            self._transaction.delete_nodes(ids)
        return Receipt(
            removed=tuple(ids),
            kept=(*kept, *spared),
            changed=tuple(id for id in changed if id not in ids),
            num_edges=num_edges,
            num_edits=num_edits,
            num_versions=num_versions,
        )

    def _with_variants(self, ids: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """Add reshaped versions, which are derived text, unless somebody stated the same on their own."""
        reached, spared = dict.fromkeys(ids), []
        edge = list(ids)
        while edge:
            rows = self._all(
                "SELECT id, EXISTS (SELECT 1 FROM mentions WHERE node_id = nodes.id) AS stated FROM nodes "
                f"WHERE variant_of {IN_LIST} ORDER BY key",
                json.dumps(edge),
            )
            spared += [
                (row["id"], "also stated on its own") for row in rows if row["stated"] and row["id"] not in reached
            ]
            edge = [row["id"] for row in rows if not row["stated"] and row["id"] not in reached]
            reached.update(dict.fromkeys(edge))
        return list(reached), spared

    def _texts(self, listed: str) -> set[str]:
        texts: set[str] = set()
        for row in self._all(f"SELECT id, content, payload FROM nodes WHERE id {IN_LIST}", listed):
            payload = decode_json(row["payload"], f"node {row['id']!r}")
            texts |= {row["content"], payload.get("task_description", ""), payload.get("feedback", "")}
            texts |= {text for pair in payload.get("trajectory", ()) for text in pair}
        texts |= {row[0] for row in self._all(f"SELECT old_content FROM versions WHERE node_id {IN_LIST}", listed)}
        return texts - {""}

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

    def _count(self, rest: str, *values: object) -> int:
        return int(self._all(f"SELECT COUNT(*) FROM {rest}", *values)[0][0])
