"""Records read from the pages of a database file and its log, whatever of it is damaged, without SQLite.

Follows SQLite's documented file format: a leaf page names its cells, a cell holds a record, and what is too long for
the page goes on in a chain of others. What cannot be read is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from .database_file import log_is_foreign, log_of

__all__ = ["Record", "records"]

# The number that the row has in its table (None in one without such numbers), and the row's values.
Record: TypeAlias = tuple[int | None, tuple[int | float | str | bytes | None, ...]]

_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER = 0x0D, 0x0A, 0x02
_LOG_MAGIC = (0x377F0682, 0x377F0683)
_LOG_HEADER = struct.Struct(">IIIIII8x")
_FRAME_HEADER = struct.Struct(">IIII8x")
_USUAL_PAGE_SIZE = 4096
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_UNREADABLE = (IndexError, ValueError, struct.error, KeyError, OverflowError)


def records(file: Path) -> Iterator[Record]:
    """Go through all records of the last committed state that can be read.

    Raises:
        OSError: a file cannot be read at all.
    """
    pages = _Pages(file)
    for number in range(1, pages.count + 1):
        yield from pages.records(number)


class _Pages:
    def __init__(self, file: Path) -> None:
        self._content = file.read_bytes() if file.exists() else b""
        stated = int.from_bytes(self._content[16:18], "big")
        self._size = 65536 if stated == 1 else stated
        self._logged: dict[int, bytes] = {}
        log = log_of(file)
        if log.exists() and not log_is_foreign(file, log):
            self._read_log(log.read_bytes())
        if self._size not in {2**power for power in range(9, 17)}:
            self._size = _USUAL_PAGE_SIZE
        self.count = max(-(-len(self._content) // self._size), *self._logged, 0)

    def records(self, number: int) -> Iterator[Record]:
        page = self._page(number)
        start = 100 if number == 1 else 0
        kind = page[start] if len(page) > start else 0
        if kind not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER):
            return
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        first = start + (12 if kind == _INDEX_INNER else 8)
        for place in range(first, min(first + 2 * count, len(page) - 1), 2):
            try:
                yield self._record(page, int.from_bytes(page[place : place + 2], "big"), kind)
            except _UNREADABLE:
                continue

    def _read_log(self, log: bytes) -> None:
        if len(log) < _LOG_HEADER.size:
            return
        magic, _, size, _, *salts = _LOG_HEADER.unpack_from(log)
        if magic not in _LOG_MAGIC:
            return
        self._size = size
        waiting: dict[int, bytes] = {}
        for place in range(_LOG_HEADER.size, len(log) - _FRAME_HEADER.size - size + 1, _FRAME_HEADER.size + size):
            number, commits, *mine = _FRAME_HEADER.unpack_from(log, place)
            if mine != salts:
                break  # left over from before the log was begun anew
            waiting[number] = log[place + _FRAME_HEADER.size : place + _FRAME_HEADER.size + size]
            if commits:
                self._logged |= waiting
                waiting = {}

    def _page(self, number: int) -> bytes:
        if number in self._logged:
            return self._logged[number]
        return self._content[(number - 1) * self._size : number * self._size]

    def _record(self, page: bytes, at: int, kind: int) -> Record:
        if kind == _INDEX_INNER:
            at += 4
        length, at = _varint(page, at)
        rowid = None
        if kind == _TABLE_LEAF:
            rowid, at = _varint(page, at)
            most = self._size - 35
        else:
            most = (self._size - 12) * 64 // 255 - 23
        least = (self._size - 12) * 32 // 255 - 23
        here = length
        if length > most:
            here = least + (length - least) % (self._size - 4)
            here = here if here <= most else least
        payload = page[at : at + here]
        if length > here:
            payload += self._rest(int.from_bytes(page[at + here : at + here + 4], "big"), length - here)
        if len(payload) != length:
            raise ValueError("cut off")
        return rowid, _values(payload)

    def _rest(self, number: int, length: int) -> bytes:
        """Follow the chain of pages that a record goes on in."""
        parts: list[bytes] = []
        while length > 0:
            page = self._page(number)
            if number == 0 or len(page) < 5 or len(parts) > self.count:
                raise ValueError("the chain breaks off")
            number = int.from_bytes(page[:4], "big")
            parts.append(page[4 : 4 + min(length, self._size - 4)])
            length -= len(parts[-1])
        return b"".join(parts)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(at, at + 8):
        value = value << 7 | content[place] & 0x7F
        if content[place] < 0x80:
            return value, place + 1
    return value << 8 | content[at + 8], at + 9


def _values(payload: bytes) -> tuple[int | float | str | bytes | None, ...]:
    size, at = _varint(payload, 0)
    kinds = []
    while at < size:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[int | float | str | bytes | None] = []
    at = size
    for kind in kinds:
        if kind in (0, 8, 9):
            values.append(None if kind == 0 else kind - 8)
            continue
        length = (kind - 12) // 2 if kind >= 12 else 8 if kind == 7 else _INTEGER_BYTES[kind]
        part = payload[at : at + length]
        if len(part) != length:
            raise ValueError("cut off")
        at += length
        if kind >= 12:
            values.append(part.decode("utf-8") if kind % 2 else part)
        else:
            values.append(struct.unpack(">d", part)[0] if kind == 7 else int.from_bytes(part, "big", signed=True))
    return tuple(values)
