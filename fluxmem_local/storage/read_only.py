"""Reading a memory whose folder may not be written: an archive, a medium, somebody else's."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

__all__ = ["is_read_only", "resting", "uri_of"]


def is_read_only(file: Path) -> bool:
    """Tell whether a database is there, and it or its folder may not be written by this process."""
    return file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def resting(file: Path) -> tuple[int, int, int] | None:
    """Return what tells one state of the file from the next, or None while a writer has it open or left a log.

    SQLite reads a WAL database by its log and the index of that, and makes both where they are missing. Without the
    right to do so it can read the file alone, as one that nobody changes.
    """
    log, index = (file.with_name(f"{file.name}-{suffix}") for suffix in ("wal", "shm"))
    if index.exists() or (log.exists() and log.stat().st_size):
        return None
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def uri_of(file: Path, *, unchanging: bool = False, writes: bool = False) -> str:
    """Return the address by which SQLite opens a database that is there, for reading alone unless ``writes``."""
    return f"file:{quote(os.fsencode(file))}?mode={'rw' if writes else 'ro'}" + ("&immutable=1" if unchanging else "")
