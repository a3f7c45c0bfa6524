"""Connections to the database's file: readers that change nothing, also on a full or read-only disk, and the writer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .database_file import has_log
from .read_only import resting, uri_of

__all__ = ["OneRead", "read_connection", "write_connection"]

_SETTINGS = ("foreign_keys = ON", "synchronous = FULL", "secure_delete = ON", "temp_store = MEMORY")
# What SQLite says when it cannot make the index of the log.
_NO_ROOM = ("disk i/o error", "disk is full", "unable to open database file")


class OneRead(sqlite3.Connection):
    """A connection that serves one read: it does not see what is written later."""

    _state: tuple[int, int, int] | None = None

    def note_state(self, file: Path) -> None:
        """Remember the state of the file that it reads without a lock."""
        self._state = _state_of(file)

    def is_outdated(self, file: Path) -> bool:
        """Tell whether the file was changed since, so that what was read may be of two states."""
        return self._state not in (None, _state_of(file))


def write_connection(file: Path | None, timeout_s: float) -> sqlite3.Connection:
    """Open the connection that writes; ``file`` None: of a memory in RAM."""
    return _opened(":memory:" if file is None else uri_of(file, writes=True), timeout_s)


def read_connection(file: Path, timeout_s: float, *, read_only: bool) -> sqlite3.Connection:
    """Open a connection that only reads; ``read_only`` says that nothing in the folder may be written.

    It is a ``OneRead`` where there is no right or no room to follow the log.
    """
    if read_only and resting(file) is not None:
        return _unchanging(file, timeout_s)
    try:
        return _opened(uri_of(file), timeout_s)
    except sqlite3.OperationalError as error:
        if read_only or not any(sign in str(error).lower() for sign in _NO_ROOM):
            raise
        if not has_log(file):
            # A full disk has no room for the index of the log; without a log none is needed.
            return _unchanging(file, timeout_s)
        # Who has the file alone can keep that index in memory.
        return _opened(uri_of(file, writes=True), timeout_s, first=("locking_mode = EXCLUSIVE",), kind=OneRead)


def _unchanging(file: Path, timeout_s: float) -> OneRead:
    connection = _opened(uri_of(file, unchanging=True), timeout_s, kind=OneRead)
    assert isinstance(connection, OneRead)
    connection.note_state(file)
    return connection


def _opened(
    address: str, timeout_s: float, *, first: tuple[str, ...] = (), kind: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    connection = sqlite3.connect(
        address,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
        uri=address.startswith("file:"),
        factory=kind,
    )
    try:
        connection.row_factory = sqlite3.Row
        for setting in (*first, *_SETTINGS):
            connection.execute(f"PRAGMA {setting}")
        # The first look at the file and its log: whether they can be read is known from here on.
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except BaseException as error:
        connection.close()
        if isinstance(error, UnicodeDecodeError):
            # The sqlite3 module stumbles over its own message when the damage is quoted in it.
            raise sqlite3.DatabaseError("malformed database schema") from error
        raise
    return connection


def _state_of(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
