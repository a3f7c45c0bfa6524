"""HNSWVectorStore: small layers exactly, large ones through hnswlib."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.interfaces import BaseVectorStore
from fluxmem_local.types import FloatArray

from .exact import ExactVectorStore
from .files import IndexFile, damaged, read_index, write_index
from .order import check_top_k

__all__ = ["HNSWVectorStore"]


class HNSWVectorStore(BaseVectorStore):
    """Vectors by cosine similarity: compared one by one below ``exact_below`` vectors, by an HNSW graph from there on.

    All vectors also stand in an exact store: it checks them, gives the final scores, and answers when the graph cannot
    (hnswlib refuses a query that reaches fewer than k nodes). The graph is built by one thread from a seed, so equal
    calls give equal results.

    Args:
        dimension: the vectors' size; None: that of the first vector.
        exact_below: number of vectors from which the graph is used.
        m: links of a node in the graph.
        ef_construction: candidates looked at while a node is linked.
        ef_search: candidates looked at by a query; at least twice ``top_k`` in any case.
        seed: of the graph's levels.

    Raises:
        InvalidInputError: an argument out of its range (DimensionError for ``dimension``).
    """

    def __init__(
        self,
        dimension: int | None = None,
        *,
        exact_below: int = 2000,
        m: int = 16,
        ef_construction: int = 200,
        ef_search: int = 64,
        seed: int = 0,
    ) -> None:
        for name, value, low, high in (
            ("exact_below", exact_below, 0, 2**31),
            ("m", m, 2, 256),
            ("ef_construction", ef_construction, 1, 10_000),
            ("ef_search", ef_search, 1, 10_000),
            ("seed", seed, 0, 2**32 - 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidInputError(f"{name}={value!r} is out of range; allowed is {low} to {high}")
        self._exact_below = exact_below
        self._m = m
        self._ef_construction = ef_construction
        self._ef_search = ef_search
        self._seed = seed
        self._rows = ExactVectorStore(dimension)
        self._graph: Any = None
        self._label_of: dict[str, int] = {}
        self._id_of: dict[int, str] = {}
        self._lock = threading.RLock()

    @property
    def dimension(self) -> int | None:
        """Return the size of the vectors, or None before the first one."""
        return self._rows.dimension

    @property
    def ids(self) -> list[str]:
        """Return all ids."""
        return self._rows.ids

    def add(self, ids: Sequence[str], vectors: FloatArray) -> None:
        """Store n vectors, shape ``(n, d)``, at unit length; an id that is there already gets the new vector.

        Raises:
            DimensionError: wrong shape or size, NaN, infinity, or a vector of zeros; nothing was stored.
            InvalidInputError: an id that is no text, or twice in one call, or a wrong number; nothing was stored.
        """
        with self._lock:
            unit = self._rows.check(ids, vectors)
            if not len(unit):
                return
            self._rows.add(ids, unit)
            if self._graph is None:
                if len(self._rows) >= max(1, self._exact_below):
                    self._build()
                return
            self._unlink(ids)
            self._link(ids, unit)
            self._compact()

    def search(self, query_vector: FloatArray, top_k: int = 5) -> list[tuple[str, float]]:
        """Return up to ``top_k`` pairs of id and cosine similarity, nearest first, equal ones by id.

        Raises:
            DimensionError: a query of the wrong size, with NaN or infinity, or of zeros.
            InvalidInputError: ``top_k`` is no number of results.
        """
        with self._lock:
            top_k = check_top_k(top_k)
            # From a quarter of all on, comparing each is no dearer than walking the graph.
            if self._graph is None or not top_k or 4 * top_k >= len(self._rows):
                return self._rows.search(query_vector, top_k)
            query = self._rows.check_query(query_vector)
            reach = max(self._ef_search, 2 * top_k)
            self._graph.set_ef(reach)
            try:
                labels, _ = self._graph.knn_query(query[None, :], k=min(reach, len(self._rows)), num_threads=1)
            except RuntimeError:
                return self._rows.search(query_vector, top_k)
            return self._rows.rank([self._id_of[label] for label in labels[0].tolist()], query, top_k)

    def search_among(self, ids: Sequence[str], query_vector: FloatArray, top_k: int) -> list[tuple[str, float]]:
        """Return what ``search`` would if the store had only these ids; those that are not there are passed over."""
        with self._lock:
            query = self._rows.check_query(query_vector)
            return self._rows.rank([id for id in ids if id in self._rows], query, check_top_k(top_k))

    def delete(self, ids: Sequence[str]) -> None:
        """Remove vectors; ids that are not there are passed over."""
        with self._lock:
            self._rows.delete(ids)
            if self._graph is not None:
                self._unlink(ids)
                self._compact()

    def get_vector(self, id: str) -> FloatArray | None:
        """Return a copy of the stored unit vector, shape ``(d,)``, or None."""
        return self._rows.get_vector(id)

    def save(self, path: str | Path, *, generation: int) -> str:
        """Write the store to one file, whole or not at all, and return its checksum (hex).

        Args:
            path: the file; an older one is replaced.
            generation: a number the caller compares when it loads the file, to see whether the file is stale.

        Raises:
            StorageError: the file cannot be written.
        """
        with self._lock:
            settings = {
                "exact_below": self._exact_below,
                "m": self._m,
                "ef_construction": self._ef_construction,
                "ef_search": self._ef_search,
                "seed": self._seed,
            }
            ids = self._rows.ids
            labels = None if self._graph is None else [self._label_of[id] for id in ids]
            return write_index(
                Path(path), IndexFile(generation, settings, ids, self._rows.matrix(), labels, self._graph)
            )

    @classmethod
    def load(cls, path: str | Path, *, noted: str | None = None) -> tuple[HNSWVectorStore, int]:
        """Read a store and its generation from a file.

        Args:
            path: the file.
            noted: the checksum that ``save`` returned, if that was kept in a safe place: another file is then refused,
                and this one is read faster.

        Raises:
            MemoryDamagedError: the file is missing, cut off, changed, or none of ours; build the store anew.
        """
        file = read_index(Path(path), noted)
        try:
            store = cls(**file.settings)
            store._rows = ExactVectorStore.of_unit(file.ids, file.vectors) if noted else ExactVectorStore()
            if not noted:
                store._rows.add(file.ids, file.vectors)
            if file.labels is not None:
                store._graph = file.graph
                store._label_of = dict(zip(file.ids, file.labels, strict=True))
                store._id_of = {label: id for id, label in store._label_of.items()}
        except (TypeError, ValueError) as error:
            raise damaged(Path(path), f"its parts do not fit together ({error})") from error
        return store, file.generation

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id: object) -> bool:
        return id in self._rows

    def _build(self) -> None:
        import hnswlib

        self._graph = None
        self._label_of, self._id_of = {}, {}
        if not len(self._rows):
            return
        graph = hnswlib.Index(space="ip", dim=self._rows.dimension)
        graph.init_index(
            max_elements=2 * len(self._rows), M=self._m, ef_construction=self._ef_construction, random_seed=self._seed
        )
        self._graph = graph
        self._link(self._rows.ids, self._rows.matrix())

    def _link(self, ids: Sequence[str], unit: FloatArray) -> None:
        first = self._graph.get_current_count()
        labels = np.arange(first, first + len(ids))
        if first + len(ids) > self._graph.get_max_elements():
            self._graph.resize_index(2 * (first + len(ids)))
        self._graph.add_items(unit, labels, num_threads=1)
        for id, label in zip(ids, labels.tolist(), strict=True):
            self._label_of[id] = label
            self._id_of[label] = id

    def _unlink(self, ids: Sequence[str]) -> None:
        for id in ids:
            label = self._label_of.pop(id, None)
            if label is not None:
                del self._id_of[label]
                self._graph.mark_deleted(label)

    def _compact(self) -> None:
        if 2 * len(self._rows) < self._exact_below:
            self._graph = None
            self._label_of, self._id_of = {}, {}
        elif self._graph.get_current_count() > 2 * len(self._rows):
            self._build()
