"""LinkChanges: the part of a transaction that concerns what stands beside nodes."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from fluxmem_local.errors import InvalidInputError, NotFoundError
from fluxmem_local.graph import ANSWERED, Edge, Edit, edge_may_join
from fluxmem_local.storage.checks import check_edge, check_number
from fluxmem_local.storage.codec import EDGE_COLUMNS, edge_to_row, scope_key
from fluxmem_local.storage.database import Database
from fluxmem_local.storage.journal import write_edit
from fluxmem_local.storage.records import Outcome
from fluxmem_local.storage.rows import IN_LIST, confirm, next_generation, set_fact
from fluxmem_local.types import Layer, Scope

__all__ = ["LinkChanges", "whole"]

_C = TypeVar("_C", bound="LinkChanges")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def whole(method: Callable[Concatenate[_C, _P], _R]) -> Callable[Concatenate[_C, _P], _R]:
    """Let a method change everything or nothing, also when its caller goes on after the error."""

    @wraps(method)
    def call(self: _C, /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        before = self._revision
        try:
            with self._database.write():
                return method(self, *arguments, **options)
        except BaseException:
            # The generation that it may have begun is rolled back, too.
            self._revision = before
            raise

    return call


class LinkChanges:
    """Changes of edges, outcomes, edits and facts about the memory, and the checks that node changes share."""

    def __init__(self, database: Database, connection: sqlite3.Connection, embedder: str | None) -> None:
        self._database = database
        self._connection = connection
        self._embedder = embedder
        self._revision: int | None = None

    @whole
    def add_edges(self, edges: Sequence[Edge]) -> None:
        """Store edges; a second ground or distill edge between the same two nodes lends the first its weight.

        Raises:
            InvalidInputError: an end that is not there, layers that the kind does not join, a weight that is none.
        """
        for edge in edges:
            check_edge(edge)
        layers = self._layers([id for edge in edges for id in (edge.source_id, edge.target_id)])
        for edge in edges:
            for end in (edge.source_id, edge.target_id):
                if end not in layers:
                    raise InvalidInputError(f"{edge.kind} edge {edge.id!r} joins {end!r}, which is not in this memory")
            source, target = layers[edge.source_id], layers[edge.target_id]
            if not edge_may_join(edge.kind, source, target):
                raise InvalidInputError(
                    f"a {edge.kind} edge cannot go from a {source} to a {target} node ({edge.id!r})"
                )
        marks = ", ".join("?" * len(EDGE_COLUMNS.split(", ")))
        for edge in edges:
            # An id conflict of another pair is a caller's mistake and stays an error.
            self._connection.execute(
                f"INSERT INTO edges ({EDGE_COLUMNS}) VALUES ({marks}) "
                "ON CONFLICT (source_id, target_id, kind) WHERE kind != 'step' "
                "DO UPDATE SET weight = max(weight, excluded.weight)",
                edge_to_row(edge),
            )

    @whole
    def delete_edges(self, ids: Sequence[str]) -> None:
        """Delete edges.

        Raises:
            NotFoundError: an unknown id.
        """
        self._require_edges(ids)
        self._connection.execute(f"DELETE FROM edges WHERE id {IN_LIST}", (json.dumps(list(ids)),))

    @whole
    def count_activations(self, edge_ids: Sequence[str], *, success: bool) -> None:
        """Count one more task in which these edges were active.

        Raises:
            NotFoundError: an unknown id.
        """
        self._require_edges(edge_ids)
        column = "success_count" if success else "failure_count"
        self._connection.execute(
            f"UPDATE edges SET {column} = {column} + 1 WHERE id {IN_LIST}", (json.dumps(list(edge_ids)),)
        )

    @whole
    def reweigh_edges(self, weights: Mapping[str, float]) -> None:
        """Set edges' weights by id.

        Raises:
            NotFoundError: an unknown id.
            InvalidInputError: a weight that is no finite number.
        """
        self._require_edges(list(weights))
        for id, weight in weights.items():
            check_number(weight, f"the weight of edge {id!r}")
        self._connection.executemany(
            "UPDATE edges SET weight = ? WHERE id = ?", [(float(weight), id) for id, weight in weights.items()]
        )

    @whole
    def record_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Add to what is known of how nodes did in episodes.

        Raises:
            NotFoundError: an unknown node or episode.
        """
        self._require([id for each in outcomes for id in (each.node_id, each.episode_id)])
        self._connection.executemany(
            "INSERT INTO outcomes VALUES (?, ?, ?, ?) ON CONFLICT (node_id, episode_id) "
            "DO UPDATE SET helped = helped + excluded.helped, hurt = hurt + excluded.hurt",
            [(each.node_id, each.episode_id, each.helped, each.hurt) for each in outcomes],
        )
        helped = {each.node_id: each.episode_id for each in outcomes if each.helped > each.hurt}
        # An answer is judged by the facts that it was made from: no success of theirs.
        answers = self._connection.execute(
            f"SELECT id FROM nodes WHERE id {IN_LIST} AND json_extract(metadata, '$.{ANSWERED}')",
            (json.dumps(list(set(helped.values()))),),
        )
        answered = {row["id"] for row in answers.fetchall()}
        confirm(self._connection, [id for id, episode in helped.items() if episode not in answered], time.time())

    @whole
    def put_edit(self, edit: Edit) -> None:
        """Store an edit, or overwrite the one of its id."""
        write_edit(self._connection, edit)

    @whole
    def set_ingested(self, source: str, scope: Scope, digest: str) -> None:
        """Remember which content of a source was taken in."""
        self._connection.execute("INSERT OR REPLACE INTO ingested VALUES (?, ?, ?)", (source, scope_key(scope), digest))

    @whole
    def set_meta(self, key: str, value: str) -> None:
        """Remember a small fact about the memory under a key."""
        set_fact(self._connection, f"user:{key}", value)

    def _layers(self, ids: Sequence[str]) -> dict[str, Layer]:
        rows = self._connection.execute(
            f"SELECT id, layer FROM nodes WHERE id {IN_LIST}", (json.dumps(list(dict.fromkeys(ids))),)
        )
        return {row["id"]: Layer(row["layer"]) for row in rows.fetchall()}

    def _require(self, ids: Sequence[str]) -> dict[str, Layer]:
        if isinstance(ids, str):
            raise InvalidInputError(f"ids={ids!r} is one text; give a list of ids")
        layers = self._layers(ids)
        missing = [id for id in ids if id not in layers]
        if missing:
            raise NotFoundError(f"no node {missing[0]!r} in this memory; nothing was changed")
        return layers

    def _require_edges(self, ids: Sequence[str]) -> None:
        rows = self._connection.execute(f"SELECT id FROM edges WHERE id {IN_LIST}", (json.dumps(list(ids)),)).fetchall()
        missing = set(ids) - {row["id"] for row in rows}
        if missing:
            raise NotFoundError(f"no edge {min(missing)!r} in this memory; nothing was changed")

    def begin_revision(self) -> int:
        """Return the generation that this commit makes."""
        if self._revision is None:
            self._revision = next_generation(self._connection)
        return self._revision
