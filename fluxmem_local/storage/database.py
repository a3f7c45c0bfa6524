"""Database: the SQLite file of one memory, its connections and its transactions."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fluxmem_local.errors import MemoryDamagedError, MemoryNotFoundError, StorageError

from .connections import OneRead, read_connection, write_connection
from .database_file import check_file, copy_of, has_log, make_folder, migration_copies, sync_folder
from .lock import WriterLock
from .read_only import is_read_only
from .schema import APPLICATION_ID, SCHEMA_VERSION, migrate
from .sqlite_errors import mapped_errors

__all__ = ["DATABASE_NAME", "Database"]

DATABASE_NAME = "memory.sqlite3"
_CHECKPOINT_MS = 2000


class Database:
    """One memory's SQLite database: WAL, one writer, readers that never wait.

    ``folder`` None keeps it in memory; all threads then share one connection, one at a time. A folder that may not be
    written can be read all the same.
    """

    def __init__(self, folder: Path | None, *, create: bool, lock_timeout_s: float) -> None:
        self.folder = folder
        self._timeout_s = lock_timeout_s
        self._pid = os.getpid()
        self._idle: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._closed = False
        self._writing: sqlite3.Connection | None = None
        self._writer_thread: int | None = None
        self._depth = 0
        if folder is not None:
            self._prepare(folder, create)
        self.read_only = folder is not None and is_read_only(self._file)
        self._lock = WriterLock(folder, lock_timeout_s)
        if folder is not None and not self._file.exists():
            with self._lock.held(), self._errors():
                if not self._file.exists():
                    try:
                        self._create()
                    except OSError as error:
                        raise StorageError(
                            f"cannot make {self._file}: {error.strerror or error}; free some space or check the rights"
                        ) from error
        with self._errors():
            if folder is None:
                migrate(self._writer)
                return
            connection = self._take()
            try:
                # Without the lock when nothing is to be done: opening must not wait for a writer.
                version = connection.execute("PRAGMA user_version").fetchone()[0]
            finally:
                self._give(connection)
            if version != SCHEMA_VERSION:
                self.check_writable()
                with self._lock.held():
                    self._migrate()

    @property
    def in_transaction(self) -> bool:
        """Tell whether this thread is inside a transaction of its own."""
        return self._writer_thread == threading.get_ident()

    @property
    def closed(self) -> bool:
        """Tell whether it was closed."""
        return self._closed

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Give a connection that sees one committed state, or this thread's own open transaction."""
        self._check_open()
        if self.in_transaction:
            with self._errors():
                yield self._writer
            return
        if self.folder is None:
            with self._lock.held(), self._errors():
                yield self._writer
            return
        with self._errors():
            connection = self._take()
            try:
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            finally:
                self._give(connection)
        if isinstance(connection, OneRead) and connection.is_outdated(self._file):
            raise StorageError(f"{self.folder} was changed by another program while it was read; read it again")

    @contextmanager
    def write(self, *, timeout_s: float | None = None) -> Iterator[sqlite3.Connection]:
        """Run one transaction: all or nothing; inside another one of this thread, a part of it.

        ``timeout_s`` is how long another writer is waited for; None: as long as this database waits.

        Raises:
            MemoryLockedError: another writer held the memory for the whole waiting time.
            StorageError: the folder may not be written.
        """
        self._check_open()
        self.check_writable()
        with self._lock.held(timeout_s), self._errors():
            name = f"part_{self._depth}"
            if self.in_transaction:
                begin, commit = f"SAVEPOINT {name}", f"RELEASE {name}"
                roll_back = [f"ROLLBACK TO {name}", f"RELEASE {name}"]
            else:
                begin, commit, roll_back = "BEGIN IMMEDIATE", "COMMIT", ["ROLLBACK"]
            self._writer.execute(begin)
            unchanged = self._writer.total_changes
            self._writer_thread = threading.get_ident()
            self._depth += 1
            try:
                yield self._writer
                if commit == "COMMIT" and self._writer.total_changes != unchanged:
                    # So that each stretch of the log names the memory that it belongs to.
                    self._writer.execute("UPDATE identity SET commits = commits + 1")
                self._writer.execute(commit)
            except BaseException:
                # A full disk makes SQLite roll back on its own.
                if self._writer.in_transaction:
                    for statement in roll_back:
                        self._writer.execute(statement)
                raise
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._writer_thread = None

    def check_writable(self) -> None:
        """Refuse to go on when the folder may not be written.

        Raises:
            StorageError: it may not.
        """
        if self.read_only:
            raise StorageError(
                f"{self.folder} may not be written by this user, or lies on a read-only medium; nothing was changed; "
                "it can be read as it is; to change it, get the right to write, or copy the folder elsewhere"
            )

    def checkpoint(self, *, patient: bool = False) -> bool:
        """Move the log into the main file and empty it, so that deleted text is in neither.

        A long read is waited for: for a moment, or when ``patient`` as long as for another writer. False when it did
        not end; then the log is emptied at the next occasion.
        """
        if self.folder is None:
            return True
        if self.in_transaction:
            return False
        with self._lock.held(), self._errors():
            if not patient:
                self._writer.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_MS}")
            try:
                return bool(self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
            finally:
                if not patient:
                    self._writer.execute(f"PRAGMA busy_timeout = {round(1000 * self._patience_s)}")

    def rewrite(self, *, timeout_s: float | None = None) -> None:
        """Write all pages anew, so that nothing is left in them of what was deleted; ``timeout_s`` as in ``write``."""
        with self._lock.held(timeout_s), self._errors():
            self._writer.execute("VACUUM")

    def size_bytes(self) -> int:
        """Return the bytes of the database with its log; of its pages when it is in memory."""
        if self.folder is None:
            with self.read() as connection:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])
        names = (DATABASE_NAME, f"{DATABASE_NAME}-wal")
        return sum((self.folder / name).stat().st_size for name in names if (self.folder / name).exists())

    def close(self) -> None:
        """Close all connections; calling it again does nothing."""
        with self._guard:
            if self._closed or self._pid != os.getpid():
                return
            self._closed = True
            idle, self._idle = self._idle, []
        if self.folder is not None and self._writing is None and not self.read_only and not has_log(self._file):
            # Readers alone leave the index of the log behind; with a log it is not theirs to move that into the file.
            with suppress(sqlite3.Error):
                self._writer.execute("PRAGMA user_version")
        for connection in (*idle, *filter(None, [self._writing])):
            connection.close()

    # ---- below: connections and files

    @property
    def _file(self) -> Path:
        assert self.folder is not None
        return self.folder / DATABASE_NAME

    def _prepare(self, folder: Path, create: bool) -> None:
        if folder.exists() and not folder.is_dir():
            raise MemoryDamagedError(f"{folder} is a file and no memory; name a folder, or make one: fluxmem init")
        file = folder / DATABASE_NAME
        if file.exists():
            check_file(file)
            return
        if has_log(file):
            raise MemoryDamagedError(
                f"{file} is gone, but its log is still there; nothing was changed; bring the file back from a copy"
            )
        if not create:
            raise MemoryNotFoundError(f"there is no memory at {folder}; make one: fluxmem init --memory {folder}")
        make_folder(folder)

    def _migrate(self) -> None:
        """Bring an older memory to this version's tables, after a copy of it as it was."""
        version = self._writer.execute("PRAGMA user_version").fetchone()[0]
        if self.folder is not None and 0 < version < SCHEMA_VERSION:
            copy_of(self._writer, self.folder / f"memory.schema-{version}.sqlite3")
        migrate(self._writer)

    def drop_migration_copies(self) -> None:
        """Delete the copies that were made before the tables changed, since they hold what was forgotten since."""
        if self.folder is not None:
            for file in migration_copies(self.folder):
                file.unlink(missing_ok=True)

    def _create(self) -> None:
        # Under another name first: a crash half-way leaves no file that looks like a damaged memory.
        half = self._file.with_name(f"{DATABASE_NAME}.new")
        for leftover in (half, half.with_name(f"{half.name}-journal")):
            leftover.unlink(missing_ok=True)
        os.close(os.open(half, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        connection = sqlite3.connect(half, isolation_level=None)
        try:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            migrate(connection)
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
        os.replace(half, self._file)
        sync_folder(self._file.parent)

    @property
    def _writer(self) -> sqlite3.Connection:
        """The connection that writes; opened late, because its end moves the log into the file."""
        if self._writing is None:
            self._writing = self._kept(write_connection(None if self.folder is None else self._file, self._patience_s))
        return self._writing

    @property
    def _patience_s(self) -> float:
        return max(self._timeout_s, 1.0)

    def _kept(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        # Whoever drops a memory without closing it gets no leak, and no warning about one from Python 3.13 on.
        # Not at exit: a forked child must not close what its parent still uses.
        weakref.finalize(self, connection.close).atexit = False
        return connection

    def _take(self) -> sqlite3.Connection:
        with self._guard:
            if self._idle:
                return self._idle.pop()
        connection = read_connection(self._file, self._patience_s, read_only=self.read_only)
        return connection if isinstance(connection, OneRead) else self._kept(connection)

    def _give(self, connection: sqlite3.Connection) -> None:
        with self._guard:
            if not self._closed and not isinstance(connection, OneRead):
                self._idle.append(connection)
                return
        connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("this memory is closed; open it again")
        if self._pid != os.getpid():
            raise StorageError(
                "this memory was opened before the process forked, and SQLite connections do not survive that; "
                "open the memory again in the new process"
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with mapped_errors(self.folder, read_only=self.read_only):
            yield
