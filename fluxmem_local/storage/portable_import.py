"""Importer: reads an export line by line into an open transaction."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluxmem_local.errors import FluxMemError, ImportFormatError
from fluxmem_local.graph import Edit, ProceduralNode, SemanticNode, edge_may_join
from fluxmem_local.text import content_key
from fluxmem_local.text.quotes import REDACTED
from fluxmem_local.types import FloatArray, JsonObject, Layer, Origin

from .checks import check_edit, check_node, check_number, check_text
from .codec import EDGE_COLUMNS, encode_json, node_from_row, vector_from_blob, vector_to_blob
from .journal import read_edits, write_edit
from .left_out import LeftOut, runs
from .refusals import KINDS, take_in
from .rows import (
    IN_LIST,
    confirm,
    derived_columns,
    find_twin,
    insert_node,
    next_generation,
    node_columns,
    read_fact,
    set_fact,
    stored_dimension,
)

__all__ = ["FORMAT", "VERSION", "ImportReport", "Importer"]

FORMAT = "fluxmem-local"
VERSION = 1
_UNIT_ERROR = 1e-3
# What a field of the wrong kind leads to, here or in SQLite; a full disk, for one, is none of it.
_UNREADABLE = (
    FluxMemError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import took in; ``num_known`` nodes were there already, ``num_unembedded`` have no usable vector.

    ``num_forgotten`` were left out because they had been forgotten here; adding them anew brings them back.
    """

    num_nodes: int = 0
    num_known: int = 0
    num_edges: int = 0
    num_edits: int = 0
    num_unembedded: int = 0
    num_forgotten: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return it for JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class Importer:
    """One import: maps the ids of facts that are here under another id, and counts."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ids: dict[str, str] = {}
        self._new: set[str] = set()
        self._left_out = LeftOut(connection)
        self._refusals: list[tuple[str, str]] = []
        self._pending: list[tuple[int, str, str]] = []
        self._keep_vectors = False
        self._revision = 0
        self._counts = dict.fromkeys(("num_nodes", "num_known", "num_edges", "num_edits", "num_unembedded"), 0)

    def run(self, lines: Iterable[str]) -> ImportReport:
        """Read all lines.

        Raises:
            ImportFormatError: a line that cannot be read.
        """
        readers: dict[str, Callable[[JsonObject], None]] = {
            "node": self._node,
            "mention": self._mention,
            "edge": self._edge,
            "outcome": self._outcome,
            "version": self._version,
            "edit": self._edit,
            "ingested": self._ingested,
            "forgotten": self._forgotten,
            "fact": self._fact,
        }
        number, ended = 0, False
        for number, line in enumerate(lines, start=1):
            if ended:
                raise _bad(number, "a line after the end")
            record = _parsed(line, number)
            kind = record.pop("type")
            try:
                if (number == 1) != (kind == "header"):
                    raise ValueError("the header must be the first line, and only that")
                if kind == "header":
                    self._header(record)
                elif kind == "end":
                    ended = True
                    if record.get("lines") != number - 1:
                        raise ValueError(f"{record.get('lines')!r} lines are announced, {number - 1} are there")
                elif kind in readers:
                    readers[kind](record)
                else:
                    raise ValueError(f"unknown type {kind!r}")
            except KeyError as error:
                raise _bad(number, f"the field {error} is missing") from error
            except _UNREADABLE as error:
                raise _bad(number, str(error)) from error
        if not ended:
            raise _bad(number + 1, "the end line is missing, so the file is cut off")
        self._check_originals()
        self._add_mentions()
        take_in(self._connection, self._refusals)
        return ImportReport(**self._counts, num_forgotten=self._left_out.num_forgotten)

    def _header(self, record: JsonObject) -> None:
        if record.get("format") != FORMAT:
            raise ValueError(f"format {record.get('format')!r} is not {FORMAT!r}; export it with: fluxmem export")
        if record.get("version") != VERSION:
            raise ValueError(
                f"version {record.get('version')!r} is not {VERSION}; upgrade: pip install -U fluxmem-local"
            )
        theirs = (record.get("fingerprint"), record.get("dimension"))
        mine = (read_fact(self._connection, "fingerprint"), stored_dimension(self._connection))
        if theirs[1] is not None and mine[0] in (None, theirs[0]) and mine[1] in (None, theirs[1]):
            self._keep_vectors = True
            for key, value in zip(("fingerprint", "dimension"), theirs, strict=True):
                if value is not None:
                    set_fact(self._connection, key, str(value))
        self._revision = next_generation(self._connection)

    def _node(self, record: JsonObject) -> None:
        row = dict(record)
        row |= {f"scope_{part}": record["scope"].get(part) for part in ("user", "agent", "session")}
        row |= {name: encode_json(record[name], name) for name in ("metadata", "payload")}
        row |= dict.fromkeys(("embedding", "content_sum", "vector_sum"))
        # Exports of an early version, and other programs', do not say it.
        row = {"added_by": Origin.IMPORT, "confirmed_at": None, **row}
        node = node_from_row(row)
        if isinstance(node, ProceduralNode):
            node = self._left_out.without_forgotten_sources(node)
        encoded = check_node(node)
        vector = self._vector(record["embedding"])
        known = self._known(node, record)
        if known is not None:
            self._ids[node.id] = known["id"]
            self._counts["num_known"] += 1
            self._connection.execute(
                "UPDATE nodes SET count = max(count, ?) WHERE id = ?", (record["count"], known["id"])
            )
            if node.trusted:
                confirm(self._connection, [known["id"]], node.confirmed_at or node.created_at)
            return
        if self._left_out.takes(node, trial_of=record["trial_of"], source=record["source"]):
            return
        self._ids[node.id] = node.id
        self._new.add(node.id)
        columns = node_columns(node, encoded.metadata, encoded.payload)
        for name in ("trial_of", "variant_of"):
            columns[name] = self._ids.get(record[name], record[name])
            if columns[name] is not None:
                self._pending.append((self._counts["num_nodes"], node.id, columns[name]))
        insert_node(self._connection, columns | derived_columns(node.id, node.content, vector, self._revision))
        self._counts["num_nodes"] += 1
        self._counts["num_unembedded"] += vector is None

    def _known(self, node: Any, record: JsonObject) -> Any:
        key = content_key(node.content)
        row = self._connection.execute("SELECT * FROM nodes WHERE id = ?", (node.id,)).fetchone()
        if row is not None:
            # What quoted something forgotten says less here than there, and stays as it is.
            same = row["content_key"] == key or REDACTED in row["content"]
            if row["layer"] != node.layer or not same:
                raise ValueError(f"id {node.id!r} stands for another content in this memory")
            return row
        if isinstance(node, SemanticNode) and node.variant_of is None and record["trial_of"] is None:
            return find_twin(self._connection, key, node.scope)
        return None

    def _vector(self, encoded: Any) -> FloatArray | None:
        if encoded is None or not self._keep_vectors:
            return None
        vector = vector_from_blob(base64.b64decode(encoded, validate=True))
        if len(vector) != stored_dimension(self._connection) or not abs(np.linalg.norm(vector) - 1.0) <= _UNIT_ERROR:
            raise ValueError(f"the embedding has {len(vector)} numbers or is not of unit length")
        return vector

    def _mention(self, record: JsonObject) -> None:
        id, source = self._ids.get(record["node_id"]), _text(record["source"])
        if self._left_out.takes_mention(record["node_id"], id, source):
            self._connection.execute(
                "UPDATE nodes SET count = (SELECT sum(times) FROM mentions WHERE node_id = nodes.id) WHERE id = ?",
                (id,),
            )
            return
        id = self._here(record["node_id"])
        self._connection.execute(
            "INSERT INTO mentions VALUES (?, ?, ?, ?, ?) ON CONFLICT (node_id, source, chunk_index) "
            "DO UPDATE SET times = max(times, excluded.times)",
            (id, source, int(record["chunk_index"]), int(record["times"]), float(record["at"])),
        )
        self._connection.execute(
            "UPDATE nodes SET count = max(count, (SELECT sum(times) FROM mentions WHERE node_id = nodes.id)) "
            "WHERE id = ?",
            (id,),
        )

    def _edge(self, record: JsonObject) -> None:
        if self._left_out.holds(record["source_id"], record["target_id"]):
            return
        if record["kind"] == "step" and not runs(self._connection, self._here(record["source_id"])):
            return
        record["source_id"], record["target_id"] = self._here(record["source_id"]), self._here(record["target_id"])
        ends = [record["source_id"], record["target_id"]]
        rows = self._connection.execute(f"SELECT id, layer FROM nodes WHERE id {IN_LIST}", (json.dumps(ends),))
        layers = {row["id"]: Layer(row["layer"]) for row in rows.fetchall()}
        if not edge_may_join(record["kind"], layers[ends[0]], layers[ends[1]]):
            raise ValueError(f"a {record['kind']} edge cannot go from a {layers[ends[0]]} to a {layers[ends[1]]} node")
        if self._connection.execute("SELECT 1 FROM edges WHERE id = ?", (record["id"],)).fetchone():
            return
        record["metadata"] = encode_json(record["metadata"], "metadata")
        check_text(record["id"], "an edge's id")
        for name in ("weight", "created_at", "success_count", "failure_count", "step_index"):
            check_number(record[name], name)
        names = EDGE_COLUMNS.split(", ")
        self._connection.execute(
            f"INSERT INTO edges ({EDGE_COLUMNS}) VALUES ({', '.join(f':{name}' for name in names)}) "
            "ON CONFLICT (source_id, target_id, kind) WHERE kind != 'step' DO UPDATE SET "
            + ", ".join(
                f"{name} = max({name}, excluded.{name})" for name in ("weight", "success_count", "failure_count")
            ),
            {name: record[name] for name in names},
        )
        self._counts["num_edges"] += 1

    def _outcome(self, record: JsonObject) -> None:
        if self._left_out.holds(record["node_id"], record["episode_id"]):
            return
        self._connection.execute(
            "INSERT INTO outcomes VALUES (?, ?, ?, ?) ON CONFLICT (node_id, episode_id) "
            "DO UPDATE SET helped = max(helped, excluded.helped), hurt = max(hurt, excluded.hurt)",
            (
                self._here(record["node_id"]),
                self._here(record["episode_id"]),
                int(record["helped"]),
                int(record["hurt"]),
            ),
        )

    def _version(self, record: JsonObject) -> None:
        if record["node_id"] in self._new:
            self._connection.execute(
                "INSERT INTO versions (node_id, action, at, reason, old_content, old_metadata, old_embedding) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    record["node_id"],
                    *(_text(record["action"]), float(record["at"]), _text(record["reason"])),
                    _text(record["old_content"]),
                    encode_json(record["old_metadata"], "old_metadata"),
                    # Exports of the first versions of this package have none.
                    None if (vector := self._vector(record.get("old_embedding"))) is None else vector_to_blob(vector),
                ),
            )

    def _edit(self, record: JsonObject) -> None:
        if read_edits(self._connection, edit_id=record["id"]):
            return
        edit = self._left_out.cleaned(
            Edit(**self._renamed(record) | {"targets": tuple(self._renamed(record["targets"]))})
        )
        if edit is None:
            return
        check_edit(edit)
        write_edit(self._connection, edit)
        self._counts["num_edits"] += 1

    def _ingested(self, record: JsonObject) -> None:
        if record["source"] in self._left_out.sources:
            # Else the source would be passed over as known when it is added anew.
            return
        self._connection.execute(
            "INSERT OR IGNORE INTO ingested VALUES (?, ?, ?)",
            (_text(record["source"]), _text(record["scope"]), _text(record["digest"])),
        )

    def _forgotten(self, record: JsonObject) -> None:
        if record["kind"] not in KINDS:
            raise ValueError(f"{record['kind']!r} is no kind of refusal; known are {', '.join(KINDS)}")
        self._refusals.append((record["kind"], _text(record["key"])))

    def _fact(self, record: JsonObject) -> None:
        self._connection.execute(
            "INSERT OR IGNORE INTO meta VALUES (?, ?)", (f"user:{_text(record['key'])}", _text(record["value"]))
        )

    def _here(self, id: str) -> str:
        if id not in self._ids:
            raise ValueError(f"node {id!r} is in none of the lines before")
        return self._ids[id]

    def _renamed(self, value: Any) -> Any:
        """Copy a JSON value with the ids of facts that are here under another one."""
        if isinstance(value, str):
            return self._ids.get(value, value)
        if isinstance(value, Mapping):
            return {self._ids.get(key, key): self._renamed(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._renamed(each) for each in value]
        return value

    def _add_mentions(self) -> None:
        """Let facts that came without a word on where they were seen be seen in their source."""
        self._connection.execute(
            "INSERT INTO mentions SELECT id, source, chunk_index, count, created_at FROM nodes "
            f"WHERE layer = 'semantic' AND variant_of IS NULL AND state != 'trial' AND id {IN_LIST} "
            "AND id NOT IN (SELECT node_id FROM mentions)",
            (json.dumps(list(self._new)),),
        )

    def _check_originals(self) -> None:
        for place, id, original in self._pending:
            if not self._connection.execute("SELECT 1 FROM nodes WHERE id = ?", (original,)).fetchone():
                raise _bad(place + 2, f"node {id!r} belongs to {original!r}, which is in no line")


def _parsed(line: str, number: int) -> JsonObject:
    try:
        record = json.loads(line)
    except (ValueError, TypeError, RecursionError) as error:
        raise _bad(number, f"no JSON ({error})") from error
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        raise _bad(number, "no JSON object with a type")
    return record


def _text(value: Any) -> str:
    check_text(value, "a field")
    return str(value)


def _bad(number: int, why: str) -> ImportFormatError:
    return ImportFormatError(f"line {number}: {why}; nothing was imported; export the memory again: fluxmem export")
