"""MemoryReader: everything that can be asked of a memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fluxmem_local.errors import EmbedderMismatchError, InvalidInputError, NotFoundError
from fluxmem_local.graph import Edge, Edit, Node
from fluxmem_local.index import TermStatistics
from fluxmem_local.interfaces import BaseVectorStore
from fluxmem_local.retention import RetentionRule
from fluxmem_local.storage.codec import (
    EDGE_COLUMNS,
    NODE_COLUMNS,
    edge_from_row,
    node_from_row,
    scope_key,
    vector_of,
)
from fluxmem_local.storage.database import Database
from fluxmem_local.storage.filters import visible
from fluxmem_local.storage.journal import read_edits, read_history
from fluxmem_local.storage.records import HistoryEntry, Outcome
from fluxmem_local.storage.refusals import is_refused, spent_episodes
from fluxmem_local.storage.rows import IN_LIST, generation_of, mismatch_message, read_fact, stored_dimension
from fluxmem_local.text import tokenize_query
from fluxmem_local.types import FloatArray, Layer, NodeState, Scope

from .dead_tasks import find_dead_tasks
from .layer_index import LayerIndex
from .neighbours import find_neighbours
from .reembedding import Coming, coming, without_vector
from .retention import find_due
from .search import lexical_hits, nearest_hits, term_statistics

__all__ = ["DERIVED", "MemoryReader"]

# The folder of the files that can be made anew from the database.
DERIVED = "derived"


class MemoryReader:
    """Reads of one memory.

    All see committed states only (inside a transaction of the same thread: also its own changes), catch up with other
    processes' commits, and may be called from any thread.
    """

    def __init__(
        self, database: Database, embedder: str | None, vector_stores: Mapping[Layer, BaseVectorStore]
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._begun_at = 0
        folder = database.folder
        self._indices = {
            layer: LayerIndex(layer, folder / DERIVED / f"{layer}.hnsw" if folder else None, vector_stores.get(layer))
            for layer in Layer
        }

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
        with self._database.read() as connection:
            return read_fact(connection, "fingerprint")

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
        rows = self._rows(f"SELECT {NODE_COLUMNS} FROM nodes WHERE id {IN_LIST}", [_listed(ids)])
        found = {row["id"]: node_from_row(row) for row in rows}
        missing = [id for id in dict.fromkeys(ids) if id not in found]
        if missing:
            named = ", ".join(repr(id) for id in missing[:5]) + (", …" if len(missing) > 5 else "")
            raise NotFoundError(f"no node {named} in this memory; list the ids with: fluxmem search")
        return [found[id] for id in ids]

    def present(self, ids: Collection[str]) -> set[str]:
        """Return those of the ids that the memory holds."""
        rows = self._rows(f"SELECT id FROM nodes WHERE id {IN_LIST}", [_listed(ids)])
        return {str(row["id"]) for row in rows}

    def select(
        self,
        *,
        layers: Collection[Layer] = tuple(Layer),
        scope: Scope | None = None,
        filters: Mapping[str, Any] | None = None,
        states: Collection[NodeState] = (NodeState.ACTIVE,),
        source: str | None = None,
        valid_at: float | None = None,
        known_at: float | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Node]:
        """List the nodes that meet all conditions, in the order in which they were stored.

        Raises:
            InvalidInputError: filters that cannot be read.
        """
        sql, values = visible(
            layers=layers,
            scope=scope,
            filters=filters,
            states=states,
            source=source,
            valid_at=valid_at,
            known_at=known_at,
        )
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
        vectors = self.present_embeddings(ids)
        missing = [id for id in ids if id not in vectors]
        if missing:
            raise NotFoundError(f"no node {missing[0]!r} in this memory; list the ids with: fluxmem search")
        matrix = np.zeros((len(ids), self.dimension or 0), dtype=np.float32)
        for place, id in enumerate(ids):
            if (vector := vectors[id]) is not None:
                matrix[place] = vector
        return matrix

    def present_embeddings(self, ids: Collection[str]) -> dict[str, FloatArray | None]:
        """Return the vectors, shape ``(d,)``, of those of the nodes that are there; None for one without."""
        rows = self._rows(f"SELECT id, embedding, vector_sum FROM nodes WHERE id {IN_LIST}", [_listed(ids)])
        return {row["id"]: vector_of(row) for row in rows}

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
        valid_at: float | None = None,
        known_at: float | None = None,
    ) -> list[tuple[str, float]]:
        """Return up to ``top_k`` pairs of id and cosine similarity, nearest first.

        Conditions do not lower recall: as many are returned as if only the matching nodes were there. ``valid_at`` asks
        for what holds at that time, ``known_at`` for what was stored by then, in seconds since 1970 (UTC).

        Raises:
            DimensionError: a vector, shape ``(d,)``, of the wrong size, with NaN or infinity, or of zeros.
            EmbedderMismatchError: another process has re-embedded the memory since it was opened.
        """
        sql = visible(
            layers=(layer,),
            scope=scope,
            filters=filters,
            trial_of=trial_of,
            exclude=exclude,
            valid_at=valid_at,
            known_at=known_at,
        )
        narrow = scope is not None or bool(filters) or known_at is not None
        with self._searching(layer) as (index, connection, dirty):
            self._check_embedder(connection)
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
        valid_at: float | None = None,
        known_at: float | None = None,
    ) -> list[tuple[str, float]]:
        """Return up to ``top_k`` pairs of id and BM25 score among nodes that hold a word of ``text``, best first."""
        sql = visible(
            layers=(layer,),
            scope=scope,
            filters=filters,
            trial_of=trial_of,
            exclude=exclude,
            valid_at=valid_at,
            known_at=known_at,
        )
        narrow = scope is not None or bool(filters) or known_at is not None
        with self._searching(layer) as (index, connection, dirty):
            return lexical_hits(connection, index, dirty, text, top_k, sql, narrow, len(exclude))

    def lexical_scores(self, layer: Layer, text: str, ids: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the BM25 score of each id, shape ``(n,)``; 0 without a common word."""
        tokens = tokenize_query(text)
        return self.term_statistics(layer, tokens, ids).scores(tokens)

    def term_statistics(self, layer: Layer, tokens: Sequence[str], ids: Sequence[str]) -> TermStatistics:
        """Return the counts and lengths from which BM25 scores n nodes by the given tokens."""
        with self._searching(layer) as (index, connection, dirty):
            return term_statistics(connection, index, dirty, tokens, ids)

    def neighbours(
        self,
        ids: Collection[str],
        reach: int,
        *,
        scope: Scope | None = None,
        valid_at: float | None = None,
        known_at: float | None = None,
    ) -> dict[str, dict[int, str]]:
        """Find the facts up to ``reach`` places before and after each fact in its source: ids by fact and offset."""
        condition = visible(layers=(Layer.SEMANTIC,), scope=scope, valid_at=valid_at, known_at=known_at)
        with self._database.read() as connection:
            return find_neighbours(connection, ids, reach, condition)

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

    def edits(self, *, node_id: str | None = None, episode_ids: Collection[str] | None = None) -> list[Edit]:
        """List edits, oldest first; the given conditions are joined by AND."""
        with self._database.read() as connection:
            return read_edits(connection, node_id=node_id, episode_ids=episode_ids)

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

    def variants(self, *ids: str) -> list[Node]:
        """List the reshaped versions of nodes that retrieval may use, oldest first."""
        rows = self._rows(
            f"SELECT {NODE_COLUMNS} FROM nodes WHERE variant_of {IN_LIST} AND state = 'active' ORDER BY key",
            [_listed(ids)],
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
            fingerprint = read_fact(connection, "fingerprint")
        return {
            **{f"num_{layer}_nodes": nodes.get(str(layer), 0) for layer in Layer},
            **{f"num_{kind}_edges": edges.get(kind, 0) for kind in ("ground", "distill", "step")},
            **{f"num_{state}_nodes": hidden.get(str(state), 0) for state in (NodeState.TRIAL, NodeState.DEMOTED)},
            "num_edits": edits,
            "num_unembedded": bare,
            "size_bytes": self._database.size_bytes(),
            "generation": generation,
            "dimension": dimension,
            "fingerprint": fingerprint,
        }

    def ingested(self, source: str, scope: Scope) -> str | None:
        """Return the digest of what was last taken in from a source, or None."""
        rows = self._rows("SELECT digest FROM ingested WHERE source = ? AND scope = ?", [source, scope_key(scope)])
        return str(rows[0][0]) if rows else None

    def meta(self, key: str) -> str | None:
        """Return what ``Transaction.set_meta`` stored under a key, or None."""
        with self._database.read() as connection:
            return read_fact(connection, f"user:{key}")

    def dead_tasks(self, *, now: float) -> tuple[dict[str, str], set[str]]:
        """Return the tasks that run by the record only, each id with the reason, and the ids of those that go on.

        A task is dead when its process is gone, or when its process cannot be known, as on another host, and nothing
        was heard of it for a day. ``now`` is in seconds since 1970.
        """
        with self._database.read() as connection:
            return find_dead_tasks(connection, now=now)

    def due(self, rules: Sequence[RetentionRule], *, now: float) -> list[tuple[RetentionRule, dict[str, str]]]:
        """Return for each rule of retention the ids that it would have forgotten now, with the reason.

        ``now`` is in seconds since 1970.
        """
        with self._database.read() as connection:
            return find_due(connection, rules, now=now)

    def spent_episodes(self) -> set[str]:
        """Return the ids of the episodes whose skill was forgotten: they teach none again."""
        with self._database.read() as connection:
            return spent_episodes(connection)

    def is_forgotten(self, layer: Layer, scope: Scope, content: str) -> bool:
        """Tell whether someone forgot what says this, so that nothing derived may bring it back."""
        with self._database.read() as connection:
            return is_refused(connection, "", layer, scope, content)

    def num_unembedded(self) -> int:
        """Count the nodes of any state that have no vector yet."""
        return int(self._rows("SELECT COUNT(*) FROM nodes WHERE embedding IS NULL", [])[0][0])

    def unembedded(self, limit: int) -> list[Node]:
        """List up to ``limit`` nodes of any state that have no vector yet, oldest first."""
        rows = self._rows(f"SELECT {NODE_COLUMNS} FROM nodes WHERE embedding IS NULL ORDER BY key LIMIT ?", [limit])
        return [node_from_row(row) for row in rows]

    def coming_embedder(self) -> Coming | None:
        """Return how far a re-embedding by another embedder has come, or None when none is under way."""
        with self._database.read() as connection:
            return coming(connection)

    def not_reembedded(self, limit: int) -> list[Node]:
        """List up to ``limit`` nodes that have no vector of the coming embedder yet, oldest first."""
        with self._database.read() as connection:
            return without_vector(connection, limit)

    def _check_embedder(self, connection: sqlite3.Connection) -> None:
        """Refuse to compare the vectors of two embedders, which may well be of one size."""
        stored = read_fact(connection, "fingerprint")
        if self._embedder is not None and stored not in (None, self._embedder):
            raise EmbedderMismatchError(mismatch_message(str(stored), self._embedder))

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

    def _rows(self, sql: str, values: Sequence[Any]) -> list[sqlite3.Row]:
        with self._database.read() as connection:
            return connection.execute(sql, values).fetchall()

    def _listed_rows(self, select: str, order: str, **conditions: Collection[str] | None) -> list[sqlite3.Row]:
        given = {column: values for column, values in conditions.items() if values is not None}
        tests = " AND ".join(f"{column} {IN_LIST}" for column in given) or "1"
        return self._rows(f"{select} WHERE {tests} ORDER BY {order}", [_listed(values) for values in given.values()])


def _listed(values: Collection[str]) -> str:
    if isinstance(values, str):
        raise InvalidInputError(f"{values!r} is one text; give a list")
    if not isinstance(values, Iterable):
        raise InvalidInputError(f"{values!r:.200} is no list of texts")
    listed = list(values)
    wrong = [value for value in listed if not isinstance(value, str)]
    if wrong:
        raise InvalidInputError(f"{wrong[0]!r:.200} is no text; ids and kinds are texts")
    return json.dumps(listed)
