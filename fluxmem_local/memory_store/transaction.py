"""Transaction: the changes that one commit makes, each checked before it is made."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace as with_fields
from typing import Any

from fluxmem_local.errors import EmbedderMismatchError, InvalidInputError, NotFoundError
from fluxmem_local.graph import Node, SemanticNode
from fluxmem_local.storage.checks import EncodedNode, check_node
from fluxmem_local.storage.codec import decode_json, encode_json, unit_vector, vector_sum, vector_to_blob
from fluxmem_local.storage.database import Database
from fluxmem_local.storage.journal import record_version
from fluxmem_local.storage.owner_process import OWNER
from fluxmem_local.storage.refusals import allow_mention, allow_node
from fluxmem_local.storage.rows import (
    IN_LIST,
    add_mention,
    confirm,
    derived_columns,
    find_twin,
    insert_node,
    mismatch_message,
    node_columns,
    read_fact,
    set_fact,
    set_validity,
    stored_dimension,
)
from fluxmem_local.text import content_key
from fluxmem_local.types import FloatArray, Layer, NodeState

from .links import LinkChanges, whole
from .merging import merged_metadata, take_over

__all__ = ["Transaction"]


class Transaction(LinkChanges):
    """Changes of one memory that become visible together when its ``with`` block ends.

    ``told`` has the ids of the facts that took over metadata on being stated again, ``num_added`` counts new nodes.
    """

    def __init__(self, database: Database, connection: sqlite3.Connection, embedder: str | None) -> None:
        super().__init__(database, connection, embedder)
        self.told: set[str] = set()
        self.num_added = 0

    @whole
    def add_nodes(self, nodes: Sequence[Node], *, trial_of: str | None = None) -> list[str]:
        """Store nodes and return their ids in order; a fact that its scope holds already gives that fact's id.

        The fact's count then grows by one, where it was seen is kept, and it takes over metadata as by ``tell``.
        ``trial_of`` makes the nodes visible to that running episode only.

        Raises:
            BlankTextError: a node without visible content.
            DimensionError: an embedding of the wrong size, with NaN or infinity, or of length zero.
            InvalidInputError: an id that is taken by other content, or a node without the embedding it needs.
        """
        if trial_of is not None:
            self._require([trial_of])
        checked = [(check_node(node), self._embedded(node)) for node in nodes]
        ids: list[str] = []
        seen: set[str] = set()
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
                self._seen_again(node, known, first=known["id"] not in seen)
                ids.append(known["id"])
            seen.add(ids[-1])
        self._require(list({node.variant_of for node in nodes if node.variant_of is not None}))
        return ids

    @whole
    def tell(self, id: str, fact: SemanticNode) -> None:
        """Add to a fact that is there the metadata that it is stated with again; what changes goes to its history.

        New keys are taken from any source. The value of a known key changes only when the fact's own source, the first
        one, says otherwise.

        Raises:
            NotFoundError: no such node.
            InvalidInputError: metadata that cannot be stored, or that would end a fact before it begins.
        """
        self._require([id])
        check_node(fact)
        known = self._connection.execute("SELECT * FROM nodes WHERE id = ?", (id,)).fetchone()
        self._tell(known, fact, replaces=known["source"] == fact.source)

    @whole
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
        revision = self.begin_revision()
        if changed or (vector is not None and vector_to_blob(vector) != old["embedding"]):
            columns |= derived_columns(node.id, node.content, vector, revision)
        self._connection.execute(
            f"UPDATE nodes SET {', '.join(f'{name} = :{name}' for name in columns)} WHERE id = :id", columns
        )
        set_validity(self._connection, node.id, encoded.metadata)
        if changed:
            allow_node(self._connection, node.id, node.layer, node.scope, node.content)
        if isinstance(node, SemanticNode):
            self._move_mention(node, old)

    @whole
    def set_state(self, ids: Sequence[str], state: NodeState) -> None:
        """Let retrieval see nodes or not; ``ACTIVE`` and ``DEMOTED`` also end a trial.

        Raises:
            NotFoundError: an unknown id.
            InvalidInputError: ``TRIAL``, which needs an episode and so begins in ``add_nodes`` only.
        """
        if state is NodeState.TRIAL:
            raise InvalidInputError("a trial belongs to an episode; begin it with add_nodes(..., trial_of=episode_id)")
        self._require(ids)
        self.begin_revision()
        self._connection.execute(
            f"UPDATE nodes SET state = ?, trial_of = NULL WHERE id {IN_LIST}",
            (str(NodeState(state)), json.dumps(list(ids))),
        )

    @whole
    def confirm(self, ids: Sequence[str]) -> None:
        """Trust what an agent wrote by itself, on the owner's word.

        Raises:
            NotFoundError: an unknown id.
        """
        self._require(ids)
        self.begin_revision()
        confirm(self._connection, ids, time.time())

    @whole
    def delete_nodes(self, ids: Sequence[str]) -> None:
        """Delete nodes with their edges, outcomes, mentions, history and vectors.

        Raises:
            NotFoundError: an unknown id.
        """
        layers = self._require(ids)
        revision, listed = self.begin_revision(), json.dumps(list(layers))
        if Layer.EPISODIC in layers.values():
            self.drop_source_episodes([id for id, layer in layers.items() if layer is Layer.EPISODIC])
        self._connection.execute(f"UPDATE nodes SET variant_of = NULL WHERE variant_of {IN_LIST}", (listed,))
        self._connection.executemany(
            "INSERT OR REPLACE INTO deleted VALUES (?, ?, ?)",
            [(id, str(layer), revision) for id, layer in layers.items()],
        )
        self._connection.execute(f"DELETE FROM nodes WHERE id {IN_LIST}", (listed,))

    @whole
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
        revision = self.begin_revision()
        self._connection.executemany(
            "UPDATE nodes SET embedding = ?, vector_sum = ?, rev = ? WHERE id = ?",
            [
                (blob, vector_sum(id, blob), revision, id)
                for id, blob in zip(ids, map(vector_to_blob, ready), strict=True)
            ],
        )

    @whole
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

    @whole
    def end_tasks(self, episode_ids: Sequence[str]) -> None:
        """End running tasks as interrupted: their step links and unfinished versions go, their edits are not kept.

        Raises:
            NotFoundError: an unknown id.
        """
        self._require(episode_ids)
        self.begin_revision()
        run, listed = self._connection.execute, (json.dumps(list(episode_ids)),)
        run(f"DELETE FROM edges WHERE kind = 'step' AND source_id {IN_LIST}", listed)
        run(f"UPDATE edits SET kept = 0 WHERE kept IS NULL AND episode_id {IN_LIST}", listed)
        self.delete_nodes([row["id"] for row in run(f"SELECT id FROM nodes WHERE trial_of {IN_LIST}", listed)])
        run(
            "UPDATE nodes SET payload = json_set(payload, '$.status', 'interrupted', '$.success', json('false')), "
            f"metadata = json_remove(metadata, '$.{OWNER}') WHERE layer = 'episodic' AND id {IN_LIST}",
            listed,
        )

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
        unit = unit_vector(vector, dimension, f"the embedding of node {id!r}")
        if dimension is None:
            set_fact(self._connection, "dimension", str(unit.size))
        return unit

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
        self.num_added += 1
        columns = node_columns(node, encoded.metadata, encoded.payload) | {"trial_of": trial_of}
        insert_node(self._connection, columns | derived_columns(node.id, node.content, vector, self.begin_revision()))
        if node.variant_of is None:
            allow_node(self._connection, node.id, node.layer, node.scope, node.content)
        if isinstance(node, SemanticNode) and node.variant_of is None:
            add_mention(self._connection, node.id, node.source, node.chunk_index, node.count, node.created_at)

    def _seen_again(self, node: Node, known: sqlite3.Row, *, first: bool) -> None:
        if not isinstance(node, SemanticNode):
            return
        self.begin_revision()
        # Of what is stated twice in one go neither is the later word.
        self._tell(known, node, replaces=first and known["source"] == node.source)
        # Who states a fact again wants it found, also when tidying had put it aside.
        self._connection.execute(
            "UPDATE nodes SET count = count + ?, state = 'active', trial_of = NULL WHERE id = ?",
            (node.count, known["id"]),
        )
        if node.trusted:
            confirm(self._connection, [known["id"]], node.created_at)
        add_mention(self._connection, known["id"], node.source, node.chunk_index, node.count, node.created_at)
        allow_mention(self._connection, known["id"], node.source)

    def _tell(self, known: sqlite3.Row, fact: SemanticNode, *, replaces: bool) -> None:
        what = f"node {known['id']!r}"
        old = decode_json(known["metadata"], what)
        # As it would be stored: a tuple told again is the list that is known.
        told = decode_json(encode_json(dict(fact.metadata), what), what)
        new = merged_metadata(old, told, replaces=replaces)
        changed = [key for key in new if key not in old or old[key] != new[key]]
        if not changed:
            return
        record_version(
            self._connection, known, new_content=known["content"], reason=f"new metadata: {', '.join(changed)}"
        )
        encoded = encode_json(new, what)
        self.begin_revision()
        self._connection.execute("UPDATE nodes SET metadata = ? WHERE id = ?", (encoded, known["id"]))
        set_validity(self._connection, known["id"], encoded)
        self.told.add(known["id"])

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
