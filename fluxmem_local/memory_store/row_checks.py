"""Checks of the rows that stand beside nodes: what they name is there, and what they count adds up."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import TypeAlias

from fluxmem_local.errors import MemoryDamagedError
from fluxmem_local.storage.codec import decode_json
from fluxmem_local.storage.rows import generation_of

from .merging import take_over

__all__ = ["COUNTED", "NEXT_REVISION", "Finding", "Repair", "deleting", "row_findings", "running"]

Repair: TypeAlias = Callable[[sqlite3.Connection], None]
# What is wrong, and what puts it right, where anything does.
Finding: TypeAlias = tuple[str, Repair | None]

# The number of the commit that a repair makes.
NEXT_REVISION = "(SELECT value + 1 FROM meta WHERE key = 'generation')"
# The tables whose rows a report counts, beside nodes and edges.
COUNTED = ("mentions", "outcomes", "versions", "edits")
# (table, column) that must hold an id of `nodes`
_REFERENCES = (
    ("edges", "source_id"),
    ("edges", "target_id"),
    ("outcomes", "node_id"),
    ("outcomes", "episode_id"),
    ("mentions", "node_id"),
    ("versions", "node_id"),
)
# (table, column, table and column that must hold the same value)
_PARTS = (
    ("attributes", "node", "nodes", "key"),
    ("validity", "node", "nodes", "key"),
    ("reembedded", "node", "nodes", "key"),
    ("edit_targets", "edit_id", "edits", "id"),
)
# (a condition that no row of the table meets, in words; the table; the condition)
_NEVER = (
    ("count tries of a task in {episode_id}, which is no episode", "outcomes", "episode_id IN (SELECT id FROM nodes "
     "WHERE layer != 'episodic')"),
    ("count {helped} helped and {hurt} hurt tries", "outcomes", "helped < 0 OR hurt < 0"),
    ("name {node_id}, which is no fact", "mentions", "node_id IN (SELECT id FROM nodes WHERE layer != 'semantic')"),
    ("count {times} times", "mentions", "times < 1"),
)  # fmt: skip
_TWINS = (
    "SELECT min(key) AS first, content_key, scope_user, scope_agent, scope_session FROM nodes WHERE layer = 'semantic' "
    "AND variant_of IS NULL AND state != 'trial' "
    "GROUP BY content_key, scope_user, scope_agent, scope_session HAVING COUNT(*) > 1"
)


def running(sql: str, *values: object) -> Repair:
    """Make a repair of one statement."""

    def repair(connection: sqlite3.Connection) -> None:
        connection.execute(sql, values)

    return repair


def deleting(id: str, layer: str) -> Repair:
    """Make a repair that deletes a node, so that the indices follow."""

    def repair(connection: sqlite3.Connection) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO deleted SELECT ?, ?, value + 1 FROM meta WHERE key = 'generation'", (id, layer)
        )
        connection.execute("DELETE FROM nodes WHERE id = ?", (id,))

    return repair


def row_findings(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Go through all that is wrong beside the nodes themselves."""
    yield from _references(connection)
    yield from _tasks(connection)
    yield from _origins(connection)
    yield from _sources(connection)
    for says, table, wrong in _NEVER:
        for row in connection.execute(f"SELECT * FROM {table} WHERE {wrong}").fetchall():
            yield f"{table} {says.format(**dict(row))}", running(f"DELETE FROM {table} WHERE {wrong}")
    yield from _counts(connection)
    yield from _edits(connection)
    yield from _twins(connection)
    yield from _bookkeeping(connection)


def _references(connection: sqlite3.Connection) -> Iterator[Finding]:
    for table, column in _REFERENCES:
        for row in connection.execute(
            f"SELECT DISTINCT {column} AS id FROM {table} WHERE {column} NOT IN (SELECT id FROM nodes)"
        ).fetchall():
            yield (
                f"{table} name node {row['id']}, which is not there",
                running(f"DELETE FROM {table} WHERE {column} = ?", row["id"]),
            )
    for table, column, whole, key in _PARTS:
        wrong = f"FROM {table} WHERE {column} NOT IN (SELECT {key} FROM {whole})"
        if number := connection.execute(f"SELECT COUNT(*) {wrong}").fetchone()[0]:
            yield f"{table} has rows of what is not in {whole}: {number}", running(f"DELETE {wrong}")


def _tasks(connection: sqlite3.Connection) -> Iterator[Finding]:
    for row in connection.execute(
        "SELECT id FROM nodes WHERE layer = 'episodic' AND json_valid(payload) AND json_extract(payload, '$.status') = "
        "'running' AND json_extract(payload, '$.success') IS NOT NULL"
    ).fetchall():
        yield f"episode {row['id']} is running, and has ended by its outcome", None


