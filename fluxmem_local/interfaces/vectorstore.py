"""BaseVectorStore: nearest vectors by id (spec section 6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from fluxmem_local.types import FloatArray

__all__ = ["BaseVectorStore"]


class BaseVectorStore(ABC):
    """Vectors by id with nearest-neighbour search by cosine similarity, higher is nearer."""

    @abstractmethod
    def add(self, ids: Sequence[str], vectors: FloatArray) -> None:
        """Store n vectors, shape ``(n, d)``; an id that is there already gets the new vector."""

    @abstractmethod
    def search(self, query_vector: FloatArray, top_k: int = 5) -> list[tuple[str, float]]:
        """Return up to ``top_k`` pairs of id and cosine similarity, nearest first; ``query_vector`` is ``(d,)``."""

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> None:
        """Remove vectors; ids that are not there are passed over."""

    @abstractmethod
    def get_vector(self, id: str) -> FloatArray | None:
        """Return the stored vector, shape ``(d,)``, or None."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the stored vectors."""
