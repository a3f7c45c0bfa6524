"""Removal: nodes go with everything that is derived from them or quotes them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence

from fluxmem_local.storage.codec import decode_json, encode_json
from fluxmem_local.storage.journal import forget_in_edits
from fluxmem_local.storage.records import ELSEWHERE
from fluxmem_local.storage.refusals import refuse_nodes
from fluxmem_local.storage.rows import IN_LIST, set_fact
from fluxmem_local.text.quotes import Quotes
from fluxmem_local.types import Layer, Origin

from .dead_tasks import find_live_tasks
from .receipts import Receipt
from .redaction import quoting_facts, redact, texts_of_episode
from .transaction import Transaction

__all__ = ["LEARNED_FROM", "PURGE_PENDING", "SOURCES_FORGOTTEN", "Removal"]

# The metadata key of a fact that was derived from episodes, which it names.
LEARNED_FROM = "learned_from"

# The fact about the memory that says that bytes of what was forgotten may still be in its files.
PURGE_PENDING = "purge_pending"
# The metadata key of a skill that tells how many of its source episodes were forgotten.
SOURCES_FORGOTTEN = "sources_forgotten"


class Removal:
    """Removes nodes in an open transaction, and says what went, what stays and why, and what changed.

    ``quotes_too`` also takes the quotes of what goes out of episodes, skills and histories.
    """

    def __init__(
        self, connection: sqlite3.Connection, transaction: Transaction, *, quotes_too: bool, purge: bool
    ) -> None:
        self._connection = connection
        self._transaction = transaction
        self._quotes_too = quotes_too
        self._purge = purge

    def run(self, ids: list[str], kept: Sequence[tuple[str, str]] = ()) -> Receipt:
        """Remove nodes of any layer; ``kept`` are those that were meant, too, and stay, with the reason.

        The episode of a task that runs stays, too: at its end it is written anew by whoever runs it.
        """
        running = self._running(ids)
        kept = [*kept, *running.items()]
        ids, spared = self._with_variants([id for id in ids if id not in running])
        learned, written = self._only_of(ids)
        more, spared_too = self._with_variants(learned)
        ids = list(dict.fromkeys([*ids, *more]))
        listed = json.dumps(ids)
        num_edges = self._count(f"edges WHERE source_id {IN_LIST} OR target_id {IN_LIST}", listed, listed)
        num_versions = self._count(f"versions WHERE node_id {IN_LIST}", listed)
        self._connection.execute(
            f"DELETE FROM ingested WHERE source IN (SELECT source FROM mentions WHERE node_id {IN_LIST})",
            (listed,),
        )
        said = self._texts(listed)
        num_edits = forget_in_edits(self._connection, set(ids), Quotes(said)) if ids else 0
        stated = Quotes(self._texts(listed, Layer.SEMANTIC)) if self._quotes_too else Quotes(())
        lived = self._texts(listed, Layer.EPISODIC)
        skills = self._drop_sources(ids)
        changed = dict.fromkeys(skills, "lost a source")
        if ids:
            refuse_nodes(self._connection, ids)
            self._transaction.delete_nodes(ids)
        if self._quotes_too and ids:
            for id, how in self._redact(set(ids), stated, lived, skills).items():
                if id not in changed:
                    changed[id] = how
                elif how == "quoted it":
                    changed[id] += f"; {how}"
            kept = [*kept, *((id, "quotes it, and was stated on its own") for id in self._quoting(stated))]
        if self._purge:
            set_fact(self._connection, PURGE_PENDING, "1")
        return Receipt(
            removed=tuple(ids),
            kept=(*kept, *spared, *spared_too, *written),
            changed=tuple((id, why) for id, why in changed.items() if id not in ids),
            num_edges=num_edges,
            num_edits=num_edits,
            num_versions=num_versions,
        )

    def _redact(self, ids: set[str], stated: Quotes, lived: set[str], skills: list[str]) -> dict[str, str]:
        """Take quotes of facts out of all, and of episodes out of the skills that they taught; say whom it changed."""
        begin = self._transaction.begin_revision
        changed = redact(self._connection, stated, ids, begin)
        if skills:
            # What other episodes say as well, the skills have from those.
            own = Quotes(lived, but_not=self._texts(None, Layer.EPISODIC))
            redact(self._connection, own, ids, begin, among=skills)
        return changed

    def _running(self, ids: list[str]) -> dict[str, str]:
        """Find the tasks that still run among the ids, or that were shown one of them, with the reason to name them."""
        alive = find_live_tasks(self._connection)
        rows = self._all(
            f"SELECT DISTINCT source_id AS id FROM edges WHERE kind = 'step' AND target_id {IN_LIST}", json.dumps(ids)
        )
        shown = {row["id"]: "its task still runs, and was shown it" for row in rows if self._quotes_too}
        named = dict.fromkeys(ids, "its task still runs")
        found = {id: why for id, why in {**shown, **named}.items() if id in alive}
        return {id: f"{why}; forget it when it has ended" for id, why in found.items()}

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

    def _only_of(self, ids: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """Find what has all its sources among the ids: what was derived from them, and what was written, with why."""
        gone, kept = [], []
        for row in self._learned_from(ids):
            left = set(_sources(row)) - set(ids)
            if left or row["id"] in ids:
                continue
            if row["added_by"] == Origin.DERIVED:
                gone.append(row["id"])
            else:
                kept.append((row["id"], "was written, not distilled from the forgotten episodes"))
        return gone, kept

    def _drop_sources(self, ids: list[str]) -> list[str]:
        """Take the episodes among the ids out of what was learned from them; mark that, and take back its score."""
        learned = [row for row in self._learned_from(ids) if row["id"] not in ids]
        self._transaction.drop_source_episodes(ids)
        for row in learned:
            what = f"node {row['id']!r}"
            metadata = decode_json(row["metadata"], what)
            for name in (ELSEWHERE, LEARNED_FROM):
                if named := _ids_in(metadata.get(name)):
                    metadata[name] = [id for id in named if id not in ids]
            lost = [id for id in _sources(row) if id in ids]
            before = metadata.get(SOURCES_FORGOTTEN)
            metadata[SOURCES_FORGOTTEN] = (before if type(before) is int else 0) + len(lost)
            self._connection.execute(
                "UPDATE nodes SET metadata = ?, payload = json_replace(payload, '$.pems_score', NULL) WHERE id = ?",
                (encode_json(metadata, what), row["id"]),
            )
        return [row["id"] for row in learned]

    def _learned_from(self, ids: Collection[str]) -> list[sqlite3.Row]:
        """Read the skills and derived facts that name any of the ids as their sources."""
        listed = json.dumps(list(ids))
        return self._all(
            "SELECT id, added_by, payload, metadata FROM nodes WHERE (layer = 'procedural' AND EXISTS (SELECT 1 FROM "
            f"json_each(payload, '$.source_episode_ids') AS entry WHERE entry.value {IN_LIST})) OR key IN (SELECT node "
            f"FROM attributes WHERE name IN ('{ELSEWHERE}', '{LEARNED_FROM}') AND type = 'item' AND value {IN_LIST}) "
            "ORDER BY key",
            listed,
            listed,
        )

    def _quoting(self, stated: Quotes) -> list[str]:
        return quoting_facts(self._connection, stated) if stated else []

    def _texts(self, listed: str | None, layer: Layer | None = None) -> set[str]:
        """Collect what nodes say and said, of one layer or of all; ``listed`` None: all nodes."""
        texts: set[str] = set()
        some, values = ("1", ()) if listed is None else (f"id {IN_LIST}", (listed,))
        of = f"layer = '{layer}'" if layer is not None else "1"
        for row in self._connection.execute(f"SELECT id, content, payload FROM nodes WHERE {some} AND {of}", values):
            payload = decode_json(row["payload"], f"node {row['id']!r}")
            texts.update(texts_of_episode(row["content"], payload))
        for row in self._connection.execute(
            f"SELECT old_content FROM versions WHERE node_id IN (SELECT id FROM nodes WHERE {some} AND {of})", values
        ):
            texts.add(row[0])
        return texts - {""}

    def _all(self, sql: str, *values: object) -> list[sqlite3.Row]:
        return self._connection.execute(sql, values).fetchall()

    def _count(self, rest: str, *values: object) -> int:
        return int(self._all(f"SELECT COUNT(*) FROM {rest}", *values)[0][0])


def _sources(row: sqlite3.Row) -> list[str]:
    """List the episodes that a node names as its sources, here and elsewhere."""
    what = f"node {row['id']!r}"
    metadata = decode_json(row["metadata"], what)
    named = decode_json(row["payload"], what).get("source_episode_ids", ())
    noted = [id for name in (ELSEWHERE, LEARNED_FROM) for id in _ids_in(metadata.get(name))]
    return list(dict.fromkeys([*named, *noted]))


def _ids_in(value: object) -> list[str]:
    """Read a list of ids from metadata, which may hold anything."""
    return [id for id in value if isinstance(id, str)] if isinstance(value, list) else []
