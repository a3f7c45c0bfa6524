"""The database as a file: is it one of ours and whole, does its log belong to it, and copies of it."""

from __future__ import annotations

import mmap
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from fluxmem_local.errors import MemoryDamagedError, StorageError

from .read_only import uri_of
from .schema import APPLICATION_ID, SCHEMA_VERSION, renew_identity
from .sqlite_errors import REMEDY, mapped_errors

__all__ = [
    "check_file",
    "copy_of",
    "has_log",
    "leftovers",
    "log_is_foreign",
    "log_of",
    "make_folder",
    "migration_copies",
    "sync_folder",
]

_MAGIC = b"SQLite format 3\x00"
_LOG_HEADER_BYTES = 32
_FRAME_HEADER = struct.Struct(">II16x")


def check_file(file: Path) -> None:
    """Look at a database with plain reads, so that a file that is none of ours is never touched.

    Raises:
        MemoryDamagedError: no database, another program's, cut off, or with the log of another memory.
        StorageError: it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            header = stream.read(100)
        size = file.stat().st_size
        logged = has_log(file)
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror or error}; check the folder's rights") from error
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise MemoryDamagedError(f"{file} is no SQLite database, or a damaged one; nothing was overwritten; {REMEDY}")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise MemoryDamagedError(
            f"{file} is a database of another program; nothing was overwritten; name another folder, or {REMEDY}"
        )
    if logged:
        # A checkpoint may have been cut short, and then the log completes the file.
        if log_is_foreign(file, log_of(file)):
            raise MemoryDamagedError(
                f"{log_of(file)} is the log of another memory; nothing was overwritten; bring the right one back, or "
                f"move it away to open {file.name} as it was before its last changes"
            )
        return
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    if size < page_size * int.from_bytes(header[28:32], "big"):
        raise MemoryDamagedError(f"{file} is cut off at {size} bytes; nothing was overwritten; {REMEDY}")


def log_of(file: Path) -> Path:
    """Return the name of a database's log."""
    return file.with_name(f"{file.name}-wal")


def has_log(file: Path) -> bool:
    """Tell whether a database has a log beside it that is not empty."""
    log = log_of(file)
    return log.exists() and log.stat().st_size > 0


def copy_of(connection: sqlite3.Connection, file: Path, *, renew: bool = False) -> None:
    """Copy the state that a connection sees into a file that appears whole or not at all, readable by its owner alone.

    ``renew`` makes the copy a memory of its own.

    Raises:
        StorageError: the place cannot be written.
        MemoryDamagedError: what was copied is not sound; the copy is gone again.
    """
    half = file.with_name(f".{file.name}.new")
    try:
        half.unlink(missing_ok=True)
        os.close(os.open(half, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            with mapped_errors(file.parent):
                _fill(half, connection, renew)
            with half.open("rb") as stream:
                os.fsync(stream.fileno())
            os.replace(half, file)
            sync_folder(file.parent)
        finally:
            for suffix in ("", "-journal", "-wal", "-shm"):
                half.with_name(half.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot write {file}: {error.strerror or error}; free some space or check the rights"
        ) from error


def migration_copies(folder: Path) -> Iterator[Path]:
    """List the copies of a memory that were made before its tables changed."""
    return folder.glob("memory.schema-*.sqlite3")


def leftovers(folder: Path) -> Iterator[Path]:
    """List what making or copying a database leaves in a folder when it is killed half-way."""
    yield from folder.glob("memory.*sqlite3.new*")
    yield from folder.glob(".memory.*sqlite3.new*")


def make_folder(folder: Path) -> None:
    """Make the folder of a memory, its owner's alone, unless it is there.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot make {folder}: {error.strerror or error}; choose a folder that you may write"
        ) from error


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of files to the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _fill(half: Path, connection: sqlite3.Connection, renew: bool) -> None:
    with closing(sqlite3.connect(half, isolation_level=None)) as copy:
        connection.backup(copy)
        # One file alone: a copy in WAL mode would need a log beside it as soon as it is read.
        copy.execute("PRAGMA journal_mode = DELETE")
        # A memory in RAM has none.
        copy.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        # An older memory gets an identity of its own when its tables are brought forward.
        if renew and copy.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
            renew_identity(copy)
        wrong = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if wrong != "ok":
            raise MemoryDamagedError(f"the memory is damaged ({wrong:.200}), so no copy of it was kept; {REMEDY}")
        copy.execute("PRAGMA journal_mode = WAL")


def log_is_foreign(file: Path, log: Path) -> bool:
    """Tell whether a log is surely that of another memory, which SQLite would write into this one."""
    try:
        with closing(sqlite3.connect(uri_of(file, unchanging=True), uri=True)) as connection:
            identity = str(connection.execute("SELECT uuid FROM identity").fetchone()[0])
    except (sqlite3.Error, TypeError, UnicodeDecodeError):
        return False  # an older memory, or one of which the log holds the first page
    if not log.stat().st_size:
        return False
    with log.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(identity.encode()) < 0 and _commits(content)


def _commits(content: mmap.mmap) -> bool:
    page_size = int.from_bytes(content[8:12], "big")
    if len(content) < _LOG_HEADER_BYTES or not page_size:
        return False
    places = range(_LOG_HEADER_BYTES, len(content) - _FRAME_HEADER.size + 1, _FRAME_HEADER.size + page_size)
    return any(_FRAME_HEADER.unpack_from(content, place)[1] for place in places)
