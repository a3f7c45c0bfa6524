"""MemoryStore: one memory, durable in a folder or living in this process only."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from fluxmem_local.errors import (
    EmbedderMismatchError,
    InvalidInputError,
    MemoryDamagedError,
    NotFoundError,
    StorageError,
)
from fluxmem_local.graph import Edge, Edit, Node
from fluxmem_local.interfaces import BaseVectorStore
from fluxmem_local.storage.codec import (
    EDGE_COLUMNS,
    NODE_COLUMNS,
    edge_from_row,
    node_from_row,
    scope_key,
    vector_from_blob,
)
from fluxmem_local.storage.database import Database
from fluxmem_local.storage.filters import visible
from fluxmem_local.storage.journal import read_edits, read_history
from fluxmem_local.storage.records import HistoryEntry, Outcome
from fluxmem_local.text import TOKENIZER_VERSION, tokenize
from fluxmem_local.types import FloatArray, Layer, NodeState, Scope

from .forgetting import forget
from .layer_index import LayerIndex, generation_of, stored_dimension
from .receipts import Receipt, VerifyReport
from .search import lexical_hits, lexical_scores, nearest_hits
from .transaction import Transaction, mismatch_message
from .verification import verify

__all__ = ["MemoryStore"]

_IN_LIST = "IN (SELECT value FROM json_each(?))"


class MemoryStore:
    """Nodes, edges and what is known of them, with search by vector and by word.

    Open one with ``MemoryStore.open``. All reads see committed states only (inside a transaction of the same thread:
    also its own changes) and may be called from any thread.
    """

    def __init__(
        self, database: Database, embedder: str | None, vector_stores: Mapping[Layer, BaseVectorStore] | None
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._begun_at = 0
        given = vector_stores or {}
        folder = database.folder
        self._indices = {
            layer: LayerIndex(layer, folder / "derived" / f"{layer}.hnsw" if folder else None, given.get(layer))
            for layer in Layer
        }

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None,
        *,
        dimension: int | None = None,
        fingerprint: str | None = None,
        create: bool = True,
        accept_other_embedder: bool = False,
        lock_timeout_s: float = 30.0,
        vector_stores: Mapping[Layer, BaseVectorStore] | None = None,
    ) -> MemoryStore:
        """Open the memory in a folder, or a new one in this process only (``path`` None).

        Args:
            path: the folder.
            dimension: the vectors' size; None: read from the memory, or from the first vector.
            fingerprint: of the embedder; None: there is none, and nodes may be added without a vector.
            create: make the memory when there is none.
            accept_other_embedder: open it although another embedder wrote it, to re-embed it.
            lock_timeout_s: how long a writer waits for another one.
            vector_stores: the user's own stores by layer; they are filled and kept.

        Raises:
            MemoryNotFoundError: there is none, and ``create`` is False.
            MemoryDamagedError: the database is damaged, or is none of ours; it is left as it is.
            SchemaVersionError: a newer version of this package wrote it.
            EmbedderMismatchError: another embedder wrote it.
        """
        folder = None if path is None else Path(path).expanduser().absolute()
        database = Database(folder, create=create, lock_timeout_s=lock_timeout_s)
        try:
            store = cls(database, fingerprint, vector_stores)
            store._settle(dimension, fingerprint, accept_other_embedder)
        except BaseException:
            database.close()
            raise
        return store

    @property
    def path(self) -> Path | None:
        """Return the memory's folder, or None when it is in this process only."""
        return self._database.folder

    @property
    def dimension(self) -> int | None:
        """Return the size of the memory's vectors, or None before the first one."""
        with self._database.read() as connection:
            return stored_dimension(connection)

    @property
    def fingerprint(self) -> str | None:
        """Return the fingerprint of the embedder that the memory's vectors are of, or None."""
        return self._fact("fingerprint")

    @property
    def database(self) -> Database:
        """Return the database, for export and import."""
        return self._database

    def close(self) -> None:
        """Save derived files when that is worth it, and close; calling it again does nothing."""
        if self._database.closed:
            return
        try:
            for index in self._indices.values():
                self._save(index)
        finally:
            self._database.close()

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- reads

    def get(self, id: str) -> Node:
        """Return one node.

        Raises:
            NotFoundError: there is none of this id.
        """
        return self.get_many([id])[0]

    def get_many(self, ids: Sequence[str]) -> list[Node]:
        """Return nodes in the asked order.

        Raises:
            NotFoundError: an unknown id.
        """
        rows = self._rows(f"SELECT {NODE_COLUMNS} FROM nodes WHERE id {_IN_LIST}", [_listed(ids)])
        found = {row["id"]: node_from_row(row) for row in rows}
        missing = [id for id in dict.fromkeys(ids) if id not in found]
        if missing:
            named = ", ".join(repr(id) for id in missing[:5]) + (", …" if len(missing) > 5 else "")
            raise NotFoundError(f"no node {named} in this memory; list the ids with: fluxmem search")
        return [found[id] for id in ids]

    def select(
        self,
        *,
        layers: Collection[Layer] = tuple(Layer),
        scope: Scope | None = None,
        filters: Mapping[str, Any] | None = None,
        states: Collection[NodeState] = (NodeState.ACTIVE,),
        source: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Node]:
        """List the nodes that meet all conditions, in the order in which they were stored.

        Raises:
            InvalidInputError: filters that cannot be read.
        """
        sql, values = visible(layers=layers, scope=scope, filters=filters, states=states, source=source)
        order = "DESC" if newest_first else "ASC"
        rows = self._rows(
            f"SELECT {NODE_COLUMNS} FROM nodes WHERE {sql} ORDER BY key {order} LIMIT ?",
            [*values, -1 if limit is None else max(0, limit)],
        )
        return [node_from_row(row) for row in rows]

    def iterate(
        self,
        *,
        layers: Collection[Layer] = tuple(Layer),
        scope: Scope | None = None,
        filters: Mapping[str, Any] | None = None,
        states: Collection[NodeState] = (NodeState.ACTIVE,),
        source: str | None = None,
        batch_size: int = 1000,
    ) -> Iterator[Node]:
        """Go through what ``select`` would list, holding one batch at a time."""
        sql, values = visible(layers=layers, scope=scope, filters=filters, states=states, source=source)
        last = -1
        while rows := self._rows(
            f"SELECT {NODE_COLUMNS} FROM nodes WHERE {sql} AND key > ? ORDER BY key LIMIT ?",
            [*values, last, batch_size],
        ):
            for row in rows:
                yield node_from_row(row)
            last = rows[-1]["key"]

    def count(self, layer: Layer | None = None, *, states: Collection[NodeState] = (NodeState.ACTIVE,)) -> int:
        """Count nodes, of one layer or of all."""
        sql, values = visible(layers=tuple(Layer) if layer is None else (layer,), states=states)
        return int(self._rows(f"SELECT COUNT(*) FROM nodes WHERE {sql}", values)[0][0])

    def embeddings(self, ids: Sequence[str]) -> FloatArray:
        """Return the vectors of n nodes, shape ``(n, d)``; a row of zeros where a node has none.

        Raises:
            NotFoundError: an unknown id.
        """
        rows = self._rows(f"SELECT id, embedding FROM nodes WHERE id {_IN_LIST}", [_listed(ids)])
        blobs = {row["id"]: row["embedding"] for row in rows}
        missing = [id for id in ids if id not in blobs]
        if missing:
            raise NotFoundError(f"no node {missing[0]!r} in this memory; list the ids with: fluxmem search")
        matrix = np.zeros((len(ids), self.dimension or 0), dtype=np.float32)
        for place, id in enumerate(ids):
            if blobs[id] is not None:
                matrix[place] = vector_from_blob(blobs[id])
        return matrix

    def nearest(
        self,
        layer: Layer,
        vector: FloatArray,
        top_k: int,
        *,
        scope: Scope | None = None,
        filters: Mapping[str, Any] | None = None,
        trial_of: str | None = None,
        exclude: Collection[str] = (),
    ) -> list[tuple[str, float]]:
        """Return up to ``top_k`` pairs of id and cosine similarity, nearest first.

        Conditions do not lower recall: as many are returned as if only the matching nodes were there.

        Raises:
            DimensionError: a vector, shape ``(d,)``, of the wrong size, with NaN or infinity, or of zeros.
        """
        sql = visible(layers=(layer,), scope=scope, filters=filters, trial_of=trial_of, exclude=exclude)
        narrow = scope is not None or bool(filters)
        with self._searching(layer) as (index, connection, dirty):
            return nearest_hits(connection, None if dirty else index, vector, top_k, sql, narrow, len(exclude))

    def lexical(
        self,
        layer: Layer,
        text: str,
        top_k: int,
        *,
        scope: Scope | None = None,
        filters: Mapping[str, Any] | None = None,
        trial_of: str | None = None,
        exclude: Collection[str] = (),
    ) -> list[tuple[str, float]]:
        """Return up to ``top_k`` pairs of id and BM25 score among nodes that hold a word of ``text``, best first."""
        sql = visible(layers=(layer,), scope=scope, filters=filters, trial_of=trial_of, exclude=exclude)
        with self._searching(layer) as (index, connection, dirty):
            return lexical_hits(connection, index, dirty, text, top_k, sql, len(exclude))

    def lexical_scores(self, layer: Layer, text: str, ids: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the BM25 score of each id, shape ``(n,)``; 0 without a common word."""
        with self._searching(layer) as (index, connection, dirty):
            return lexical_scores(connection, index, dirty, text, ids)

    def edges(
        self,
        *,
        source_ids: Collection[str] | None = None,
        target_ids: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
    ) -> list[Edge]:
        """List edges in the order in which they were stored; the given conditions are joined by AND."""
        rows = self._listed_rows(
            f"SELECT {EDGE_COLUMNS} FROM edges", "key", source_id=source_ids, target_id=target_ids, kind=kinds
        )
        return [edge_from_row(row) for row in rows]

    def outcomes(
        self, *, episode_ids: Collection[str] | None = None, node_ids: Collection[str] | None = None
    ) -> list[Outcome]:
        """List what nodes did in episodes; the given conditions are joined by AND."""
        rows = self._listed_rows(
            "SELECT * FROM outcomes", "episode_id, node_id", episode_id=episode_ids, node_id=node_ids
        )
        return [Outcome(**dict(row)) for row in rows]

    def edits(self, *, node_id: str | None = None, episode_id: str | None = None) -> list[Edit]:
        """List edits, oldest first; the given conditions are joined by AND."""
        with self._database.read() as connection:
            return read_edits(connection, node_id=node_id, episode_id=episode_id)

    def get_edit(self, id: str) -> Edit:
        """Return one edit.

        Raises:
            NotFoundError: there is none of this id.
        """
        with self._database.read() as connection:
            found = read_edits(connection, edit_id=id)
        if not found:
            raise NotFoundError(f"no edit {id!r} in this memory; a node's edits: fluxmem history ID")
        return found[0]

    def history(self, id: str) -> list[HistoryEntry]:
        """List what became of a node, oldest first.

        Raises:
            NotFoundError: there is none of this id.
        """
        with self._database.read() as connection:
            return read_history(connection, id)

    def variants(self, id: str) -> list[Node]:
        """List the reshaped versions of a node that retrieval may use, oldest first."""
        rows = self._rows(
            f"SELECT {NODE_COLUMNS} FROM nodes WHERE variant_of = ? AND state = 'active' ORDER BY key", [id]
        )
        return [node_from_row(row) for row in rows]

    def stats(self) -> dict[str, Any]:
        """Count what is in the memory."""
        with self._database.read() as connection:
            nodes = dict(connection.execute("SELECT layer, COUNT(*) FROM nodes GROUP BY layer").fetchall())
            hidden = dict(
                connection.execute(
                    "SELECT state, COUNT(*) FROM nodes WHERE state != 'active' GROUP BY state"
                ).fetchall()
            )
            edges = dict(connection.execute("SELECT kind, COUNT(*) FROM edges GROUP BY kind").fetchall())
            edits = connection.execute("SELECT COUNT(*) FROM edits").fetchone()[0]
            bare = connection.execute("SELECT COUNT(*) FROM nodes WHERE embedding IS NULL").fetchone()[0]
            generation, dimension = generation_of(connection), stored_dimension(connection)
        return {
            **{f"num_{layer}_nodes": nodes.get(str(layer), 0) for layer in Layer},
            **{f"num_{kind}_edges": edges.get(kind, 0) for kind in ("ground", "distill", "step")},
            **{f"num_{state}_nodes": hidden.get(str(state), 0) for state in (NodeState.TRIAL, NodeState.DEMOTED)},
            "num_edits": edits,
            "num_unembedded": bare,
            "size_bytes": self._database.size_bytes(),
            "generation": generation,
            "dimension": dimension,
            "fingerprint": self.fingerprint,
        }

    def verify(self, *, fix: bool = False) -> VerifyReport:
        """Check every rule of the graph and that the indices show exactly what the database holds.

        With ``fix``, derived data is rebuilt and rows that lead nowhere are removed; content is never touched.
        """
        return verify(self._database, self._indices, fix=fix)

    def ingested(self, source: str, scope: Scope) -> str | None:
        """Return the digest of what was last taken in from a source, or None."""
        rows = self._rows("SELECT digest FROM ingested WHERE source = ? AND scope = ?", [source, scope_key(scope)])
        return str(rows[0][0]) if rows else None

    def meta(self, key: str) -> str | None:
        """Return what ``Transaction.set_meta`` stored under a key, or None."""
        return self._fact(f"user:{key}")

    def unembedded(self, limit: int) -> list[Node]:
        """List up to ``limit`` nodes of any state that have no vector yet, oldest first."""
        rows = self._rows(f"SELECT {NODE_COLUMNS} FROM nodes WHERE embedding IS NULL ORDER BY key LIMIT ?", [limit])
        return [node_from_row(row) for row in rows]

    # ---- writes

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Make changes that are stored together when the block ends, or not at all when it raises.

        Inside another transaction of the same thread it becomes a part of that one.

        Raises:
            MemoryLockedError: another writer held the memory for the whole waiting time.
        """
        joined = self._database.in_transaction
        with self._database.write() as connection:
            if not joined:
                self._begun_at = generation_of(connection)
            yield Transaction(self._database, connection, self._embedder)

    def forget(
        self,
        *,
        ids: Sequence[str] | None = None,
        source: str | None = None,
        scope: Scope | None = None,
        dry_run: bool = False,
    ) -> Receipt:
        """Delete nodes by id, by source, by scope (its named parts), or those of a source within a scope, for good.

        With them go their edges, outcomes, vectors, words, history, reshaped versions and what edits quote of them. A
        fact that another source states too stays. ``dry_run`` only says what would happen.

        Raises:
            InvalidInputError: nothing, or ids together with something else, was given.
            NotFoundError: an unknown id, or a source or scope without nodes.
        """
        receipt = forget(self._database, self._embedder, ids=ids, source=source, scope=scope, dry_run=dry_run)
        if not dry_run and not self._database.in_transaction:
            for index in self._indices.values():
                index.drop_file()
                with self._searching(index.layer) as (_, connection, _dirty):
                    index.follow_deletions(connection)
            self._database.checkpoint()
        return receipt

    def rebuild_indices(self) -> None:
        """Make words and indices anew from the stored content."""
        self._retokenize()
        for index in self._indices.values():
            with self._searching(index.layer) as (_, connection, _dirty):
                index.reset(connection)

    def replace_embedder(self, fingerprint: str, dimension: int) -> None:
        """Begin to re-embed: the memory belongs to this embedder now, and all its vectors are gone."""
        if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
            raise InvalidInputError(f"dimension={dimension!r} is no vector size; give a whole number of at least 1")
        with self._database.write() as connection:
            revision = _next_generation(connection)
            connection.execute("UPDATE nodes SET embedding = NULL, rev = ? WHERE embedding IS NOT NULL", (revision,))
            _set_fact(connection, "fingerprint", fingerprint)
            _set_fact(connection, "dimension", str(dimension))
        self._embedder = fingerprint

    # ---- below: how the above is done

    def _settle(self, dimension: int | None, fingerprint: str | None, accept_other: bool) -> None:
        """Compare embedder and tokenizer with what the memory was written with; write only what is new."""
        stored = self.fingerprint
        size = self.dimension
        if fingerprint is not None and stored not in (None, fingerprint) and not accept_other:
            raise EmbedderMismatchError(mismatch_message(str(stored), fingerprint))
        if dimension is not None and size not in (None, dimension) and not accept_other:
            raise EmbedderMismatchError(
                mismatch_message(
                    f"{stored or 'an embedder'} of {size} numbers", f"{fingerprint or 'one'} of {dimension}"
                )
            )
        new = [
            (key, value)
            for key, value, known in (("fingerprint", fingerprint, stored), ("dimension", dimension, size))
            if value is not None and known is None
        ]
        if new:
            with self._database.write() as connection:
                connection.executemany(
                    "INSERT OR IGNORE INTO meta VALUES (?, ?)", [(key, str(value)) for key, value in new]
                )
            return self._settle(dimension, fingerprint, accept_other)
        if self._fact("tokenizer") != str(TOKENIZER_VERSION):
            self._retokenize()
        return None

    def _retokenize(self) -> None:
        with self._database.write() as connection:
            revision = _next_generation(connection)
            for row in connection.execute("SELECT key, content FROM nodes").fetchall():
                connection.execute(
                    "UPDATE nodes SET terms = ?, rev = ? WHERE key = ?",
                    ("\n".join(tokenize(row["content"])), revision, row["key"]),
                )
            _set_fact(connection, "tokenizer", str(TOKENIZER_VERSION))

    @contextmanager
    def _searching(self, layer: Layer) -> Iterator[tuple[LayerIndex, sqlite3.Connection, bool]]:
        """Give a layer's index with a connection; True when this thread's transaction has changed nodes already.

        An index must not show what may still be rolled back, so such a search goes to the rows.
        """
        index = self._indices[Layer(layer)]
        if self.path is None or self._database.in_transaction:
            with self._database.read() as connection, index.lock:
                dirty = self._database.in_transaction and generation_of(connection) != self._begun_at
                yield index, connection, dirty
        else:
            with index.lock, self._database.read() as connection:
                yield index, connection, False

    def _save(self, index: LayerIndex) -> None:
        try:
            with self._searching(index.layer) as (_, connection, _dirty):
                shown = index.save(connection)
            if shown is None:
                return
            with self._database.read() as connection:
                newer = generation_of(connection) != shown
            if newer:
                # Another process may have forgotten something meanwhile, and the file must not keep its vector.
                index.drop_file()
        except StorageError as error:
            # The file is a cache; a damaged database, though, is news that must not be lost.
            if isinstance(error, MemoryDamagedError):
                raise

    def _fact(self, key: str) -> str | None:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", [key])
        return str(rows[0][0]) if rows else None

    def _rows(self, sql: str, values: Sequence[Any]) -> list[sqlite3.Row]:
        with self._database.read() as connection:
            return connection.execute(sql, values).fetchall()

    def _listed_rows(self, select: str, order: str, **conditions: Collection[str] | None) -> list[sqlite3.Row]:
        given = {column: values for column, values in conditions.items() if values is not None}
        tests = " AND ".join(f"{column} {_IN_LIST}" for column in given) or "1"
        return self._rows(f"{select} WHERE {tests} ORDER BY {order}", [_listed(values) for values in given.values()])


def _listed(values: Collection[str]) -> str:
    if isinstance(values, str):
        raise InvalidInputError(f"{values!r} is one text; give a list")
    return json.dumps([str(value) for value in values])


def _next_generation(connection: sqlite3.Connection) -> int:
    revision = generation_of(connection) + 1
    _set_fact(connection, "generation", str(revision))
    return revision


def _set_fact(connection: sqlite3.Connection, key: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
