"""Waiting in line: whoever asked first gets a lock first, among threads and among processes."""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["ProcessLine", "ThreadTurns"]

_PREFIX = "write.turn."


class ThreadTurns:
    """A lock that threads get in the order in which they asked for it; its holder may take it again.

    ``depth`` says how often the holder has it.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[tuple[threading.Thread, threading.Event]] = deque()
        self._holder: threading.Thread | None = None
        self.depth = 0

    @property
    def holder(self) -> str:
        """The name of the thread that has it now."""
        holder = self._holder
        return holder.name if holder is not None else "another thread"

    def acquire(self, timeout_s: float) -> bool:
        """Wait for the turn of this thread; False when it did not come in time."""
        mine, turn = threading.current_thread(), threading.Event()
        with self._guard:
            if self._holder in (None, mine):
                self._holder = mine
                self.depth += 1
                return True
            self._waiting.append((mine, turn))
        came = False
        try:
            came = turn.wait(timeout_s)
        finally:
            with self._guard:
                if not turn.is_set():
                    self._waiting.remove((mine, turn))
                elif not came:
                    # It came between the end of the waiting and here, or an interrupt ended the waiting.
                    self._hand_on()
        return came

    def release(self) -> None:
        """Give it back, to the next in line."""
        with self._guard:
            self.depth -= 1
            if self.depth == 0:
                self._hand_on()

    def _hand_on(self) -> None:
        if not self._waiting:
            self._holder, self.depth = None, 0
            return
        self._holder, turn = self._waiting.popleft()
        self.depth = 1
        turn.set()


class ProcessLine:
    """The line of those who wait in different processes: a file for each, locked by it and named by when it came.

    The system lets the lock of a process that died go, so that it holds up nobody.
    """

    _numbers = itertools.count()

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def is_empty(self) -> bool:
        """Tell whether nobody waits."""
        return not self._names()

    @contextmanager
    def joined(self) -> Iterator[str | None]:
        """Stand in line; the place is None where the disk has no room for it, and then nobody stands before it."""
        name = f"{_PREFIX}{time.time_ns():020d}.{os.getpid()}.{next(self._numbers)}"
        file = self._folder / name
        # Under another name until it is locked: else it would look like that of a dead process.
        half = file.with_name(f".{name}")
        try:
            handle = os.open(half, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except OSError:
            yield None
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(half, file)
            yield name
        finally:
            for each in (half, file):
                each.unlink(missing_ok=True)
            os.close(handle)

    def is_first(self, name: str | None) -> bool:
        """Tell whether nobody who lives came before."""
        return name is None or not any(self._lives(each) for each in self._names() if each < name)

    def _names(self) -> list[str]:
        return sorted(each for each in os.listdir(self._folder) if each.startswith(_PREFIX))

    def _lives(self, name: str) -> bool:
        file = self._folder / name
        try:
            handle = os.open(file, os.O_RDWR)
        except OSError:
            return False  # it has just left the line
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            with suppress(OSError):
                file.unlink()
            return False
        finally:
            os.close(handle)
