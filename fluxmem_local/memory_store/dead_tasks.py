"""Dead tasks: those that still run by the record, while their process is gone."""

from __future__ import annotations

import json
import sqlite3

from fluxmem_local.storage.owner_process import OWNER, is_alive

__all__ = ["find_dead_tasks", "find_live_tasks"]

# A task of which the process cannot be known, and that nothing was heard of for this long, is dead.
_SILENT_S = 86_400.0

# The condition is that of the index on running tasks, word for word.
_RUNNING = (
    "SELECT nodes.id, nodes.created_at, nodes.metadata, "
    "(SELECT max(created_at) FROM edges WHERE source_id = nodes.id AND kind = 'step') AS last_step "
    "FROM nodes INDEXED BY nodes_running "
    "WHERE layer = 'episodic' AND json_valid(payload) AND json_extract(payload, '$.status') = 'running' ORDER BY key"
)


def find_dead_tasks(connection: sqlite3.Connection, *, now: float) -> tuple[dict[str, str], set[str]]:
    """Return the dead tasks, each id with the reason, and the ids of those that go on."""
    dead: dict[str, str] = {}
    alive: set[str] = set()
    for row in connection.execute(_RUNNING).fetchall():
        runs = is_alive(_owner(row["metadata"]))
        silent_s = now - max(row["created_at"], row["last_step"] or 0.0)
        if runs is False:
            dead[row["id"]] = "its process is gone"
        elif runs is None and silent_s > _SILENT_S:
            dead[row["id"]] = f"nothing was heard of it for {silent_s / 3600:.0f} hours"
        else:
            alive.add(row["id"])
    return dead, alive


def find_live_tasks(connection: sqlite3.Connection) -> set[str]:
    """Return the ids of the tasks whose process is known to be at work on them."""
    return {row["id"] for row in connection.execute(_RUNNING).fetchall() if is_alive(_owner(row["metadata"]))}


def _owner(metadata: str) -> object:
    try:
        noted = json.loads(metadata)
    except ValueError:
        return None
    return noted.get(OWNER) if isinstance(noted, dict) else None
