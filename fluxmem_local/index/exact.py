"""ExactVectorStore: every vector in one matrix, compared with every query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fluxmem_local.errors import DimensionError, InvalidInputError
from fluxmem_local.interfaces import BaseVectorStore
from fluxmem_local.types import FloatArray

from .order import best_first, check_top_k

__all__ = ["ExactVectorStore"]

# float32 unit vectors carry about seven digits; equal vectors must tie, whatever the order of summing.
DIGITS = 6


def _numbers(values: FloatArray) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DimensionError(
            "the vectors are no array of numbers of equal length; give float32, shape (n, d)"
        ) from error


class ExactVectorStore(BaseVectorStore):
    """Vectors with exact search by cosine similarity; the size is fixed by the first vector if not given."""

    def __init__(self, dimension: int | None = None) -> None:
        if dimension is not None and (isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1):
            raise DimensionError(
                f"dimension={dimension!r} is no vector size; give a whole number of at least 1, or None"
            )
        self._dimension = dimension
        self._matrix: FloatArray = np.empty((0, dimension or 0), dtype=np.float32)
        self._ids: list[str] = []
        self._row_of: dict[str, int] = {}
        self._lock = threading.RLock()

    @classmethod
    def of_unit(cls, ids: list[str], vectors: FloatArray) -> ExactVectorStore:
        """Make a store of ids and vectors that one had, shape ``(n, d)``; they are taken over as they are."""
        store = cls(vectors.shape[1] or None)
        store._ids, store._matrix = ids, vectors
        store._row_of = {id: row for row, id in enumerate(ids)}
        return store

    @property
    def dimension(self) -> int | None:
        """Return the size of the vectors, or None before the first one."""
        return self._dimension

    @property
    def ids(self) -> list[str]:
        """Return all ids, in the order of their rows."""
        with self._lock:
            return list(self._ids)

    def check(self, ids: Sequence[str], vectors: FloatArray) -> FloatArray:
        """Return the vectors, shape ``(n, d)``, at unit length, and change nothing.

        Raises:
            DimensionError: wrong shape or size, NaN, infinity, or a vector of zeros.
            InvalidInputError: an id that is no text, or twice in one call, or another number of ids than of vectors.
        """
        if isinstance(ids, str):
            raise InvalidInputError(f"ids={ids!r} is one text; give a list of ids")
        for id in ids:
            if not isinstance(id, str) or not id:
                raise InvalidInputError(f"id {id!r} is not a non-empty text; give each vector a text id")
        if len(set(ids)) != len(ids):
            twice = next(id for place, id in enumerate(ids) if id in ids[:place])
            raise InvalidInputError(f"id {twice!r} stands twice in one call; give each id once")
        if len(ids) == 0 and np.size(vectors) == 0:
            return np.empty((0, self._dimension or 0), dtype=np.float32)
        rows = _numbers(vectors)
        if rows.ndim != 2:
            raise DimensionError(f"vectors have shape {rows.shape}; give (n, d), one row an id")
        if len(rows) != len(ids):
            raise InvalidInputError(f"{len(ids)} ids came with {len(rows)} vectors; give one vector an id")
        return self._unit(rows, lambda row: f"the vector of {ids[row]!r}")

    def add(self, ids: Sequence[str], vectors: FloatArray) -> None:
        """Store n vectors, shape ``(n, d)``, at unit length; an id that is there already gets the new vector.

        Raises:
            DimensionError: wrong shape or size, NaN, infinity, or a vector of zeros; nothing was stored.
            InvalidInputError: an id that is no text, or twice in one call, or a wrong number; nothing was stored.
        """
        with self._lock:
            rows = self.check(ids, vectors)
            if not len(rows):
                return
            self._grow(len(self._ids) + sum(id not in self._row_of for id in ids), rows.shape[1])
            for id, row in zip(ids, rows, strict=True):
                place = self._row_of.setdefault(id, len(self._ids))
                if place == len(self._ids):
                    self._ids.append(id)
                self._matrix[place] = row

    def search(self, query_vector: FloatArray, top_k: int = 5) -> list[tuple[str, float]]:
        """Return up to ``top_k`` pairs of id and cosine similarity, nearest first, equal ones by id.

        Raises:
            DimensionError: a query of the wrong size, with NaN or infinity, or of zeros.
            InvalidInputError: ``top_k`` is no number of results.
        """
        with self._lock:
            top_k, query = check_top_k(top_k), self.check_query(query_vector)
            if not self._ids or not top_k:
                return []
            rows = np.arange(len(self._ids))
            return self._ranked(_likely(rows, self._matrix[: len(rows)] @ query, top_k), query, top_k)

    def rank(self, ids: Sequence[str], query: FloatArray, top_k: int) -> list[tuple[str, float]]:
        """Rank stored ids by cosine similarity to a unit query, shape ``(d,)``, and keep ``top_k``."""
        with self._lock:
            if not ids:
                return []
            rows = np.array([self._row_of[id] for id in ids], dtype=np.intp)
            return self._ranked(_likely(rows, self._matrix[rows] @ query, top_k), query, top_k)

    def delete(self, ids: Sequence[str]) -> None:
        """Remove vectors; ids that are not there are passed over."""
        if isinstance(ids, str):
            raise InvalidInputError(f"ids={ids!r} is one text; give a list of ids")
        with self._lock:
            for id in ids:
                place = self._row_of.pop(id, None)
                if place is None:
                    continue
                last = self._ids.pop()
                if last != id:
                    self._ids[place] = last
                    self._row_of[last] = place
                    self._matrix[place] = self._matrix[len(self._ids)]

    def get_vector(self, id: str) -> FloatArray | None:
        """Return a copy of the stored unit vector, shape ``(d,)``, or None."""
        with self._lock:
            place = self._row_of.get(id)
            return None if place is None else self._matrix[place].copy()

    def matrix(self) -> FloatArray:
        """Return a copy of all vectors, shape ``(n, d)``, in the order of ``ids``."""
        with self._lock:
            copy: FloatArray = self._matrix[: len(self._ids)].copy()
            return copy

    def check_query(self, query_vector: FloatArray) -> FloatArray:
        """Return a query, shape ``(d,)``, at unit length.

        Raises:
            DimensionError: wrong shape or size, NaN, infinity, or zeros.
        """
        query = _numbers(query_vector)
        if query.ndim != 1:
            raise DimensionError(f"the query has shape {query.shape}; give one vector, shape (d,)")
        unit: FloatArray = self._unit(query[None, :], lambda _row: "the query")[0]
        return unit

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: object) -> bool:
        return id in self._row_of

    def _unit(self, rows: FloatArray, name: Callable[[int], str]) -> FloatArray:
        size = rows.shape[1]
        if size < 1 or (self._dimension is not None and size != self._dimension):
            raise DimensionError(
                f"{name(0)} has {size} numbers, this store holds vectors of {self._dimension or 'at least 1'}; "
                "use the embedder that the memory was made with, or run `fluxmem reindex`"
            )
        # In double precision the squares of very large or very small float32 values keep their size.
        wide = rows.astype(np.float64)
        finite = np.isfinite(wide).all(axis=1)
        if not finite.all():
            raise DimensionError(
                f"{name(int(np.argmin(finite)))} holds NaN or infinity; check the embedder's output, nothing was stored"
            )
        norms = np.linalg.norm(wide, axis=1)
        if not norms.all():
            raise DimensionError(
                f"{name(int(np.argmin(norms)))} is all zeros and has no direction; embed a text that is not blank"
            )
        # What has unit length already stays as it is, bit for bit.
        norms[np.abs(norms - 1.0) < 1e-6] = 1.0
        unit: FloatArray = (wide / norms[:, None]).astype(np.float32)
        return unit

    def _grow(self, count: int, dimension: int) -> None:
        self._dimension = dimension
        if count > len(self._matrix):
            wider = np.empty((max(count, 2 * len(self._matrix), 8), dimension), dtype=np.float32)
            if self._ids:
                wider[: len(self._ids)] = self._matrix[: len(self._ids)]
            self._matrix = wider

    def _ranked(self, rows: npt.NDArray[np.intp], query: FloatArray, top_k: int) -> list[tuple[str, float]]:
        exact = (self._matrix[rows].astype(np.float64) * query).sum(axis=1)
        scores = np.clip(np.round(exact, DIGITS), -1.0, 1.0)
        return best_first(self._ids, rows, scores, top_k)


def _likely(rows: npt.NDArray[np.intp], rough: FloatArray, top_k: int) -> npt.NDArray[np.intp]:
    """Keep the rows that may be among the ``top_k`` best by their rough scores, shape ``(n,)``."""
    if not 0 < top_k < len(rows):
        return rows
    # The margin keeps rows that tie with the last place once sums are exact.
    last = np.partition(rough, len(rows) - top_k)[len(rows) - top_k]
    likely: npt.NDArray[np.intp] = rows[rough >= last - 10.0 ** (1 - DIGITS)]
    return likely
