"""The database's tables as numbered migrations."""

from __future__ import annotations

import sqlite3
import uuid

from fluxmem_local.errors import SchemaVersionError

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "migrate"]

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

_MIGRATIONS = (_FIRST, _SECOND)
SCHEMA_VERSION = len(_MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to this package's version; the caller holds the write lock.

    Raises:
        SchemaVersionError: a newer version of the package wrote them.
    """
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"this memory has schema version {found}, this package knows up to {SCHEMA_VERSION}; "
            "upgrade it: pip install --upgrade fluxmem-local"
        )
    for number in range(found, SCHEMA_VERSION):
        # executescript commits on its own, so the script carries its transaction.
        connection.executescript(f"BEGIN IMMEDIATE;{_MIGRATIONS[number]}PRAGMA user_version = {number + 1};COMMIT;")
    if not found:
        connection.execute("INSERT INTO meta VALUES ('uuid', ?)", (uuid.uuid4().hex,))
