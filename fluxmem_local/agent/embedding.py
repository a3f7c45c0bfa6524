"""CheckedEmbedder: an embedder whose vectors can be relied on, whoever wrote it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluxmem_local.errors import DimensionError
from fluxmem_local.graph import Node
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.storage.codec import unit_vector
from fluxmem_local.types import FloatArray

__all__ = ["CheckedEmbedder", "checked_vectors", "given_vector"]

# Texts handed over in one call at most, so that a book does not become one array of inputs.
_TEXTS_AT_ONCE = 1024


class CheckedEmbedder(BaseEmbedder):
    """Wraps a user's embedder: each vector has the promised size, finite numbers and unit length, or an error says so.

    Raises:
        DimensionError: the embedder names no usable dimension.
    """

    def __init__(self, inner: BaseEmbedder) -> None:
        dimension = getattr(inner, "dimension", None)
        if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
            raise DimensionError(
                f"{type(inner).__name__}.dimension is {dimension!r}; set it to the length of the vectors it makes"
            )
        self.inner = inner
        self.dimension = dimension

    @property
    def fingerprint(self) -> str:
        """Name the wrapped embedder's weights."""
        return self.inner.fingerprint

    def clear_cache(self) -> None:
        """Drop what the wrapped embedder keeps of texts that were embedded before."""
        self.inner.clear_cache()

    async def embed_text(self, text: str) -> FloatArray:
        """Embed one text: shape ``(dimension,)``, unit length.

        Raises:
            DimensionError: the vector has another size, or NaN or infinity in it.
        """
        vector: FloatArray = checked_vectors([await self.inner.embed_text(text)], 1, self.dimension)[0]
        return vector

    async def embed_batch(self, texts: Sequence[str]) -> FloatArray:
        """Embed n texts in their order: shape ``(n, dimension)``, rows of unit length.

        Raises:
            DimensionError: a vector has another size, or NaN or infinity in it, or their number is not n.
        """
        parts = [np.empty((0, self.dimension), np.float32)]
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            part = list(texts[start : start + _TEXTS_AT_ONCE])
            parts.append(checked_vectors(await self.inner.embed_batch(part), len(part), self.dimension))
        return np.concatenate(parts)


def checked_vectors(vectors: object, count: int, dimension: int) -> FloatArray:
    """Return the vectors as float32 rows of unit length, shape ``(count, dimension)``.

    A row of zeros stays one: as a question it is similar to nothing, and as a memory the store refuses it.

    Raises:
        DimensionError: another shape, or NaN or infinity.
    """
    try:
        rows = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError):
        raise DimensionError(f"the embedder must give numbers of shape ({count}, {dimension})") from None
    if rows.shape != (count, dimension):
        raise DimensionError(
            f"the embedder gave an array of shape {rows.shape} where its dimension={dimension} promises "
            f"({count}, {dimension}); nothing was stored"
        )
    if not np.isfinite(rows).all():
        raise DimensionError("the embedder gave a vector with NaN or infinity; nothing was stored")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def given_vector(node: Node, dimension: int) -> FloatArray:
    """Return the vector that a caller gave a node, as float32 of unit length, shape ``(dimension,)``.

    Raises:
        DimensionError: another shape, NaN or infinity, or length zero.
    """
    remedy = f"give {dimension} finite numbers, or leave it out and the memory makes it; nothing was stored"
    return unit_vector(node.embedding, dimension, f"the embedding given with node {node.id!r}", remedy)
