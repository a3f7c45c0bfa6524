"""Retention: which nodes the rules would have forgotten now."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fluxmem_local.retention import EACH, RetentionRule, age
from fluxmem_local.storage.filters import Condition, scope_within
from fluxmem_local.storage.rows import IN_LIST
from fluxmem_local.types import Scope

__all__ = ["find_due"]

_PARTS = ("user", "agent", "session")
# What a task is at work on is no matter of age; a version goes with its original.
_FINISHED = (
    "state != 'trial' AND variant_of IS NULL AND NOT (layer = 'episodic' AND json_valid(payload) "
    "AND json_extract(payload, '$.status') = 'running')"
)
_SOURCES = (
    "SELECT entry.value FROM nodes AS skills, json_each(skills.payload, '$.source_episode_ids') AS entry "
    "WHERE skills.layer = 'procedural' AND skills.state = 'active'"
)


def find_due(
    connection: sqlite3.Connection, rules: Sequence[RetentionRule], *, now: float
) -> list[tuple[RetentionRule, dict[str, str]]]:
    """Return for each rule the ids that it has forgotten now, with the reason; no id twice. ``now`` is in seconds."""
    due: list[tuple[RetentionRule, dict[str, str]]] = []
    seen: set[str] = set()
    for rule in rules:
        ids: dict[str, str] = {}
        for one in _each(connection, rule):
            ids |= _of(connection, one, now, {*seen, *ids})
        due.append((rule, ids))
        seen.update(ids)
    return due


def _each(connection: sqlite3.Connection, rule: RetentionRule) -> Iterator[RetentionRule]:
    """Go through the rules that one with "*" stands for."""
    part = next((name for name in _PARTS if getattr(rule, name) == EACH), None)
    if part is None:
        yield rule
        return
    for row in connection.execute(
        f"SELECT DISTINCT scope_{part} AS name FROM nodes WHERE scope_{part} != ? ORDER BY 1", (EACH,)
    ).fetchall():
        yield from _each(connection, replace(rule, **{part: row["name"]}))


def _of(connection: sqlite3.Connection, rule: RetentionRule, now: float, gone: set[str]) -> dict[str, str]:
    within, values = _condition(rule, gone)
    due: dict[str, str] = {}
    if rule.max_age is not None:
        rows = connection.execute(
            f"SELECT id FROM nodes WHERE {within} AND created_at < ? ORDER BY key",
            [*values, now - age(rule.max_age, "max_age")],
        ).fetchall()
        due = dict.fromkeys((row["id"] for row in rows), f"older than {rule.max_age} ({rule.whose})")
    if rule.max_nodes is not None:
        number = connection.execute(f"SELECT COUNT(*) FROM nodes WHERE {within}", values).fetchone()[0] - len(due)
        rows = connection.execute(
            f"SELECT id FROM nodes WHERE {within} AND NOT id {IN_LIST} "
            f"ORDER BY id IN ({_SOURCES}), created_at, key LIMIT ?",
            [*values, json.dumps(list(due)), max(0, number - rule.max_nodes)],
        ).fetchall()
        due |= dict.fromkeys((row["id"] for row in rows), f"more than {rule.max_nodes} ({rule.whose})")
    return due


def _condition(rule: RetentionRule, gone: set[str]) -> Condition:
    sql, values = scope_within(Scope(rule.user, rule.agent, rule.session))
    return (
        f"{sql} AND layer {IN_LIST} AND {_FINISHED} AND NOT id {IN_LIST}",
        [*values, json.dumps(list(rule.layers)), json.dumps(sorted(gone))],
    )
