"""SQLite's errors as ours: which of them mean damage, a lock, a full disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fluxmem_local.errors import InvalidInputError, MemoryDamagedError, MemoryLockedError, StorageError

__all__ = ["REMEDY", "mapped_errors"]

REMEDY = "bring it back from a backup (fluxmem restore), or copy out what can be read: fluxmem verify --salvage DIR"
_DAMAGE = (
    *("malformed", "not a database", "no such table", "no such column", "database corruption"),
    *("could not decode", "file is encrypted"),
)
_LONGEST = 200


@contextmanager
def mapped_errors(folder: Path | None, *, read_only: bool = False) -> Iterator[None]:
    """Turn SQLite's errors about the memory in a folder, or in RAM, into ours; the one place that does."""
    where = folder or "the memory"
    try:
        yield
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{error.object!r:.200} holds half a surrogate pair at character {error.start}, and no stored text "
            "does; decode it first"
        ) from error
    except sqlite3.DatabaseError as error:
        text = str(error)[:_LONGEST]
        if isinstance(error, sqlite3.IntegrityError):
            raise InvalidInputError(f"{text}; the database refused it and nothing was stored") from error
        if any(sign in text.lower() for sign in _DAMAGE):
            raise MemoryDamagedError(
                f"the database in {where} is damaged ({text}); nothing was overwritten; {REMEDY}"
            ) from error
        if "locked" in text or "busy" in text:
            raise MemoryLockedError(f"{where} is locked by another program ({text}); let it end, then retry") from error
        if read_only:
            raise StorageError(
                f"{where} cannot be read where it may not be written ({text}): it was not closed, and its last "
                "changes are still in its log; copy the folder to where you may write, and open it there"
            ) from error
        raise StorageError(
            f"{where} cannot be read or written ({text}); check free space and the folder's rights, then retry"
        ) from error
