"""Verification: is everything in the database sound, and do the indices show exactly that?"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial

import numpy as np

from fluxmem_local.errors import FluxMemError, InvalidInputError, MemoryDamagedError
from fluxmem_local.graph import EDGE_KINDS, EpisodicNode, Node
from fluxmem_local.graph.invariants import edge_problems, node_problems
from fluxmem_local.index import HNSWVectorStore
from fluxmem_local.storage.checks import check_edge, check_node
from fluxmem_local.storage.codec import (
    EDGE_COLUMNS,
    NODE_COLUMNS,
    content_sum,
    edge_from_row,
    node_from_row,
    vector_of,
)
from fluxmem_local.storage.database import Database
from fluxmem_local.storage.rows import generation_of, read_fact, stored_dimension
from fluxmem_local.text import content_key, tokenize
from fluxmem_local.types import Layer

from .dead_tasks import find_dead_tasks
from .layer_index import LayerIndex
from .lookups import differing_lookups, renew_lookups
from .receipts import VerifyReport
from .reembedding import Coming, coming
from .removal import PURGE_PENDING
from .row_checks import COUNTED, NEXT_REVISION, Repair, deleting, row_findings, running

__all__ = ["verify"]

_UNPURGED = (
    "bytes of what was forgotten may still be in the files, since another program read them; they go when the memory "
    "is next opened, or with: fluxmem forget --purge"
)
_UNIT_ERROR = 1e-4
_SAME = 1e-5


def verify(database: Database, indices: Mapping[Layer, LayerIndex], *, fix: bool) -> VerifyReport:
    """Check all rules; with ``fix`` rebuild derived data and delete rows that lead nowhere."""
    checks = _Checks()
    with ExitStack() as held:
        # One state for everything: no index runs ahead of the rows it is compared with.
        in_memory = database.folder is None
        if in_memory:
            held.enter_context(database.read())
        for index in indices.values():
            held.enter_context(index.lock)
        connection = held.enter_context(database.read())
        checks.database(connection)
        checks.nodes(connection)
        checks.lookups(connection)
        checks.rows(connection)
        checks.edges(connection)
        dead, _ = find_dead_tasks(connection, now=time.time())
        underway = coming(connection)
        unpurged = read_fact(connection, PURGE_PENDING) is not None
        for index in indices.values():
            checks.index(connection, index)
    fixed: list[str] = []
    if fix and checks.repairs:
        with database.write() as connection:
            for problem, repair in checks.repairs:
                repair(connection)
                fixed.append(problem)
            connection.execute(
                "UPDATE meta SET value = ? WHERE key = 'generation'", (str(generation_of(connection) + 1),)
            )
        for index in checks.stale:
            with index.lock, database.read() as connection:
                index.reset(connection)
    return VerifyReport(
        counts=checks.counts,
        problems=tuple(checks.problems),
        fixed=tuple(fixed),
        notes=(
            *(
                f"task {id} is recorded as running, but {reason}; the next change of this memory ends it, as does: "
                "fluxmem verify --fix"
                for id, reason in dead.items()
            ),
            *_told(underway, checks.counts["nodes"]),
            *([_UNPURGED] if unpurged else []),
        ),
    )


def _told(underway: Coming | None, num_nodes: int) -> list[str]:
    if underway is None:
        return []
    return [
        f"{underway.num_done} of {num_nodes} memories are embedded by {underway.fingerprint}, which is to take over; "
        "go on with: fluxmem reindex --embedder MODEL"
    ]


class _Checks:
    def __init__(self) -> None:
        self.counts = {"nodes": 0, "edges": 0, "vectors": 0, "words": 0}
        self.problems: list[str] = []
        self.repairs: list[tuple[str, Repair]] = []
        self.stale: list[LayerIndex] = []
        self._nodes: dict[str, Layer] = {}
        self._vectors: dict[str, dict[str, bytes]] = {layer: {} for layer in Layer}
        self._terms: dict[Layer, dict[str, int]] = {layer: {} for layer in Layer}
        self._running: set[str] = set()
        self._broken: set[str] = set()

    def database(self, connection: sqlite3.Connection) -> None:
        for row in connection.execute("PRAGMA integrity_check(20)").fetchall():
            if row[0] != "ok":
                self.problems.append(f"SQLite: {row[0]}")

    def nodes(self, connection: sqlite3.Connection) -> None:
        dimension = stored_dimension(connection)
        self._running = {
            row["id"]
            for row in connection.execute(
                "SELECT id FROM nodes WHERE layer = 'episodic' AND json_valid(payload) "
                "AND json_extract(payload, '$.status') = 'running'"
            ).fetchall()
        }
        rows = connection.execute(f"SELECT {NODE_COLUMNS}, content_key, terms, trial_of FROM nodes ORDER BY key")
        for row in rows:
            self.counts["nodes"] += 1
            self._embedding(row, dimension)
            self._sums(row)
            with suppress(ValueError):
                # Damaged or not, it is there, and what leads to it stays.
                self._nodes[row["id"]] = Layer(row["layer"])
            try:
                node = node_from_row({**dict(row), "embedding": None})
                check_node(node)
            except (MemoryDamagedError, FluxMemError) as error:
                self._broken.add(row["layer"])
                self.problems.append(str(error))
                continue
            self._derived(node, row)
            for problem in node_problems(node, row["trial_of"], self._running):
                trial = not isinstance(node, EpisodicNode) or "trial" in problem
                self._wrong(problem, deleting(node.id, node.layer) if trial else None)

    def lookups(self, connection: sqlite3.Connection) -> None:
        for id in differing_lookups(connection):
            self._wrong(f"node {id} is not found by the metadata that it has", partial(renew_lookups, id=id))

    def rows(self, connection: sqlite3.Connection) -> None:
        for table in COUNTED:
            self.counts[table] = connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
        for problem, repair in row_findings(connection):
            self._wrong(problem, repair)

    def edges(self, connection: sqlite3.Connection) -> None:
        for row in connection.execute(f"SELECT {EDGE_COLUMNS} FROM edges ORDER BY key"):
            self.counts["edges"] += 1
            for problem in self._edge_problems(row):
                self._wrong(problem, running("DELETE FROM edges WHERE id = ?", row["id"]))

    def _edge_problems(self, row: sqlite3.Row) -> Iterator[str]:
        if row["kind"] not in EDGE_KINDS:
            yield f"edge {row['id']}: {row['kind']!r} is no kind of edge"
            return
        try:
            edge = edge_from_row(row)
            check_edge(edge)
        except (MemoryDamagedError, InvalidInputError) as error:
            yield str(error)
        else:
            yield from edge_problems(edge, self._nodes, self._running)

    def index(self, connection: sqlite3.Connection, index: LayerIndex) -> None:
        if index.layer in self._broken:
            # No store takes such a vector; the repair empties the row, and then the index is made anew.
            self.stale.append(index)
            return
        before = len(self.problems)
        store, expected = index.vectors(connection), self._vectors[index.layer]
        self.counts["vectors"] += len(store)
        for id, blob in expected.items():
            held = store.get_vector(id)
            if held is None:
                self.problems.append(f"the {index.layer} vectors lack node {id}")
            elif not np.allclose(held, np.frombuffer(blob, dtype="<f4"), atol=_SAME):
                self.problems.append(f"the {index.layer} vector of node {id} is not the stored one")
        if len(store) != len(expected):
            self.problems.append(f"{len(store)} {index.layer} vectors stand for {len(expected)} nodes")
        if isinstance(store, HNSWVectorStore):
            self.problems += [
                f"the {index.layer} vectors hold {id}, which is no node" for id in store.ids if id not in expected
            ]
        words, terms = index.words(connection), self._terms[index.layer]
        self.counts["words"] += len(words)
        self.problems += [f"the {index.layer} words lack node {id}" for id in terms if id not in words]
        lengths = words.statistics((), list(terms)).lengths
        self.problems += [
            f"the {index.layer} words of node {id} are not those of its content"
            for (id, length), indexed in zip(terms.items(), lengths, strict=True)
            if id in words and indexed != length
        ]
        if len(words) != len(terms):
            self.problems.append(f"the {index.layer} words are of {len(words)} texts, there are {len(terms)} nodes")
        found = self.problems[before:]
        if found:
            self.stale.append(index)
            self.repairs += [(problem, lambda _connection: None) for problem in found]

    def _derived(self, node: Node, row: sqlite3.Row) -> None:
        terms = tokenize(node.content)
        self._terms[node.layer][node.id] = len(terms)
        if row["terms"] != "\n".join(terms) or row["content_key"] != content_key(node.content):
            values = ("\n".join(terms), content_key(node.content), node.id)
            self._wrong(
                f"the words of node {node.id} are not those of its content",
                running(
                    "UPDATE nodes SET terms = ?, content_key = ?, rev = (SELECT value + 1 FROM meta WHERE "
                    "key = 'generation') WHERE id = ?",
                    *values,
                ),
            )

    def _embedding(self, row: sqlite3.Row, dimension: int | None) -> None:
        try:
            vector = vector_of(row)
        except MemoryDamagedError:
            problem = f"node {row['id']} has a damaged vector"
        else:
            if vector is None:
                return
            norm = float(np.linalg.norm(vector))
            if len(vector) == dimension and abs(norm - 1.0) <= _UNIT_ERROR:
                self._vectors.setdefault(row["layer"], {})[row["id"]] = row["embedding"]
                return
            problem = (
                f"node {row['id']} has a vector of {len(vector)} numbers and length {norm:g}, not {dimension} and 1"
            )
        self._broken.add(row["layer"])
        self._wrong(
            problem,
            running(
                f"UPDATE nodes SET embedding = NULL, vector_sum = NULL, rev = {NEXT_REVISION} WHERE key = ?",
                row["key"],
            ),
        )

    def _sums(self, row: sqlite3.Row) -> None:
        if row["content_sum"] is not None and (row["vector_sum"] is None) == (row["embedding"] is None):
            return
        self._broken.add(row["layer"])
        self._wrong(
            f"node {row['id']} has no checksum, so that its vector may be of another text",
            running(
                "UPDATE nodes SET content_sum = ?, embedding = NULL, vector_sum = NULL, "
                f"rev = {NEXT_REVISION} WHERE key = ?",
                content_sum(row["id"], row["content"]),
                row["key"],
            ),
        )

    def _wrong(self, problem: str, repair: Repair | None) -> None:
        self.problems.append(problem)
        if repair is not None:
            self.repairs.append((problem, repair))
