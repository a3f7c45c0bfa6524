"""LayerIndex: one layer's vectors and words in memory, kept in step with the database."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from fluxmem_local.errors import MemoryDamagedError, StorageError
from fluxmem_local.index import HNSWVectorStore, LexicalIndex
from fluxmem_local.interfaces import BaseVectorStore
from fluxmem_local.storage.codec import vector_of
from fluxmem_local.storage.rows import generation_of, read_fact, set_fact, stored_dimension
from fluxmem_local.types import FloatArray, Layer

__all__ = ["LayerIndex"]

_BATCH = 1000
# float32 rounding of a vector that was normalised twice
_SAME = 1e-5
# Below this many vectors the store compares one by one, and reading rows is as fast as reading a file.
_WORTH_SAVING = 2000
_CHANGED_SHARE = 0.02
# From here on adding texts at once, which goes through all of them, is faster than one by one.
_MANY = 1000
_MANY_SHARE = 0.1


class LayerIndex:
    """The vector store and the lexical index of one layer.

    Each remembers the generation it shows and, before it is used, takes over the rows that changed since, whoever
    changed them. The caller holds ``lock`` and reads the database after taking it, so that an index never runs ahead.
    """

    def __init__(self, layer: Layer, file: Path | None, given: BaseVectorStore | None) -> None:
        self.layer = layer
        self.lock = threading.RLock()
        self.given = given
        self._file = file
        self._words_file = None if file is None else file.with_suffix(".words")
        self._vectors: BaseVectorStore | None = None
        self._words: LexicalIndex | None = None
        self._vectors_at = 0
        self._words_at = 0
        # Since the files were written
        self._num_changes = 0
        self._num_word_changes = 0

    def vectors(self, connection: sqlite3.Connection) -> BaseVectorStore:
        """Return the vector store as of the connection's state."""
        dimension = stored_dimension(connection)
        now = generation_of(connection)
        if self._vectors is None or (self.given is None and _dimension_of(self._vectors) not in (None, dimension)):
            self._vectors = self._first(connection, dimension)
        if now != self._vectors_at:
            self._catch_up(connection, self._vectors)
            self._vectors_at = now
        return self._vectors

    def loaded_vectors(self, connection: sqlite3.Connection) -> HNSWVectorStore | None:
        """Return the vector store as of the connection's state, when it is our own and in memory already."""
        store = None if self._vectors is None or self.given is not None else self.vectors(connection)
        return store if isinstance(store, HNSWVectorStore) else None

    def words(self, connection: sqlite3.Connection) -> LexicalIndex:
        """Return the lexical index as of the connection's state."""
        now = generation_of(connection)
        if self._words is None:
            self._words, self._words_at = self._first_words(connection)
        if now != self._words_at:
            self._follow_words(connection, self._words)
            self._words_at = now
        return self._words

    def follow_deletions(self, connection: sqlite3.Connection) -> None:
        """Take what was forgotten out of a given store, and out of what is in memory."""
        if self.given is not None or self._vectors is not None:
            self.vectors(connection)
        if self._words is not None:
            self.words(connection)

    def reset(self, connection: sqlite3.Connection) -> None:
        """Throw away what is in memory and in the file; a given store is emptied of this memory's nodes."""
        self._words = self._vectors = None
        self.drop_file()
        if self.given is not None:
            rows = connection.execute("SELECT id FROM nodes WHERE layer = ?", (str(self.layer),)).fetchall()
            self.given.delete([row["id"] for row in rows])

    def drop_file(self) -> None:
        """Delete the derived files.

        Raises:
            StorageError: it cannot be deleted.
        """
        for file in (self._file, self._words_file):
            try:
                if file is not None:
                    file.unlink(missing_ok=True)
            except NotADirectoryError:
                pass  # where its folder should be is a file, so it is not there
            except OSError as error:
                raise StorageError(
                    f"cannot delete {file}, which is to be made anew: {error.strerror}; move it away"
                ) from error

    def is_worth_saving(self, connection: sqlite3.Connection) -> bool:
        """Tell whether derived files would save time later."""
        return self._are_vectors_worth_saving(connection) or self._are_words_worth_saving(connection)

    def save(self, connection: sqlite3.Connection) -> None:
        """Write the derived files as of the connection's transaction, and note their checksums in the database.

        The caller holds the write lock: whoever forgets something next finds the files, and deletes them.
        """
        if self._file is None or self._words_file is None:
            return
        self._file.parent.mkdir(mode=0o700, exist_ok=True)
        store = self._vectors
        if self._are_vectors_worth_saving(connection) and isinstance(store, HNSWVectorStore):
            set_fact(connection, f"{self._note}:vectors", store.save(self._file, generation=self._vectors_at))
            self._num_changes = 0
        if self._are_words_worth_saving(connection) and self._words is not None:
            set_fact(connection, f"{self._note}:words", self._words.save(self._words_file, generation=self._words_at))
            self._num_word_changes = 0

    def _are_vectors_worth_saving(self, connection: sqlite3.Connection) -> bool:
        store = self._vectors
        if self._file is None or not isinstance(store, HNSWVectorStore) or store is self.given:
            return False
        self.vectors(connection)
        return _is_worth_saving(len(store), self._num_changes, self._file)

    def _are_words_worth_saving(self, connection: sqlite3.Connection) -> bool:
        if self._words is None or self._words_file is None:
            return False
        self.words(connection)
        return _is_worth_saving(len(self._words), self._num_word_changes, self._words_file)

    @property
    def _note(self) -> str:
        return f"derived:{self.layer}"

    def _first(self, connection: sqlite3.Connection, dimension: int | None) -> BaseVectorStore:
        """Return a store of the connection's state, or of an older one when the file is known to show that."""
        if self.given is None and self._file is not None and self._file.exists():
            # The database names the checksum of what was written from it. So the rows that changed since are all that
            # differ, also after an older copy of the database was put in its place.
            noted = read_fact(connection, f"{self._note}:vectors")
            with suppress(MemoryDamagedError, StorageError):
                if noted is not None:
                    noted_store, shown = HNSWVectorStore.load(self._file, noted=noted)
                    if noted_store.dimension == dimension:
                        self._vectors_at, self._num_changes = shown, 0
                        return noted_store
        store = self.given if self.given is not None else self._load(dimension)
        self._reconcile(connection, store)
        self._vectors_at = generation_of(connection)
        return store

    def _first_words(self, connection: sqlite3.Connection) -> tuple[LexicalIndex, int]:
        """Return the words and their generation: those of the file when it is known to show an older state, or none."""
        noted = read_fact(connection, f"{self._note}:words")
        if noted is not None and self._words_file is not None and self._words_file.exists():
            with suppress(MemoryDamagedError):
                words, shown = LexicalIndex.load(self._words_file, noted=noted)
                self._num_word_changes = 0
                return words, shown
        return LexicalIndex(), -1

    def _follow_words(self, connection: sqlite3.Connection, words: LexicalIndex) -> None:
        since = (str(self.layer), self._words_at)
        words.delete(self._deleted_since(connection, self._words_at))
        count = connection.execute("SELECT COUNT(*) FROM nodes WHERE layer = ? AND rev > ?", since).fetchone()[0]
        rows = (
            (row["id"], row["terms"].split("\n") if row["terms"] else [])
            for row in connection.execute("SELECT id, terms FROM nodes WHERE layer = ? AND rev > ?", since)
        )
        if count > max(_MANY, _MANY_SHARE * len(words)):
            words.extend(rows)
        else:
            for id, terms in rows:
                words.add(id, terms)
        self._num_word_changes += count

    def _load(self, dimension: int | None) -> HNSWVectorStore:
        if self._file is not None and self._file.exists():
            # The file is a cache: whatever is wrong with it, the rows are there.
            with suppress(MemoryDamagedError, StorageError):
                store, _ = HNSWVectorStore.load(self._file)
                if store.dimension == dimension:
                    return store
        return HNSWVectorStore(dimension)

    def _reconcile(self, connection: sqlite3.Connection, store: BaseVectorStore) -> None:
        """Compare a store of unknown state with every row; a file's stamp may lie, as after a restored copy."""
        ours: set[str] = set()
        was_empty = len(store) == 0
        self._num_changes = 0
        for ids, matrix in self._embedded_since(connection, -1):
            ours.update(ids)
            differing = list(range(len(ids)))
            if not was_empty:
                held = [store.get_vector(id) for id in ids]
                differing = [
                    place
                    for place, vector in enumerate(held)
                    if vector is None or not np.allclose(vector, matrix[place], atol=_SAME)
                ]
            if differing:
                store.add([ids[place] for place in differing], matrix[differing])
                self._num_changes += len(differing)
        if isinstance(store, HNSWVectorStore):
            foreign = [id for id in store.ids if id not in ours]
            store.delete(foreign)
            self._num_changes += len(foreign)

    def _catch_up(self, connection: sqlite3.Connection, store: BaseVectorStore) -> None:
        since = self._vectors_at
        bare = connection.execute(
            "SELECT id FROM nodes WHERE layer = ? AND rev > ? AND embedding IS NULL", (str(self.layer), since)
        ).fetchall()
        gone = [*self._deleted_since(connection, since), *(row["id"] for row in bare)]
        if gone:
            store.delete(gone)
            self._num_changes += len(gone)
        for ids, matrix in self._embedded_since(connection, since):
            store.add(ids, matrix)
            self._num_changes += len(ids)

    def _deleted_since(self, connection: sqlite3.Connection, since: int) -> list[str]:
        rows = connection.execute("SELECT id FROM deleted WHERE layer = ? AND rev > ?", (str(self.layer), since))
        return [row["id"] for row in rows.fetchall()]

    def _embedded_since(self, connection: sqlite3.Connection, since: int) -> Iterator[tuple[Sequence[str], FloatArray]]:
        cursor = connection.execute(
            "SELECT id, embedding, vector_sum FROM nodes WHERE layer = ? AND rev > ? AND embedding IS NOT NULL "
            "ORDER BY rev, key",
            (str(self.layer), since),
        )
        while rows := cursor.fetchmany(_BATCH):
            yield (
                [row["id"] for row in rows],
                np.stack([vector for row in rows if (vector := vector_of(row)) is not None]),
            )


def _dimension_of(store: BaseVectorStore) -> int | None:
    return store.dimension if isinstance(store, HNSWVectorStore) else None


def _is_worth_saving(count: int, num_changes: int, file: Path) -> bool:
    return count >= _WORTH_SAVING and (num_changes >= _CHANGED_SHARE * count or not file.exists())
