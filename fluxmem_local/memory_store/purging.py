"""Purging: no byte of what was forgotten is left in any file of the memory."""

from __future__ import annotations

import shutil
from pathlib import Path

from fluxmem_local.storage.database import Database
from fluxmem_local.storage.database_file import leftovers
from fluxmem_local.storage.rows import read_fact

from .removal import PURGE_PENDING

__all__ = ["is_pending", "purge"]

# How long another writer is waited for by who did not ask for a purge.
_MOMENT_S = 0.1


def is_pending(database: Database) -> bool:
    """Tell whether something was forgotten of which bytes may still be in the files."""
    with database.read() as connection:
        return read_fact(connection, PURGE_PENDING) is not None


def purge(database: Database, derived: Path | None, *, patient: bool) -> bool:
    """Delete the derived files and unfinished copies, write the database anew, and empty its log.

    Killed at any point, it can be done again. False while another process still reads an older state, for which that
    has to be kept; ``patient`` waits for it as long as for another writer.

    Raises:
        MemoryLockedError: another writer held the memory for the whole waiting time.
        StorageError: the disk is full; what was there is unchanged.
    """
    if database.folder is None:
        return True
    if derived is not None:
        shutil.rmtree(derived, ignore_errors=True)
    database.drop_migration_copies()
    for file in leftovers(database.folder):
        file.unlink(missing_ok=True)
    # Pages that are full of zeros where a row was may still hold older copies of it: SQLite moves rows about.
    database.rewrite(timeout_s=None if patient else _MOMENT_S)
    if not database.checkpoint(patient=patient):
        return False
    with database.write() as connection:
        connection.execute("DELETE FROM meta WHERE key = ?", (PURGE_PENDING,))
    return True
