"""The file of a vector store: header, ids, vectors and the graph, with one checksum.

All numbers are little-endian. The header (see ``_HEADER``) holds the magic word, the version, the vectors' size, their
count, the generation, the byte lengths of the three parts that follow, and the SHA-256 of everything else in the file.
The parts: JSON with ids, labels and settings; the unit vectors as float32, or nothing; what hnswlib saves, or nothing.
One of the latter two is there: the graph has the vectors in it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fluxmem_local.errors import MemoryDamagedError, StorageError
from fluxmem_local.types import FloatArray, JsonObject

from .graph import check_graph, graph_bytes, graph_of, vectors_of

__all__ = ["IndexFile", "damaged", "digest_of", "read_index", "replace_file", "write_index"]

_MAGIC = b"FLUXVEC\n"
_VERSION = 2
# magic, version, dimension, count, generation, lengths of the three parts
_HEADER = struct.Struct("<8sIIQQQQQ")
_HASH_BYTES = 32
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


def write_index(path: Path, file: IndexFile) -> str:
    """Write a file under another name, flush it to the disk, rename it, and return its checksum (hex).

    Raises:
        StorageError: the directory or the disk does not take it.
    """
    words = json.dumps({"ids": file.ids, "labels": file.labels, "settings": file.settings}).encode()
    try:
        vectors = file.vectors.astype("<f4").tobytes() if file.graph is None else b""
        body = b"" if file.labels is None else graph_bytes(file.graph, file.labels, file.vectors.shape[1], path)
    except OSError as error:
        raise _unwritable(path, error) from error
    header = _HEADER.pack(
        _MAGIC, _VERSION, file.vectors.shape[1], len(file.ids), file.generation, len(words), len(vectors), len(body)
    )
    digest = digest_of(header, words, vectors, body)
    replace_file(path, (header, digest, words, vectors, body))
    return digest.hex()


def read_index(path: Path, noted: str | None = None) -> IndexFile:
    """Read a file and check it whole before any part is used.

    Args:
        path: the file.
        noted: the checksum that was noted when the file was written; the graph of another file is refused, and of this
            one its links are not looked at one by one.

    Raises:
        MemoryDamagedError: the file is missing, cut off, changed, or none of ours.
    """
    try:
        with path.open("rb") as stream:
            empty = os.fstat(stream.fileno()).st_size == 0
            # Mapped, because a copy of a large file would need its size in memory once more.
            mapped = None if empty else mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise damaged(path, error.strerror or "unreadable") from error
    content = memoryview(mapped or b"")
    start = _HEADER.size + _HASH_BYTES
    if len(content) < start or content[: len(_MAGIC)] != _MAGIC:
        raise damaged(path, "it is no index file")
    _, version, dimension, count, generation, *sizes = _HEADER.unpack_from(content)
    if version != _VERSION:
        raise damaged(path, f"it has format {version}, this version reads {_VERSION}")
    if start + sum(sizes) != len(content) or sizes[1] != (0 if sizes[2] else 4 * dimension * count):
        raise damaged(path, "its length is not the one it states")
    words, vectors, body = (content[start + sum(sizes[:part]) : start + sum(sizes[: part + 1])] for part in range(3))
    stated = bytes(content[_HEADER.size : start])
    if noted is not None and noted != stated.hex():
        raise damaged(path, "it is not the one that was noted")
    if not hmac.compare_digest(stated, digest_of(content[: _HEADER.size], words, vectors, body)):
        raise damaged(path, "its checksum does not match")
    try:
        return _parse(generation, dimension, count, words, vectors, body, checked=noted is not None)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise damaged(path, f"its parts do not fit together ({error})") from error


def _parse(
    generation: int,
    dimension: int,
    count: int,
    words: memoryview,
    vectors: memoryview,
    body: memoryview,
    *,
    checked: bool,
) -> IndexFile:
    named = json.loads(bytes(words))
    ids, labels, settings = named["ids"], named["labels"], named["settings"]
    if len(ids) != count or (labels is None) != (not body) or (body and len(labels) != count):
        raise ValueError("counts differ")
    if labels is None:
        matrix = np.frombuffer(vectors, dtype="<f4").reshape(count, dimension).astype(np.float32)
        return IndexFile(generation, settings, ids, matrix, None, None)
    if not checked:
        check_graph(body, labels, dimension)
    matrix, graph = vectors_of(body, labels, dimension), graph_of(body, dimension)
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


def replace_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file under another name, flush it to the disk, and rename it.

    Raises:
        StorageError: the directory or the disk does not take it.
    """
    temporary: str | None = None
    try:
        _sweep(path)
        # For the owner's eyes only.
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            for part in parts:
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
        raise _unwritable(path, error) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def digest_of(*parts: bytes | memoryview) -> bytes:
    """Return the SHA-256 of parts that stand one after the other."""
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


def _unwritable(path: Path, error: OSError) -> StorageError:
    """Return the error for a file that cannot be written."""
    return StorageError(f"cannot write the index {path}: {error.strerror}; free space or check the rights")
