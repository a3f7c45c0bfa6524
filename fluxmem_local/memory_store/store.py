"""MemoryStore: one memory, durable in a folder or living in this process only."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fluxmem_local.errors import (
    DimensionError,
    EmbedderMismatchError,
    FluxMemError,
    InvalidInputError,
    MemoryDamagedError,
    StorageError,
)
from fluxmem_local.graph import Node
from fluxmem_local.interfaces import BaseVectorStore
from fluxmem_local.storage import backup, portable
from fluxmem_local.storage.checks import check_folder
from fluxmem_local.storage.database import Database
from fluxmem_local.storage.rows import generation_of, mismatch_message, next_generation, read_fact, set_fact
from fluxmem_local.storage.times import Time
from fluxmem_local.text import TOKENIZER_VERSION, tokenize
from fluxmem_local.types import FloatArray, Layer, Scope

from . import reembedding
from .forgetting import Selection, forget
from .layer_index import LayerIndex
from .purging import is_pending, purge
from .reader import DERIVED, MemoryReader
from .receipts import Receipt, VerifyReport
from .transaction import Transaction

if TYPE_CHECKING:
    from fluxmem_local.storage.salvage import Salvaged
from .verification import verify

__all__ = ["MemoryStore"]

# A commit of so many nodes is most often one of several; linking their vectors takes a second.
_MANY_ADDED = 1000
# A file that can be made anew is not worth a long wait for another writer.
_SAVING_PATIENCE_S = 1.0


class MemoryStore(MemoryReader):
    """Nodes, edges and what is known of them, with search by vector and by word; open one with ``open``.

    Writes are all or nothing, and one at a time across threads and processes.
    """

    def __init__(
        self, database: Database, embedder: str | None, vector_stores: Mapping[Layer, BaseVectorStore] | None
    ) -> None:
        super().__init__(database, embedder, vector_stores or {})
        self._following: threading.Thread | None = None
        self._forgot = False
        self._purging = False
        self._looked_for_dead_tasks = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None,
        *,
        dimension: int | None = None,
        fingerprint: str | None = None,
        create: bool = True,
        accept_other_embedder: bool = False,
        lock_timeout_s: float = 30.0,
        vector_stores: Mapping[Layer, BaseVectorStore] | None = None,
    ) -> MemoryStore:
        """Open the memory in a folder, or a new one in this process only (``path`` None).

        Args:
            path: the folder.
            dimension: the vectors' size; None: read from the memory, or from the first vector.
            fingerprint: of the embedder; None: there is none, and nodes may be added without a vector.
            create: make the memory when there is none.
            accept_other_embedder: open it although another embedder wrote it, to re-embed it.
            lock_timeout_s: how long a writer waits for another one.
            vector_stores: the user's own stores by layer; they are filled and kept.

        Raises:
            MemoryNotFoundError: there is none, and ``create`` is False.
            MemoryDamagedError: the database is damaged, or is none of ours; it is left as it is.
            SchemaVersionError: a newer version of this package wrote it.
            EmbedderMismatchError: another embedder wrote it.
            DimensionError: a given store says that its vectors have another size.
        """
        for layer, given in (vector_stores or {}).items():
            size = getattr(given, "dimension", None)
            if isinstance(size, int) and dimension is not None and size != dimension:
                raise DimensionError(
                    f"the given {layer} vector store is for vectors of {size}, the embedder makes {dimension}; "
                    f"give a store of {dimension}"
                )
        folder = None if path is None else check_folder(path)
        database = Database(folder, create=create, lock_timeout_s=lock_timeout_s)
        try:
            store = cls(database, fingerprint, vector_stores)
            store._settle(dimension, fingerprint, accept_other_embedder)
            store._resume_purge()
        except BaseException:
            database.close()
            raise
        return store

    @classmethod
    def salvage(cls, path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Salvaged:
        """Copy what can be read of a damaged memory into a new one at ``target``; the damaged one is only read.

        Raises:
            MemoryNotFoundError: there is no memory at ``path``.
            MemoryDamagedError: nothing of it can be read; nothing was made.
            InvalidInputError: there is a memory at ``target``.
            StorageError: a file cannot be read, or the target not be written.
        """
        # Here, because it is needed once in a memory's life, if ever.
        from fluxmem_local.storage.salvage import salvage

        salvaged = salvage(check_folder(path), check_folder(target))
        with cls.open(target, create=False) as store:
            store.verify(fix=True)
        return salvaged

    @property
    def database(self) -> Database:
        """Return the database, for export and import."""
        return self._database

    def close(self) -> None:
        """Save derived files when that is worth it, and close; calling it again does nothing."""
        self._close(save=True)

    def _close(self, *, save: bool) -> None:
        if self._database.closed:
            return
        if self._following is not None:
            self._following.join()
        try:
            for index in self._indices.values() if save else ():
                self._save(index)
        finally:
            self._database.close()

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What is damaged is left as it is.
        self._close(save=not isinstance(error, MemoryDamagedError))

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Make changes that are stored together when the block ends, or not at all when it raises.

        Inside another transaction of the same thread it becomes a part of that one.

        Raises:
            MemoryLockedError: another writer held the memory for the whole waiting time.
        """
        self._end_dead_tasks()
        joined = self._database.in_transaction
        with self._database.write() as connection:
            if not joined:
                self._begun_at = generation_of(connection)
            changes = Transaction(self._database, connection, self._embedder)
            yield changes
        self._clear_traces()
        self._fill_given_stores()
        if changes.num_added >= _MANY_ADDED:
            self._follow_soon()

    def forget(
        self,
        *,
        ids: Sequence[str] | None = None,
        source: str | None = None,
        filters: Mapping[str, Any] | None = None,
        scope: Scope | None = None,
        before: Time | None = None,
        dry_run: bool = False,
        purge: bool = False,
        quotes_too: bool = True,
    ) -> Receipt:
        """Delete nodes by id, or by source, filters, scope (its named parts) and age, for good.

        With them go their edges, outcomes, vectors, words, history and reshaped versions, what edits, episodes, skills
        and histories quote of them, and skills that were distilled from them alone. A fact that another source states
        too stays. ``before`` is a time: what was stored before it is meant. ``dry_run`` only says what would happen.
        ``purge`` leaves no byte of it in any file; alone it does so for what was forgotten before. ``quotes_too`` False
        leaves quotes where they are, as for what is outdated and not secret.

        Raises:
            InvalidInputError: nothing was given, ids together with something else, or a source together with filters.
            NotFoundError: an unknown id, or a source, scope, filters or age without nodes.
        """
        self._database.check_writable()
        what = Selection(ids=ids, source=source, filters=filters, scope=scope, before=before)
        if purge and what.is_empty:
            return Receipt(purged=None if dry_run else self._purge())
        if not dry_run:
            self._end_dead_tasks()
            # Before the commit, so that a crash right after it leaves no vector of what was forgotten.
            for index in self._indices.values():
                index.drop_file()
        receipt = forget(self._database, self._embedder, what, dry_run=dry_run, purge=purge, quotes_too=quotes_too)
        if not dry_run:
            self._forgot = True
            self._purging = self._purging or purge
            self._clear_traces()
            if purge:
                receipt = replace(receipt, purged=self._database.folder is None or not is_pending(self._database))
        return receipt

    def verify(self, *, fix: bool = False) -> VerifyReport:
        """Check every rule of the graph and that the indices show exactly what the database holds.

        With ``fix``, derived data is rebuilt and rows that lead nowhere are removed; content is never touched.
        """
        self._refuse_inside_transaction("verify")
        if fix:
            self._end_dead_tasks()
        return verify(self._database, self._indices, fix=fix)

    def rebuild_indices(self) -> None:
        """Make words and indices anew from the stored content."""
        self._refuse_inside_transaction("rebuild_indices")
        self._retokenize()
        for index in self._indices.values():
            with self._searching(index.layer) as (_, connection, _dirty):
                index.reset(connection)
        self._fill_given_stores()

    def begin_reembedding(self, fingerprint: str, dimension: int) -> None:
        """Begin to gather the vectors of another embedder, or go on; until ``end_reembedding`` the old ones are used.

        Raises:
            InvalidInputError: ``dimension`` is no vector size.
        """
        if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
            raise InvalidInputError(f"dimension={dimension!r} is no vector size; give a whole number of at least 1")
        with self._database.write() as connection:
            reembedding.begin(connection, fingerprint, dimension)

    def reembed(self, nodes: Sequence[Node], vectors: FloatArray) -> None:
        """Keep the coming embedder's vectors, shape ``(n, d)``, of n nodes as they were read.

        Raises:
            DimensionError: vectors of the wrong size, with NaN or infinity, or of length zero.
            InvalidInputError: no re-embedding is under way.
        """
        with self._database.write() as connection:
            reembedding.keep_vectors(connection, nodes, vectors, self._underway(connection).dimension)

    def end_reembedding(self) -> bool:
        """Let the new vectors take the place of the old ones, all at once; False when some are missing still.

        Raises:
            InvalidInputError: no re-embedding is under way.
        """
        with self._database.write() as connection:
            underway = self._underway(connection)
            done = reembedding.swap(connection, underway.fingerprint, underway.dimension)
        if done:
            self._embedder = underway.fingerprint
            self._fill_given_stores()
        return done

    def backup(self, path: str | os.PathLike[str]) -> backup.BackupReport:
        """Copy what is committed now into a folder without a memory, while others go on reading and writing.

        Raises:
            InvalidInputError: there is a memory already, or the call came inside a transaction.
            StorageError: the place cannot be written, or is full.
        """
        return backup.back_up(self._database, check_folder(path))

    def export_lines(self) -> Iterator[str]:
        """Write the whole memory as JSON Lines; see ``storage/portable.py`` for the form."""
        return portable.export_lines(self)

    def import_lines(self, lines: Iterable[str]) -> portable.ImportReport:
        """Take in what ``export_lines`` wrote, all or nothing; what is there already is not doubled.

        Raises:
            ImportFormatError: a line that cannot be read; the message gives its number.
        """
        self._end_dead_tasks()
        return portable.import_lines(self, lines)

    def _settle(self, dimension: int | None, fingerprint: str | None, accept_other: bool) -> None:
        """Compare embedder and tokenizer with what the memory was written with; write only what is new."""
        stored = self.fingerprint
        size = self.dimension
        if fingerprint is not None and stored not in (None, fingerprint) and not accept_other:
            raise EmbedderMismatchError(mismatch_message(str(stored), fingerprint))
        if dimension is not None and size not in (None, dimension) and not accept_other:
            raise EmbedderMismatchError(
                mismatch_message(
                    f"{stored or 'an embedder'} of {size} numbers", f"{fingerprint or 'one'} of {dimension}"
                )
            )
        new = [
            (key, value)
            for key, value, known in (("fingerprint", fingerprint, stored), ("dimension", dimension, size))
            if value is not None and known is None
        ]
        if new and not self._database.read_only:
            with self._database.write() as connection:
                self._check_before_settling(connection)
                connection.executemany(
                    "INSERT OR IGNORE INTO meta VALUES (?, ?)", [(key, str(value)) for key, value in new]
                )
            return self._settle(dimension, fingerprint, accept_other)
        if self._tokenizer() != str(TOKENIZER_VERSION):
            self._retokenize()
        return None

    def _check_before_settling(self, connection: sqlite3.Connection) -> None:
        """Refuse to write into a memory that lacks a fact about itself because it is damaged."""
        wrong = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if wrong != "ok":
            raise sqlite3.DatabaseError(f"malformed: {wrong}")

    def _retokenize(self) -> None:
        with self._database.write() as connection:
            self._check_before_settling(connection)
            revision = next_generation(connection)
            for row in connection.execute("SELECT key, content FROM nodes").fetchall():
                connection.execute(
                    "UPDATE nodes SET terms = ?, rev = ? WHERE key = ?",
                    ("\n".join(tokenize(row["content"])), revision, row["key"]),
                )
            set_fact(connection, "tokenizer", str(TOKENIZER_VERSION))

    def _underway(self, connection: sqlite3.Connection) -> reembedding.Coming:
        underway = reembedding.coming(connection)
        if underway is None:
            raise InvalidInputError("no re-embedding is under way; begin one: begin_reembedding")
        return underway

    def _refuse_inside_transaction(self, verb: str) -> None:
        if self._database.in_transaction:
            raise InvalidInputError(f"{verb} looks at committed states; call it after the transaction has ended")

    def _clear_traces(self) -> None:
        """Take what was forgotten out of derived files, given stores and the log, once that is committed."""
        if not self._forgot or self._database.in_transaction:
            return
        self._forgot = False
        self._database.drop_migration_copies()
        for index in self._indices.values():
            index.drop_file()
            with self._searching(index.layer) as (_, connection, _dirty):
                index.follow_deletions(connection)
        if self._purging:
            self._purge()
        else:
            self._database.checkpoint()

    def _purge(self, *, patient: bool = True) -> bool:
        self._refuse_inside_transaction("purge")
        self._purging = False
        return purge(self._database, None if self.path is None else self.path / DERIVED, patient=patient)

    def _resume_purge(self) -> None:
        """Finish what a crash or a reader kept from being finished; whoever opens the memory need not wait for it.

        Another writer or a full disk put it off again, and `verify` tells of it.
        """
        if not self._database.read_only and is_pending(self._database):
            with suppress(StorageError):
                self._purge(patient=False)

    def _follow_soon(self) -> None:
        """Let the vectors of a large commit be linked while the next is made: hnswlib leaves Python free to go on."""
        if self.path is None or (self._following is not None and self._following.is_alive()):
            return
        self._following = threading.Thread(target=self._follow, name="fluxmem-index", daemon=True)
        self._following.start()

    def _follow(self) -> None:
        for index in self._indices.values():
            # Whoever searches next meets the same error, and can do something about it.
            with suppress(FluxMemError, OSError), self._searching(index.layer) as (_, connection, _dirty):
                index.vectors(connection)

    def _fill_given_stores(self) -> None:
        """Bring the user's own stores up to date at once: whoever gave them may look into them."""
        if self._database.in_transaction:
            return
        for index in self._indices.values():
            if index.given is not None:
                with self._searching(index.layer) as (_, connection, _dirty):
                    index.vectors(connection)

    def _end_dead_tasks(self) -> None:
        """End what killed processes left running, once: before this store's first change."""
        if self._looked_for_dead_tasks or self._database.in_transaction:
            return
        if self.dead_tasks(now=time.time())[0]:
            with self._database.write() as connection:
                # Another process may have ended them meanwhile.
                dead, _ = self.dead_tasks(now=time.time())
                Transaction(self._database, connection, self._embedder).end_tasks(list(dead))
        self._looked_for_dead_tasks = True

    def _tokenizer(self) -> str | None:
        with self._database.read() as connection:
            return read_fact(connection, "tokenizer")

    def _save(self, index: LayerIndex) -> None:
        if self._database.read_only:
            return
        try:
            with self._searching(index.layer) as (_, connection, _dirty):
                if not index.is_worth_saving(connection):
                    return
            with self._database.write(timeout_s=_SAVING_PATIENCE_S) as connection, index.lock:
                index.save(connection)
        except (OSError, StorageError) as error:
            # The file is a cache; a damaged database, though, is news that must not be lost.
            if isinstance(error, MemoryDamagedError):
                raise
