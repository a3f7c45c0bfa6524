"""Backup and restore: a memory's one committed state as a memory of its own in another folder."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fluxmem_local.errors import InvalidInputError, MemoryNotFoundError

from .database import DATABASE_NAME, Database
from .database_file import check_file, copy_of, log_of, make_folder
from .read_only import resting, uri_of
from .schema import check_version
from .sqlite_errors import mapped_errors

__all__ = ["BackupReport", "back_up", "empty_place", "restore"]

_SETTINGS_NAME = "fluxmem.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """What a backup or a restored memory holds, and where it lies."""

    path: str
    num_nodes: int
    num_edges: int
    size_bytes: int


def back_up(database: Database, folder: Path) -> BackupReport:
    """Copy what is committed now into an empty place, while others go on reading and writing.

    Raises:
        InvalidInputError: there is a memory already, or the call came inside a transaction.
        StorageError: the place cannot be written, or is full.
    """
    if database.in_transaction:
        raise InvalidInputError("a backup is of a committed state; make it after the transaction has ended")
    file = empty_place(folder)
    with database.read() as connection:
        copy_of(connection, file, renew=True)
    _copy_settings(database.folder, folder)
    return _report(folder)


def restore(backup: Path, folder: Path) -> BackupReport:
    """Make a memory in an empty place from a backup, which stays as it is.

    Raises:
        InvalidInputError: there is a memory already.
        MemoryNotFoundError: there is no backup.
        MemoryDamagedError: the backup is damaged; nothing was made.
        SchemaVersionError: a newer version of this package wrote it; nothing was made.
        StorageError: the place cannot be written, or is full.
    """
    source = backup / DATABASE_NAME
    if not source.exists():
        raise MemoryNotFoundError(f"there is no memory at {backup}; name a folder that `fluxmem backup` wrote")
    check_file(source)
    file = empty_place(folder)
    with (
        mapped_errors(backup),
        closing(sqlite3.connect(uri_of(source, unchanging=resting(source) is not None), uri=True)) as connection,
    ):
        check_version(connection)
        copy_of(connection, file, renew=True)
    _copy_settings(backup, folder)
    return _report(folder)


def empty_place(folder: Path) -> Path:
    """Make a folder for a new memory, and return the name of its database.

    Raises:
        InvalidInputError: a memory, or what is left of one, or a file is there.
        StorageError: the folder cannot be made.
    """
    file = folder / DATABASE_NAME
    if (folder.exists() and not folder.is_dir()) or file.exists() or log_of(file).exists():
        raise InvalidInputError(f"{folder} is not empty: nothing there was changed; name a folder without a memory")
    make_folder(folder)
    return file


def _copy_settings(source: Path | None, folder: Path) -> None:
    """Take the settings along, since results depend on them, unless there are some."""
    if source is None or not (source / _SETTINGS_NAME).exists() or (folder / _SETTINGS_NAME).exists():
        return
    target = folder / _SETTINGS_NAME
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    shutil.copyfile(source / _SETTINGS_NAME, target)


def _report(folder: Path) -> BackupReport:
    file = folder / DATABASE_NAME
    with closing(sqlite3.connect(uri_of(file, unchanging=True), uri=True)) as connection:
        nodes, edges = (
            connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in ("nodes", "edges")
        )
    return BackupReport(path=str(folder), num_nodes=nodes, num_edges=edges, size_bytes=file.stat().st_size)
