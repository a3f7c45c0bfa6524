"""The file of a vector store: header, ids, vectors and the graph, with one checksum.

All numbers are little-endian. The header (see ``_HEADER``) holds the magic word, the version, the vectors' size, their
count, the generation, the byte lengths of the three parts that follow, and the SHA-256 of everything else in the file.
The parts: JSON with ids, labels and settings; the unit vectors as float32; what hnswlib saves, or nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import shutil
import struct
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fluxmem_local.errors import MemoryDamagedError, StorageError
from fluxmem_local.types import FloatArray, JsonObject

__all__ = ["IndexFile", "damaged", "read_index", "write_index"]

_MAGIC = b"FLUXVEC\n"
_VERSION = 1
# magic, version, dimension, count, generation, lengths of the three parts
_HEADER = struct.Struct("<8sIIQQQQQ")
_HASH_BYTES = 32
# What hnswlib 0.8 writes first: offset of level 0, room, count, bytes of an element, offsets of label and data, highest
# level, entry point, links of upper levels and of level 0, M, mult, ef_construction.
_GRAPH_HEADER = struct.Struct("<QQQQQQiIQQQdQ")
_MOST_EF_CONSTRUCTION = 10_000
# No process needs this long for one file.
_LEFT_OVER_S = 3600.0


@dataclass(frozen=True, slots=True)
class IndexFile:
    """What one file holds; ``vectors`` is ``(n, d)`` in the order of ``ids``; no labels and no graph when exact."""

    generation: int
    settings: JsonObject
    ids: list[str]
    vectors: FloatArray
    labels: list[int] | None
    graph: Any


def write_index(path: Path, file: IndexFile) -> None:
    """Write a file under another name, flush it to the disk, and rename it.

    Raises:
        StorageError: the directory or the disk does not take it.
    """
    words = json.dumps({"ids": file.ids, "labels": file.labels, "settings": file.settings}).encode()
    temporary: str | None = None
    try:
        _sweep(path)
        vectors = file.vectors.astype("<f4").tobytes()
        body = b"" if file.graph is None else _without_dead(_graph_bytes(file.graph, path), file)
        header = _HEADER.pack(
            _MAGIC, _VERSION, file.vectors.shape[1], len(file.ids), file.generation, len(words), len(vectors), len(body)
        )
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            for part in (header, _digest(header, words, vectors, body), words, vectors, body):
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        temporary = None
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise StorageError(
            f"cannot write the index {path}: {error.strerror}; free space or check the rights"
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def read_index(path: Path) -> IndexFile:
    """Read a file and check it whole before any part is used.

    Raises:
        MemoryDamagedError: the file is missing, cut off, changed, or none of ours.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise damaged(path, error.strerror or "unreadable") from error
    start = _HEADER.size + _HASH_BYTES
    if len(content) < start or not content.startswith(_MAGIC):
        raise damaged(path, "it is no index file")
    _, version, dimension, count, generation, *sizes = _HEADER.unpack_from(content)
    if version != _VERSION:
        raise damaged(path, f"it has format {version}, this version reads {_VERSION}")
    if start + sum(sizes) != len(content) or sizes[1] != 4 * dimension * count:
        raise damaged(path, "its length is not the one it states")
    words, vectors, body = (content[start + sum(sizes[:part]) : start + sum(sizes[: part + 1])] for part in range(3))
    stated = content[_HEADER.size : start]
    if not hmac.compare_digest(stated, _digest(content[: _HEADER.size], words, vectors, body)):
        raise damaged(path, "its checksum does not match")
    return _parse(path, generation, dimension, count, words, vectors, body)


def _parse(
    path: Path, generation: int, dimension: int, count: int, words: bytes, vectors: bytes, body: bytes
) -> IndexFile:
    try:
        named = json.loads(words)
        ids, labels, settings = named["ids"], named["labels"], named["settings"]
        matrix = np.frombuffer(vectors, dtype="<f4").reshape(count, dimension).astype(np.float32)
        if len(ids) != count or (labels is None) != (not body):
            raise ValueError("counts differ")
        graph = None if labels is None else _graph(body, labels, matrix, path)
    except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
        raise damaged(path, f"its parts do not fit together ({error})") from error
    return IndexFile(generation, settings, ids, matrix, labels, graph)


