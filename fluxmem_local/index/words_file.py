"""The file of a lexical index: header, checksum, ids, and the arrays of its segment.

All numbers are little-endian. The header (see ``_HEADER``) holds the magic word, the version, the generation, and the
byte lengths of the six parts that follow the SHA-256 of everything else: a JSON list of ids; the documents' lengths
in tokens; and the segment's arrays in the order of its arguments.
"""

from __future__ import annotations

import hmac
import json
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .files import damaged, digest_of, replace_file
from .segment import Segment

__all__ = ["WordsFile", "read_words", "write_words"]

_MAGIC = b"FLUXWRD\n"
_VERSION = 1
_HEADER = struct.Struct("<8sQQ6Q")
_HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class WordsFile:
    """What one file holds: n ids, their lengths, shape ``(n,)``, and their words."""

    generation: int
    ids: list[str]
    lengths: npt.NDArray[np.int32]
    segment: Segment


def write_words(path: Path, file: WordsFile) -> str:
    """Write a file, whole or not at all, and return its checksum (hex).

    Raises:
        StorageError: the directory or the disk does not take it.
    """
    segment = file.segment
    parts = [
        json.dumps(file.ids).encode(),
        file.lengths.astype("<i4").tobytes(),
        segment.vocabulary.text,
        segment.vocabulary.ends.astype("<i8").tobytes(),
        segment.pairs.astype("<i4").tobytes(),
        segment.pair_ends.astype("<i8").tobytes(),
    ]
    header = _HEADER.pack(_MAGIC, _VERSION, file.generation, *map(len, parts))
    digest = digest_of(header, *parts)
    replace_file(path, (header, digest, *parts))
    return digest.hex()


def read_words(path: Path, noted: str) -> WordsFile:
    """Read the file whose checksum was noted when it was written.

    Raises:
        MemoryDamagedError: the file is missing, or is not that one.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise damaged(path, error.strerror or "unreadable") from error
    start = _HEADER.size + _HASH_BYTES
    whole = memoryview(content)
    header, stated = whole[: _HEADER.size], whole[_HEADER.size : start]
    if len(content) < start or stated.hex() != noted:
        raise damaged(path, "it is not the one that was noted")
    if not hmac.compare_digest(stated, digest_of(header, whole[start:])):
        raise damaged(path, "its checksum does not match")
    # What this package wrote and noted needs no further look.
    _, version, generation, *sizes = _HEADER.unpack(header)
    if version != _VERSION:
        raise damaged(path, f"it has format {version}, this version reads {_VERSION}")
    ends = np.cumsum([start, *sizes]).tolist()
    ids, lengths, text, *arrays = (whole[first:last] for first, last in pairwise(ends))
    text_ends, pairs, pair_ends = (
        np.frombuffer(part, dtype) for part, dtype in zip(arrays, ("<i8", "<i4", "<i8"), strict=True)
    )
    held = np.frombuffer(lengths, "<i4")
    segment = Segment(bytes(text), text_ends, pairs.reshape(-1, 2), pair_ends, len(held))
    return WordsFile(generation, json.loads(bytes(ids)), held, segment)
