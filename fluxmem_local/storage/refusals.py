"""Refusals: what was forgotten and must not come back on its own, kept without its text.

The table `forgotten` has these kinds: ``id`` of a node; ``content``, a SHA-256 of what a fact or a skill said and for
whom; ``mention``, a SHA-256 of the source that a kept fact lost; ``lesson``, the id of an episode whose skill was
forgotten. What is added anew is taken out again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterable

from fluxmem_local.text import content_key, near_key
from fluxmem_local.types import Layer, Scope

from .rows import IN_LIST

__all__ = [
    "KINDS",
    "allow_mention",
    "allow_node",
    "is_mention_refused",
    "is_refused",
    "refuse_mention",
    "refuse_nodes",
    "refused_ids",
    "spent_episodes",
    "take_in",
]

KINDS = ("content", "id", "lesson", "mention")


def refuse_nodes(connection: sqlite3.Connection, ids: Collection[str]) -> None:
    """Remember that these nodes, which are still there, are being forgotten, and what skills among them came from."""
    listed = json.dumps(list(ids))
    rows = connection.execute(
        "SELECT id, layer, scope_user, scope_agent, scope_session, content, variant_of, payload FROM nodes "
        f"WHERE id {IN_LIST}",
        (listed,),
    ).fetchall()
    scopes = {row["id"]: (Layer(row["layer"]), _scope(row)) for row in rows}
    old = connection.execute(f"SELECT node_id, old_content FROM versions WHERE node_id {IN_LIST}", (listed,)).fetchall()
    contents = [(row["id"], row["content"]) for row in rows] + [(row[0], row[1]) for row in old]
    _insert(connection, "id", scopes)
    # The same task is done again and again, so an episode is known by its id alone.
    _insert(
        connection,
        "content",
        (_content(*scopes[id], text) for id, text in contents if scopes[id][0] is not Layer.EPISODIC),
    )
    skills = [row for row in rows if row["layer"] == "procedural" and row["variant_of"] is None]
    _insert(connection, "lesson", (id for row in skills for id in json.loads(row["payload"])["source_episode_ids"]))


def refuse_mention(connection: sqlite3.Connection, node_id: str, source: str) -> None:
    """Remember that a source's word on a fact was forgotten, while the fact stays."""
    _insert(connection, "mention", [_mention(node_id, source)])


def allow_node(connection: sqlite3.Connection, id: str, layer: Layer, scope: Scope, content: str) -> None:
    """Let a node that is added anew be there again, under any id."""
    connection.execute("DELETE FROM forgotten WHERE kind = 'id' AND key = ?", (id,))
    if layer is not Layer.EPISODIC:
        connection.execute(
            "DELETE FROM forgotten WHERE kind = 'content' AND key = ?", (_content(layer, scope, content),)
        )


def allow_mention(connection: sqlite3.Connection, node_id: str, source: str) -> None:
    """Let a source that states a fact anew be named there again."""
    connection.execute("DELETE FROM forgotten WHERE kind = 'mention' AND key = ?", (_mention(node_id, source),))


def is_refused(connection: sqlite3.Connection, id: str, layer: Layer, scope: Scope, content: str) -> bool:
    """Tell whether a node was forgotten, by its id or by what it says."""
    if _holds(connection, "id", id):
        return True
    return layer is not Layer.EPISODIC and _holds(connection, "content", _content(layer, scope, content))


def is_mention_refused(connection: sqlite3.Connection, node_id: str, source: str) -> bool:
    """Tell whether a source's word on a fact was forgotten."""
    return _holds(connection, "mention", _mention(node_id, source))


def refused_ids(connection: sqlite3.Connection, ids: Collection[str]) -> set[str]:
    """Return those of the ids whose nodes were forgotten."""
    rows = connection.execute(
        f"SELECT key FROM forgotten WHERE kind = 'id' AND key {IN_LIST}", (json.dumps(list(ids)),)
    )
    return {row[0] for row in rows.fetchall()}


def spent_episodes(connection: sqlite3.Connection) -> set[str]:
    """Return the ids of the episodes whose skill was forgotten."""
    return {row[0] for row in connection.execute("SELECT key FROM forgotten WHERE kind = 'lesson'").fetchall()}


def take_in(connection: sqlite3.Connection, refusals: Collection[tuple[str, str]]) -> None:
    """Add another memory's refusals, pairs of kind and key, but none of what this memory holds."""
    if not refusals:
        return
    run = connection.execute
    held = {("id", row[0]) for row in run("SELECT id FROM nodes").fetchall()}
    for row in run(
        "SELECT layer, scope_user, scope_agent, scope_session, content FROM nodes WHERE layer != 'episodic'"
    ).fetchall():
        held.add(("content", _content(Layer(row["layer"]), _scope(row), row["content"])))
    held |= {("mention", _mention(*row)) for row in run("SELECT node_id, source FROM mentions").fetchall()}
    for kind, key in refusals:
        if (kind, key) not in held:
            _insert(connection, kind, [key])


def _insert(connection: sqlite3.Connection, kind: str, keys: Iterable[str]) -> None:
    connection.executemany("INSERT OR IGNORE INTO forgotten VALUES (?, ?)", [(kind, key) for key in keys])


def _holds(connection: sqlite3.Connection, kind: str, key: str) -> bool:
    found = connection.execute("SELECT 1 FROM forgotten WHERE kind = ? AND key = ?", (kind, key)).fetchone()
    return found is not None


def _scope(row: sqlite3.Row) -> Scope:
    return Scope(row["scope_user"], row["scope_agent"], row["scope_session"])


def _content(layer: Layer, scope: Scope, text: str) -> str:
    # What tidying would merge is the same said again; of signs alone nothing is left to compare by.
    said = near_key(text) or content_key(text)
    return _hashed([str(layer), scope.user, scope.agent, scope.session, said])


def _mention(node_id: str, source: str) -> str:
    return _hashed([node_id, source])


def _hashed(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()
