"""The database's tables as numbered migrations."""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import suppress

from fluxmem_local.errors import InvalidInputError, SchemaVersionError

from .codec import content_sum, vector_sum
from .times import VALID_FROM, VALID_TO, validity

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "check_version", "migrate", "renew_identity"]

# "FXMM": marks a SQLite file as a memory of this package.
APPLICATION_ID = 0x46584D4D

# In `nodes` the long columns stand last, so that looking at scopes and states reads no overflow pages.
_FIRST = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE nodes (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    layer TEXT NOT NULL,
    state TEXT NOT NULL,
    rev INTEGER NOT NULL,
    scope_user TEXT,
    scope_agent TEXT,
    scope_session TEXT,
    trial_of TEXT,
    variant_of TEXT,
    source TEXT NOT NULL,
    chunk_index INTEGER NOT NULL,
    count INTEGER NOT NULL,
    created_at REAL NOT NULL,
    content_key TEXT NOT NULL,
    metadata TEXT NOT NULL,
    content TEXT NOT NULL,
    embedding BLOB,
    payload TEXT NOT NULL,
    terms TEXT NOT NULL
);
CREATE INDEX nodes_by_rev ON nodes (layer, rev);
CREATE INDEX nodes_by_state ON nodes (layer, state, key);
CREATE INDEX nodes_hidden ON nodes (layer, key) WHERE state != 'active';
CREATE INDEX nodes_by_content ON nodes (content_key, scope_user, scope_agent, scope_session) WHERE layer = 'semantic';
CREATE INDEX nodes_by_user ON nodes (scope_user, layer);
CREATE INDEX nodes_by_original ON nodes (variant_of) WHERE variant_of IS NOT NULL;
CREATE INDEX nodes_on_trial ON nodes (trial_of) WHERE trial_of IS NOT NULL;
CREATE INDEX nodes_unembedded ON nodes (key) WHERE embedding IS NULL;
CREATE TABLE deleted (id TEXT PRIMARY KEY, layer TEXT NOT NULL, rev INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX deleted_by_rev ON deleted (layer, rev);
CREATE TABLE mentions (
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    source TEXT NOT NULL,
    chunk_index INTEGER NOT NULL,
    times INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (node_id, source, chunk_index)
) WITHOUT ROWID;
CREATE INDEX mentions_by_source ON mentions (source);
CREATE TABLE edges (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    source_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    target_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    weight REAL NOT NULL,
    created_at REAL NOT NULL,
    metadata TEXT NOT NULL,
    success_count INTEGER NOT NULL,
    failure_count INTEGER NOT NULL,
    step_index INTEGER NOT NULL
);
CREATE UNIQUE INDEX edges_once ON edges (source_id, target_id, kind) WHERE kind != 'step';
CREATE INDEX edges_by_source ON edges (source_id);
CREATE INDEX edges_by_target ON edges (target_id);
CREATE TABLE outcomes (
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    episode_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    helped INTEGER NOT NULL,
    hurt INTEGER NOT NULL,
    PRIMARY KEY (node_id, episode_id)
) WITHOUT ROWID;
CREATE INDEX outcomes_by_episode ON outcomes (episode_id);
CREATE TABLE versions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    action TEXT NOT NULL,
    at REAL NOT NULL,
    reason TEXT NOT NULL,
    old_content TEXT NOT NULL,
    old_metadata TEXT NOT NULL
);
CREATE INDEX versions_by_node ON versions (node_id);
CREATE TABLE edits (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    granularity TEXT,
    round INTEGER NOT NULL,
    kept INTEGER,
    episode_id TEXT,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    created_at REAL NOT NULL
);
CREATE INDEX edits_by_episode ON edits (episode_id);
CREATE TABLE edit_targets (
    edit_id TEXT NOT NULL REFERENCES edits (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    PRIMARY KEY (edit_id, position)
) WITHOUT ROWID;
CREATE INDEX edit_targets_by_node ON edit_targets (node_id);
CREATE TABLE ingested (
    source TEXT NOT NULL,
    scope TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (source, scope)
) WITHOUT ROWID;
INSERT INTO meta VALUES ('generation', '0');
"""

# `forgotten` says what must not come back on its own: see storage/refusals.py. The index finds running tasks at once.
_SECOND = """
CREATE TABLE forgotten (kind TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE INDEX nodes_running ON nodes (key)
    WHERE layer = 'episodic' AND json_valid(payload) AND json_extract(payload, '$.status') = 'running';
"""

# What filters, scopes and times select by. `attributes` follows the metadata by itself: a row for each key of a node,
# and one of type "item" for each text or number in a list. `validity` has the nodes that do not hold for ever.
_THIRD = """
CREATE TABLE attributes (
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    value NOT NULL,
    node INTEGER NOT NULL REFERENCES nodes (key) ON DELETE CASCADE,
    PRIMARY KEY (name, type, value, node)
) WITHOUT ROWID;
CREATE INDEX attributes_by_node ON attributes (node);
CREATE VIEW attributes_of AS
    SELECT nodes.key AS node, entry.key AS name,
        CASE WHEN entry.type IN ('integer', 'real') THEN 'number' ELSE entry.type END AS type,
        CASE entry.type WHEN 'text' THEN substr(entry.value, 1, 100) WHEN 'integer' THEN entry.value
            WHEN 'real' THEN entry.value ELSE '' END AS value
    FROM nodes, json_each(CASE WHEN json_valid(metadata) THEN metadata ELSE '{}' END) AS entry
    UNION ALL
    SELECT nodes.key, entry.key, 'item', CASE item.type WHEN 'text' THEN substr(item.value, 1, 100) ELSE item.value END
    FROM nodes, json_each(CASE WHEN json_valid(metadata) THEN metadata ELSE '{}' END) AS entry,
        json_each(CASE entry.type WHEN 'array' THEN entry.value ELSE '[]' END) AS item
    WHERE item.type IN ('text', 'integer', 'real');
CREATE TRIGGER attributes_added AFTER INSERT ON nodes WHEN new.metadata != '{}' BEGIN
    INSERT OR IGNORE INTO attributes SELECT name, type, value, node FROM attributes_of WHERE node = new.key;
END;
CREATE TRIGGER attributes_changed AFTER UPDATE OF metadata ON nodes WHEN old.metadata != new.metadata BEGIN
    DELETE FROM attributes WHERE node = new.key;
    INSERT OR IGNORE INTO attributes SELECT name, type, value, node FROM attributes_of WHERE node = new.key;
END;
INSERT OR IGNORE INTO attributes SELECT name, type, value, node FROM attributes_of;
CREATE TABLE validity (
    node INTEGER PRIMARY KEY REFERENCES nodes (key) ON DELETE CASCADE,
    valid_from REAL,
    valid_to REAL
);
DROP INDEX nodes_by_user;
CREATE INDEX nodes_by_scope ON nodes (scope_user, scope_agent, scope_session, layer, state);
CREATE INDEX nodes_by_source ON nodes (source, chunk_index, key);
CREATE INDEX nodes_by_time ON nodes (created_at);
ALTER TABLE versions ADD COLUMN old_embedding BLOB;
CREATE INDEX versions_by_time ON versions (at);
"""

# What tells damage that SQLite doesn't see, and another memory's log: checksums of text and vector with the id, and the
# memory's identity, which every commit writes anew. `reembedded` has the vectors of the embedder that is to come.
_FOURTH = """
ALTER TABLE nodes ADD COLUMN content_sum INTEGER;
ALTER TABLE nodes ADD COLUMN vector_sum INTEGER;
CREATE TABLE identity (uuid TEXT NOT NULL, commits INTEGER NOT NULL);
CREATE TABLE reembedded (node INTEGER PRIMARY KEY REFERENCES nodes (key) ON DELETE CASCADE, embedding BLOB NOT NULL);
CREATE TRIGGER reembedded_too_early AFTER UPDATE OF content ON nodes WHEN old.content != new.content BEGIN
    DELETE FROM reembedded WHERE node = new.key;
END;
"""

# Who added a node, and since when an agent's own word is trusted. Older memories did not note it; what was made from
# others can be told.
_FIFTH = """
ALTER TABLE nodes ADD COLUMN added_by TEXT;
ALTER TABLE nodes ADD COLUMN confirmed_at REAL;
UPDATE nodes SET added_by = CASE WHEN layer = 'episodic' THEN 'agent' WHEN variant_of IS NOT NULL
    OR (layer = 'procedural' AND json_valid(metadata) AND json_extract(metadata, '$.structure') IS NOT NULL)
    THEN 'derived' ELSE 'user' END;
CREATE INDEX nodes_by_origin ON nodes (added_by) WHERE added_by != 'user';
"""

_MIGRATIONS = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH)
SCHEMA_VERSION = len(_MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to this package's version; the caller holds the write lock.

    Raises:
        SchemaVersionError: a newer version of the package wrote them.
    """
    for number in range(check_version(connection), SCHEMA_VERSION):
        # executescript commits what was open before it, so the script itself begins the transaction.
        connection.executescript(f"BEGIN IMMEDIATE;{_MIGRATIONS[number]}")
        try:
            if _MIGRATIONS[number] is _THIRD:
                _fill_validity(connection)
            elif _MIGRATIONS[number] is _FOURTH:
                _fill_sums(connection)
                renew_identity(connection)
            connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def check_version(connection: sqlite3.Connection) -> int:
    """Return the version of the tables; 0 where there are none yet.

    Raises:
        SchemaVersionError: a newer version of the package wrote them.
    """
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"this memory has schema version {found}, this package knows up to {SCHEMA_VERSION}; "
            "upgrade it: pip install --upgrade fluxmem-local"
        )
    return found


def renew_identity(connection: sqlite3.Connection) -> None:
    """Make the memory one of its own, which another one's log does not fit."""
    connection.execute("DELETE FROM identity")
    connection.execute("INSERT INTO identity VALUES (?, 0)", (uuid.uuid4().hex,))


def _fill_sums(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM meta WHERE key = 'uuid'")
    last = -1
    while rows := connection.execute(
        "SELECT key, id, content, embedding FROM nodes WHERE key > ? ORDER BY key LIMIT 1000", (last,)
    ).fetchall():
        connection.executemany(
            "UPDATE nodes SET content_sum = ?, vector_sum = ? WHERE key = ?",
            [(content_sum(id, content), vector_sum(id, blob), key) for key, id, content, blob in rows],
        )
        last = rows[-1][0]


def _fill_validity(connection: sqlite3.Connection) -> None:
    """Read the times of nodes that are there already; what names none was never one, and leaves the node as it was."""
    rows = connection.execute(
        "SELECT DISTINCT key, metadata FROM nodes JOIN attributes ON node = key WHERE name IN (?, ?)",
        (VALID_FROM, VALID_TO),
    ).fetchall()
    for key, metadata in rows:
        with suppress(InvalidInputError):
            connection.execute("INSERT INTO validity VALUES (?, ?, ?)", (key, *validity(json.loads(metadata), "it")))
