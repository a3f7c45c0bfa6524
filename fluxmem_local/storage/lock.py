"""WriterLock: one writer at a time, across threads and processes."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from fluxmem_local.errors import MemoryLockedError, StorageError

__all__ = ["WriterLock"]

_POLL_S = 0.01


class WriterLock:
    """The right to write into one memory; the same thread may take it again inside itself.

    ``folder`` None guards a memory that only this process has. Beside the lock file stands a note that says who holds
    it, for the message that a waiting writer gets in the end.
    """

    def __init__(self, folder: Path | None, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._threads = threading.RLock()
        self._depth = 0
        self._note = folder / "write.holder.json" if folder else None
        self._file = filelock.FileLock(folder / "write.lock", mode=0o600, thread_local=False) if folder else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock.

        Raises:
            MemoryLockedError: another writer held it for the whole waiting time.
        """
        deadline = time.monotonic() + self._timeout_s
        if not self._threads.acquire(timeout=self._timeout_s):
            raise MemoryLockedError(
                f"another thread of this program is still writing after {self._timeout_s:g} s; "
                "let its transaction end, or raise lock_timeout_s"
            )
        try:
            if self._depth == 0:
                self._take_file(max(0.0, deadline - time.monotonic()))
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0 and self._file is not None:
                    self._file.release()
        finally:
            self._threads.release()

    def _take_file(self, timeout_s: float) -> None:
        if self._file is None or self._note is None:
            return
        try:
            self._file.acquire(timeout=timeout_s, poll_interval=_POLL_S)
        except filelock.Timeout:
            raise MemoryLockedError(
                f"{self._note.parent} is being written by {self._holder()}; waited {self._timeout_s:g} s; "
                "let that program end, or raise lock_timeout_s"
            ) from None
        except OSError as error:
            raise StorageError(
                f"cannot lock {self._note.parent}: {error.strerror or error}; "
                "check that the folder is there, belongs to you and is writable"
            ) from error
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        note = {"pid": os.getpid(), "host": socket.gethostname(), "program": sys.argv[0] or "python", "since": since}
        try:
            with open(os.open(self._note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(note, file)
        except OSError as error:
            self._file.release()
            raise StorageError(
                f"cannot write {self._note}: {error.strerror or error}; free some space or check the folder's rights"
            ) from error

    def _holder(self) -> str:
        assert self._note is not None
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            return f"process {note['pid']} ({note['program']}) on {note['host']} since {note['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"
