"""Transaction: the changes that one commit makes, each checked before it is made."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as with_fields
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from fluxmem_local.errors import EmbedderMismatchError, InvalidInputError, NotFoundError
from fluxmem_local.graph import Edge, Edit, Node, SemanticNode, edge_may_join
from fluxmem_local.storage.checks import EncodedNode, check_node, check_number
from fluxmem_local.storage.codec import EDGE_COLUMNS, edge_to_row, encode_json, scope_key, unit_vector, vector_to_blob
from fluxmem_local.storage.database import Database
from fluxmem_local.storage.journal import record_version, write_edit
from fluxmem_local.storage.records import Outcome
from fluxmem_local.storage.rows import (
    IN_LIST,
    add_mention,
    derived_columns,
    find_twin,
    insert_node,
    next_generation,
    node_columns,
    read_fact,
    set_fact,
    stored_dimension,
)
from fluxmem_local.text import content_key
from fluxmem_local.types import FloatArray, Layer, NodeState, Scope

from .merging import take_over

__all__ = ["Transaction", "mismatch_message"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def mismatch_message(stored: str, given: str) -> str:
    """Say that a memory and an embedder do not fit, and what to do."""
    return (
        f"this memory's vectors were made by {stored}, the embedder given is {given}; "
        "use the first one, or re-embed everything: fluxmem reindex"
    )


def _whole(method: Callable[Concatenate[Transaction, _P], _R]) -> Callable[Concatenate[Transaction, _P], _R]:
    """Let a method change everything or nothing, also when its caller goes on after the error."""

    @wraps(method)
    def call(self: Transaction, /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        with self._database.write():
            return method(self, *arguments, **options)

    return call


class Transaction:
    """Changes of one memory that become visible together when its ``with`` block ends."""

    def __init__(self, database: Database, connection: sqlite3.Connection, embedder: str | None) -> None:
        self._database = database
        self._connection = connection
        self._embedder = embedder
        self._revision: int | None = None

    @_whole
    def add_nodes(self, nodes: Sequence[Node], *, trial_of: str | None = None) -> list[str]:
        """Store nodes and return their ids in order; a fact that its scope holds already gives that fact's id.

        The fact's count then grows by one, and where it was seen is kept. ``trial_of`` makes the nodes visible to that
        running episode only.

        Raises:
            BlankTextError: a node without visible content.
            DimensionError: an embedding of the wrong size, with NaN or infinity, or of length zero.
            InvalidInputError: an id that is taken by other content, or a node without the embedding it needs.
        """
        if trial_of is not None:
            self._require([trial_of])
        checked = [(check_node(node), self._embedded(node)) for node in nodes]
        ids = []
        for encoded, vector in checked:
            if trial_of is not None:
                encoded = with_fields(encoded, node=with_fields(encoded.node, state=NodeState.TRIAL))
            node = encoded.node
            if trial_of is None and node.state is NodeState.TRIAL:
                raise InvalidInputError(f"node {node.id!r} is on trial for no episode; give add_nodes its trial_of")
            known = self._known(node, merge=trial_of is None and node.variant_of is None)
            if known is None:
                self._insert(encoded, vector, trial_of)
                ids.append(node.id)
            else:
                self._seen_again(node, known)
                ids.append(known["id"])
        self._require(list({node.variant_of for node in nodes if node.variant_of is not None}))
        return ids

    @_whole
    def replace(self, node: Node, *, reason: str = "") -> None:
        """Write all fields of a node that is there; a content that this replaces goes to its history.

        Raises:
            NotFoundError: no such node.
            InvalidInputError: changed content without its embedding, another layer, or the content of another fact.
        """
        old = self._connection.execute("SELECT * FROM nodes WHERE id = ?", (node.id,)).fetchone()
        if old is None:
            raise NotFoundError(f"no node {node.id!r} in this memory; add it first")
        if old["layer"] != node.layer:
            raise InvalidInputError(f"node {node.id!r} is {old['layer']}; a {node.layer} node needs an id of its own")
        changed = old["content"] != node.content
        encoded, vector = check_node(node), self._embedded(node, needed=changed)
        key = content_key(node.content)
        if isinstance(node, SemanticNode) and key != old["content_key"] and node.variant_of is None:
            twin = find_twin(self._connection, key, node.scope)
            if twin is not None:
                raise InvalidInputError(
                    f"the new content of node {node.id!r} is already that of {twin['id']!r} in its scope; "
                    "forget one of the two, or keep the old content"
                )
        if changed:
            record_version(self._connection, old, new_content=node.content, reason=reason)
        columns = node_columns(node, encoded.metadata, encoded.payload)
        if node.state is not NodeState.TRIAL:
            columns["trial_of"] = None
        revision = self._touch()
        if changed or (vector is not None and vector_to_blob(vector) != old["embedding"]):
            columns |= derived_columns(node.content, vector, revision)
        self._connection.execute(
            f"UPDATE nodes SET {', '.join(f'{name} = :{name}' for name in columns)} WHERE id = :id", columns
        )
        if isinstance(node, SemanticNode):
            self._move_mention(node, old)

    @_whole
    def set_state(self, ids: Sequence[str], state: NodeState) -> None:
        """Let retrieval see nodes or not; ``ACTIVE`` and ``DEMOTED`` also end a trial.

        Raises:
            NotFoundError: an unknown id.
            InvalidInputError: ``TRIAL``, which needs an episode and so begins in ``add_nodes`` only.
        """
        if state is NodeState.TRIAL:
            raise InvalidInputError("a trial belongs to an episode; begin it with add_nodes(..., trial_of=episode_id)")
        self._require(ids)
        self._touch()
        self._connection.execute(
            f"UPDATE nodes SET state = ?, trial_of = NULL WHERE id {IN_LIST}",
            (str(NodeState(state)), json.dumps(list(ids))),
        )

    @_whole
    def delete_nodes(self, ids: Sequence[str]) -> None:
        """Delete nodes with their edges, outcomes, mentions, history and vectors.

        Raises:
            NotFoundError: an unknown id.
        """
        layers = self._require(ids)
        revision, listed = self._touch(), json.dumps(list(layers))
        if Layer.EPISODIC in layers.values():
            self.drop_source_episodes([id for id, layer in layers.items() if layer is Layer.EPISODIC])
        self._connection.execute(f"UPDATE nodes SET variant_of = NULL WHERE variant_of {IN_LIST}", (listed,))
        self._connection.executemany(
            "INSERT OR REPLACE INTO deleted VALUES (?, ?, ?)",
            [(id, str(layer), revision) for id, layer in layers.items()],
        )
        self._connection.execute(f"DELETE FROM nodes WHERE id {IN_LIST}", (listed,))

    @_whole
    def add_edges(self, edges: Sequence[Edge]) -> None:
        """Store edges; a second ground or distill edge between the same two nodes lends the first its weight.

        Raises:
            InvalidInputError: an end that is not there, layers that the kind does not join, a weight that is none.
        """
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
            check_number(edge.weight, f"the weight of edge {edge.id!r}")
        marks = ", ".join("?" * len(EDGE_COLUMNS.split(", ")))
        for edge in edges:
            # An id conflict of another pair is a caller's mistake and stays an error.
            self._connection.execute(
                f"INSERT INTO edges ({EDGE_COLUMNS}) VALUES ({marks}) "
                "ON CONFLICT (source_id, target_id, kind) WHERE kind != 'step' "
                "DO UPDATE SET weight = max(weight, excluded.weight)",
                edge_to_row(edge),
            )

    @_whole
    def delete_edges(self, ids: Sequence[str]) -> None:
        """Delete edges.

        Raises:
            NotFoundError: an unknown id.
        """
        self._require_edges(ids)
        self._connection.execute(f"DELETE FROM edges WHERE id {IN_LIST}", (json.dumps(list(ids)),))

    @_whole
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

    @_whole
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

    @_whole
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

    @_whole
    def put_edit(self, edit: Edit) -> None:
        """Store an edit, or overwrite the one of its id."""
        write_edit(self._connection, edit)

    @_whole
    def set_embeddings(self, ids: Sequence[str], vectors: FloatArray) -> None:
        """Give nodes their vectors, shape ``(n, d)``.

        Raises:
            NotFoundError: an unknown id.
            InvalidInputError: another number of vectors than of ids.
            DimensionError: vectors of the wrong size, with NaN or infinity, or of length zero.
        """
        if len(ids) != len(vectors):
            raise InvalidInputError(f"{len(ids)} ids came with {len(vectors)} vectors; give one vector an id")
        self._require(ids)
        ready = [self._vector(vector, id) for id, vector in zip(ids, vectors, strict=True)]
        revision = self._touch()
        self._connection.executemany(
            "UPDATE nodes SET embedding = ?, rev = ? WHERE id = ?",
            [(vector_to_blob(vector), revision, id) for id, vector in zip(ids, ready, strict=True)],
        )

    @_whole
    def set_ingested(self, source: str, scope: Scope, digest: str) -> None:
        """Remember which content of a source was taken in."""
        self._connection.execute("INSERT OR REPLACE INTO ingested VALUES (?, ?, ?)", (source, scope_key(scope), digest))

    @_whole
    def set_meta(self, key: str, value: str) -> None:
        """Remember a small fact about the memory under a key."""
        set_fact(self._connection, f"user:{key}", value)

    @_whole
    def merge_nodes(self, keep_id: str, drop_ids: Sequence[str]) -> None:
        """Let one node take over the edges, outcomes, mentions and counts of others of its layer, which go.

        Raises:
            NotFoundError: an unknown id.
            InvalidInputError: nodes of another layer or scope, or the kept node among the dropped.
        """
        if keep_id in drop_ids:
            raise InvalidInputError(f"node {keep_id!r} cannot be kept and dropped at once")
        self._require([keep_id, *drop_ids])
        listed = json.dumps([keep_id, *drop_ids])
        kinds = self._connection.execute(
            f"SELECT DISTINCT layer, scope_user, scope_agent, scope_session FROM nodes WHERE id {IN_LIST}", (listed,)
        ).fetchall()
        if len(kinds) > 1:
            raise InvalidInputError(f"node {keep_id!r} and those to merge into it are not of one layer and scope")
        for id in dict.fromkeys(drop_ids):
            take_over(self._connection, keep_id, id)
            self.drop_source_episodes([id], stand_in=keep_id)
        self.delete_nodes(list(dict.fromkeys(drop_ids)))

    def drop_source_episodes(self, episode_ids: Sequence[str], *, stand_in: str | None = None) -> list[str]:
        """Take episodes out of the skills that name them as sources; return the skills' ids."""
        listed = json.dumps(list(episode_ids))
        rows = self._connection.execute(
            "SELECT id, payload FROM nodes WHERE layer = 'procedural' AND EXISTS (SELECT 1 FROM "
            f"json_each(payload, '$.source_episode_ids') AS entry WHERE entry.value {IN_LIST})",
            (listed,),
        ).fetchall()
        for row in rows:
            payload = json.loads(row["payload"])
            left = [stand_in if id in episode_ids else id for id in payload["source_episode_ids"]]
            payload["source_episode_ids"] = list(dict.fromkeys(id for id in left if id is not None))
            self._connection.execute(
                "UPDATE nodes SET payload = ? WHERE id = ?", (encode_json(payload, row["id"]), row["id"])
            )
        return [row["id"] for row in rows]

    # ---- checks

    def _embedded(self, node: Node, *, needed: bool = True) -> FloatArray | None:
        """Return a node's vector at unit length."""
        if node.embedding is not None:
            return self._vector(node.embedding, node.id)
        if needed and self._embedder is not None:
            raise InvalidInputError(f"node {node.id!r} has no embedding; this memory was opened with an embedder")
        return None

    def _vector(self, vector: Any, id: str) -> FloatArray:
        stored, dimension = read_fact(self._connection, "fingerprint"), stored_dimension(self._connection)
        if self._embedder is not None and stored not in (None, self._embedder):
            raise EmbedderMismatchError(mismatch_message(str(stored), self._embedder))
        unit = unit_vector(vector, dimension, f"node {id!r}")
        if dimension is None:
            set_fact(self._connection, "dimension", str(unit.size))
        return unit

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

    # ---- rows

    def _touch(self) -> int:
        """Return the generation that this commit makes."""
        if self._revision is None:
            self._revision = next_generation(self._connection)
        return self._revision

    def _known(self, node: Node, *, merge: bool) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._connection.execute("SELECT * FROM nodes WHERE id = ?", (node.id,)).fetchone()
        if row is not None:
            same = (row["layer"], row["content_key"]) == (node.layer, content_key(node.content))
            if not same or (row["scope_user"], row["scope_agent"], row["scope_session"]) != (
                node.scope.user,
                node.scope.agent,
                node.scope.session,
            ):
                raise InvalidInputError(
                    f"id {node.id!r} is taken by another content, layer or scope; give a new id, or update that node"
                )
            return row
        if merge and isinstance(node, SemanticNode):
            return find_twin(self._connection, content_key(node.content), node.scope)
        return None

    def _insert(self, encoded: EncodedNode, vector: FloatArray | None, trial_of: str | None) -> None:
        node = encoded.node
        columns = node_columns(node, encoded.metadata, encoded.payload) | {"trial_of": trial_of}
        insert_node(self._connection, columns | derived_columns(node.content, vector, self._touch()))
        if isinstance(node, SemanticNode) and node.variant_of is None:
            add_mention(self._connection, node.id, node.source, node.chunk_index, node.count, node.created_at)

    def _seen_again(self, node: Node, known: sqlite3.Row) -> None:
        if not isinstance(node, SemanticNode):
            return
        self._touch()
        # Who states a fact again wants it found, also when tidying had put it aside.
        self._connection.execute(
            "UPDATE nodes SET count = count + ?, state = 'active', trial_of = NULL WHERE id = ?",
            (node.count, known["id"]),
        )
        add_mention(self._connection, known["id"], node.source, node.chunk_index, node.count, node.created_at)

    def _move_mention(self, node: SemanticNode, old: sqlite3.Row) -> None:
        """Keep what is known of where a fact was seen in step with its replaced source and count."""
        place = (old["source"], old["chunk_index"])
        row = self._connection.execute(
            "SELECT times, at FROM mentions WHERE node_id = ? AND source = ? AND chunk_index = ?", (node.id, *place)
        ).fetchone()
        times = (row["times"] if row else 0) + node.count - old["count"]
        if row is None or (place == (node.source, node.chunk_index) and times == row["times"]):
            return
        self._connection.execute(
            "DELETE FROM mentions WHERE node_id = ? AND source = ? AND chunk_index = ?", (node.id, *place)
        )
        add_mention(self._connection, node.id, node.source, node.chunk_index, max(1, times), row["at"])
