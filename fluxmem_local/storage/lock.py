"""WriterLock: one writer at a time, across threads and processes, in the order in which they came."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fluxmem_local.errors import MemoryLockedError, StorageError

from .turns import ProcessLine, ThreadTurns

__all__ = ["WriterLock"]

# How often the first in line looks, who may write next, and how often the others do.
_FIRST_S, _OTHERS_S = 0.001, 0.01
_LONGEST_PROGRAM = 100
# The note is overwritten in one go and keeps its size, so that nobody reads half of one, and a full disk has room.
_NOTE_BYTES = 1024


class WriterLock:
    """The right to write into one memory; the same thread may take it again inside itself.

    ``folder`` None guards a memory that only this process has. Beside the lock file stands a note that says who holds
    it, for the message that a waiting writer gets in the end. The lock of a process that died is free.
    """

    def __init__(self, folder: Path | None, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._threads = ThreadTurns()
        self._folder = folder
        self._handle = -1

    @contextmanager
    def held(self, timeout_s: float | None = None) -> Iterator[None]:
        """Hold the lock; ``timeout_s`` None waits as long as this lock does.

        Raises:
            MemoryLockedError: another writer held it for the whole waiting time.
        """
        patience_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + patience_s
        if not self._threads.acquire(patience_s):
            raise MemoryLockedError(
                f"thread {self._threads.holder!r} of this program is still writing after {patience_s:g} s; "
                "let its transaction end, or raise lock_timeout_s"
            )
        try:
            outermost = self._threads.depth == 1
            if outermost:
                self._take_file(deadline)
            try:
                yield
            finally:
                if outermost and self._folder is not None:
                    os.close(self._handle)
        finally:
            self._threads.release()

    def _take_file(self, deadline: float) -> None:
        if self._folder is None:
            return
        try:
            self._wait_in_line(ProcessLine(self._folder), deadline)
        except OSError as error:
            raise StorageError(
                f"cannot lock {self._folder}: {error.strerror or error}; "
                "check that the folder is there, belongs to you and is writable"
            ) from error
        try:
            self._write_note()
        except OSError as error:
            os.close(self._handle)
            raise StorageError(
                f"cannot write {self._note}: {error.strerror or error}; free some space or check the folder's rights"
            ) from error

    def _wait_in_line(self, line: ProcessLine, deadline: float) -> None:
        if line.is_empty() and self._is_free():
            return
        with line.joined() as place:
            while not ((first := line.is_first(place)) and self._is_free()):
                if time.monotonic() >= deadline:
                    raise MemoryLockedError(
                        f"{self._folder} is being written by {self._holder()}; waited {self._timeout_s:g} s; "
                        "let that program end, or raise lock_timeout_s"
                    )
                time.sleep(_FIRST_S if first else _OTHERS_S)

    def _is_free(self) -> bool:
        """Take the lock when nobody has it; closing the handle lets it go."""
        assert self._folder is not None
        handle = os.open(self._folder / "write.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._handle = handle
        return True

    @property
    def _note(self) -> Path:
        assert self._folder is not None
        return self._folder / "write.holder.json"

    def _write_note(self) -> None:
        note = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "program": (sys.argv[0] or "python")[-_LONGEST_PROGRAM:],
            "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        }
        handle = os.open(self._note, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(handle, json.dumps(note).encode().ljust(_NOTE_BYTES), 0)
            os.ftruncate(handle, _NOTE_BYTES)
        finally:
            os.close(handle)

    def _holder(self) -> str:
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            return f"process {note['pid']} ({note['program']}) on {note['host']} since {note['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"