def _origins(connection: sqlite3.Connection) -> Iterator[Finding]:
    for row in connection.execute(
        "SELECT id, variant_of FROM nodes WHERE variant_of IS NOT NULL "
        "AND (variant_of = id OR variant_of NOT IN (SELECT id FROM nodes))"
    ).fetchall():
        whose = "itself" if row["variant_of"] == row["id"] else f"{row['variant_of']}, which is not there"
        yield (
            f"node {row['id']} is a version of {whose}",
            running("UPDATE nodes SET variant_of = NULL WHERE id = ?", row["id"]),
        )


def _sources(connection: sqlite3.Connection) -> Iterator[Finding]:
    for row in connection.execute(
        "SELECT skills.id, entry.value AS episode, named.layer FROM nodes AS skills, "
        "json_each(skills.payload, '$.source_episode_ids') AS entry LEFT JOIN nodes AS named ON named.id = entry.value "
        "WHERE skills.layer = 'procedural' AND json_valid(skills.payload) AND named.layer IS NOT 'episodic'"
    ).fetchall():
        what = "episode {}, which is not there" if row["layer"] is None else "{}, which is no episode"
        yield f"skill {row['id']} names {what.format(row['episode'])}", _without_source(row["id"], row["episode"])


def _counts(connection: sqlite3.Connection) -> Iterator[Finding]:
    for row in connection.execute(
        "SELECT id, count, (SELECT sum(times) FROM mentions WHERE node_id = nodes.id) AS told FROM nodes "
        "WHERE layer = 'semantic' AND told IS NOT NULL AND count != told"
    ).fetchall():
        yield (
            f"node {row['id']} counts {row['count']}, and its sources stated it {row['told']} times",
            running("UPDATE nodes SET count = ? WHERE id = ?", row["told"], row["id"]),
        )


def _edits(connection: sqlite3.Connection) -> Iterator[Finding]:
    for row in connection.execute(
        "SELECT id, episode_id FROM edits WHERE episode_id IS NOT NULL "
        "AND episode_id NOT IN (SELECT id FROM nodes WHERE layer = 'episodic')"
    ).fetchall():
        yield (
            f"edit {row['id']} is of task {row['episode_id']}, which is not there",
            running("UPDATE edits SET episode_id = NULL WHERE id = ?", row["id"]),
        )
    for table, columns in (("edits", ("before", "after")), ("versions", ("old_metadata",))):
        for row in connection.execute(f"SELECT key, {', '.join(columns)} FROM {table}").fetchall():
            try:
                for column in columns:
                    decode_json(row[column], f"row {row['key']} of {table}")
            except MemoryDamagedError as error:
                yield str(error), running(f"DELETE FROM {table} WHERE key = ?", row["key"])


def _twins(connection: sqlite3.Connection) -> Iterator[Finding]:
    for row in connection.execute(_TWINS).fetchall():
        first, *others = connection.execute(
            "SELECT id FROM nodes WHERE layer = 'semantic' AND variant_of IS NULL AND state != 'trial' AND "
            "content_key = ? AND scope_user IS ? AND scope_agent IS ? AND scope_session IS ? ORDER BY key",
            tuple(row)[1:],
        ).fetchall()
        for other in others:
            yield (
                f"nodes {first['id']} and {other['id']} say the same in one scope",
                _merging(first["id"], other["id"]),
            )


def _bookkeeping(connection: sqlite3.Connection) -> Iterator[Finding]:
    for row in connection.execute("SELECT id FROM deleted WHERE id IN (SELECT id FROM nodes)").fetchall():
        yield f"node {row['id']} is listed as deleted", running("DELETE FROM deleted WHERE id = ?", row["id"])
    for row in connection.execute("SELECT id, rev FROM nodes WHERE rev > ?", (generation_of(connection),)).fetchall():
        yield (
            f"node {row['id']} is of commit {row['rev']}, which is to come",
            running(
                "UPDATE nodes SET rev = (SELECT value + 1 FROM meta WHERE key = 'generation') WHERE id = ?", row[0]
            ),
        )
    for row in connection.execute(
        "SELECT key FROM forgotten WHERE kind = 'id' AND key IN (SELECT id FROM nodes)"
    ).fetchall():
        yield (
            f"node {row['key']} is there, and was forgotten",
            running("DELETE FROM forgotten WHERE kind = 'id' AND key = ?", row["key"]),
        )


def _merging(keep: str, drop: str) -> Repair:
    def repair(connection: sqlite3.Connection) -> None:
        take_over(connection, keep, drop)
        deleting(drop, "semantic")(connection)

    return repair


def _without_source(id: str, episode: str) -> Repair:
    def repair(connection: sqlite3.Connection) -> None:
        payload = json.loads(connection.execute("SELECT payload FROM nodes WHERE id = ?", (id,)).fetchone()[0])
        payload["source_episode_ids"] = [each for each in payload["source_episode_ids"] if each != episode]
        connection.execute(
            "UPDATE nodes SET payload = ? WHERE id = ?",
            (json.dumps(payload, ensure_ascii=False, separators=(",", ":")), id),
        )

    return repair