def _sweep(path: Path) -> None:
    """Delete what a process that was killed while it wrote or read this file left beside it."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime < _LEFT_OVER_S:
                continue
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()


def _graph_bytes(graph: Any, path: Path) -> bytes:
    # hnswlib reads and writes by file name only.
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        place = Path(folder) / "graph"
        graph.save_index(str(place))
        return place.read_bytes()


def _without_dead(body: bytes, file: IndexFile) -> bytes:
    """Give each deleted element, which hnswlib keeps to walk over, the vector of a neighbour that is alive.

    So the file holds no vector of what is not there any more.
    """
    changed = bytearray(body)
    elements = _elements(changed, file.vectors.shape[1])
    dead = ~np.isin(elements["label"], np.asarray(file.labels, np.uint64))
    # Where no neighbour is alive, any other one will do.
    any_alive = int(np.argmin(dead))
    for place in np.flatnonzero(dead):
        linked = elements["links"][place][: elements["used"][place]]
        alive = linked[~dead[linked]]
        elements["data"][place] = elements["data"][alive[0] if len(alive) else any_alive]
    return bytes(changed)


def _elements(body: bytes | bytearray, dimension: int) -> np.ndarray[Any, Any]:
    """View the elements of a graph: how many links each has, the links, its vector and its label."""
    _, _, count, width, label_at, data_at, _, _, _, links, *_ = _GRAPH_HEADER.unpack_from(body)
    element = np.dtype(
        {
            "names": ["used", "links", "data", "label"],
            "formats": ["<u2", ("<u4", (links,)), ("<f4", (dimension,)), "<u8"],
            "offsets": [0, 4, data_at, label_at],
            "itemsize": width,
        }
    )
    return np.frombuffer(body, dtype=element, count=count, offset=_GRAPH_HEADER.size)


def _graph(body: bytes, labels: list[int], vectors: FloatArray, path: Path) -> Any:
    import hnswlib

    dimension = vectors.shape[1]
    _check_graph(body, labels, vectors)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        place = Path(folder) / "graph"
        place.write_bytes(body)
        graph = hnswlib.Index(space="ip", dim=dimension)
        graph.load_index(str(place))
    return graph


def _check_graph(body: bytes, labels: list[int], vectors: FloatArray) -> None:
    """Check every size, link and vector in hnswlib's bytes, which it follows unchecked.

    Raises:
        ValueError: a number that would lead outside the graph, or a vector that is not the one beside it.
    """
    dimension = vectors.shape[1]
    if len(body) < _GRAPH_HEADER.size:
        raise ValueError("the graph is cut off")
    level0, room, count, width, label_at, data_at, top, entry, upper_links, links, m, mult, ef_construction = (
        _GRAPH_HEADER.unpack_from(body)
    )
    if (
        level0 != 0
        or not 0 < count <= room <= 16 * count + 1024
        or not 1 < m <= 256
        # From these hnswlib draws the levels of new nodes, and how far it looks for their links.
        or not abs(mult * math.log(m) - 1.0) < 1e-9
        or not 0 < ef_construction <= _MOST_EF_CONSTRUCTION
        or (upper_links, links) != (m, 2 * m)
        or (data_at, label_at, width) != (4 + 4 * links, 4 + 4 * links + 4 * dimension, 12 + 4 * links + 4 * dimension)
        or entry >= count
        or len(body) < _GRAPH_HEADER.size + count * (width + 4)
    ):
        raise ValueError("the graph's sizes are wrong")
    elements = _elements(body, dimension)
    within = np.arange(links) < elements["used"][:, None]
    if (
        (elements["used"] > links).any()
        or (elements["links"][within] >= count).any()
        or not np.isfinite(elements["data"]).all()
        or sorted(elements["label"].tolist()) != list(range(count))
        or len(set(labels)) != len(labels)
        or not set(labels) <= set(range(count))
    ):
        raise ValueError("the graph's links are wrong")
    place_of = np.empty(count, dtype=np.intp)
    place_of[elements["label"].astype(np.intp)] = np.arange(count)
    if not np.array_equal(elements["data"][place_of[labels]], vectors):
        raise ValueError("the graph's vectors are not those beside it")
    levels = _check_upper_levels(body, _GRAPH_HEADER.size + count * width, count, m)
    if levels[entry] != top or max(levels) != top:
        raise ValueError("the graph's entry is wrong")


def _check_upper_levels(body: bytes, at: int, count: int, m: int) -> list[int]:
    level_width = 4 + 4 * m
    levels = []
    tables = []
    for _ in range(count):
        (size,) = struct.unpack_from("<I", body, at) if at + 4 <= len(body) else (1,)
        if size % level_width or at + 4 + size > len(body):
            raise ValueError("the graph's upper levels are cut off")
        levels.append(size // level_width)
        tables.append((at + 4, size // level_width))
        at += 4 + size
    if at != len(body):
        raise ValueError("the graph has bytes left over")
    for place, height in tables:
        for level in range(height):
            used, *linked = struct.unpack_from(f"<I{m}I", body, place + level * level_width)
            if used > m or any(node >= count or levels[node] <= level for node in linked[:used]):
                raise ValueError("the graph's upper links are wrong")
    return levels


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def damaged(path: Path, why: str) -> MemoryDamagedError:
    """Return the error for a file that cannot be used, and why."""
    return MemoryDamagedError(
        f"the index file {path} cannot be used: {why}; "
        "it holds nothing that the database does not: run `fluxmem reindex`"
    )
