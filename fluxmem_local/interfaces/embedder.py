"""BaseEmbedder: text to vectors (spec section 6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from fluxmem_local.types import FloatArray

__all__ = ["BaseEmbedder"]


class BaseEmbedder(ABC):
    """Turns text into vectors of one size.

    A subclass sets ``dimension`` (as an attribute or a property) and writes the two methods. Vectors need not have
    unit length: the memory normalises what it stores.
    """

    dimension: int

    @property
    def fingerprint(self) -> str:
        """Name the weights that make the vectors; a memory refuses an embedder with another fingerprint.

        The default knows only class and dimension: a backend with weights should add their hash.
        """
        return f"{type(self).__module__}.{type(self).__qualname__}/{self.dimension}"

    def close(self) -> None:  # noqa: B027
        """End what the model holds, as threads and weights; the default holds nothing.

        An agent closes the models that it made itself, not those it was given.
        """

    def clear_cache(self) -> None:  # noqa: B027
        """Drop what is kept of texts that were embedded before; the default keeps nothing."""

    @abstractmethod
    async def embed_text(self, text: str) -> FloatArray:
        """Embed one text: shape ``(dimension,)``."""

    @abstractmethod
    async def embed_batch(self, texts: Sequence[str]) -> FloatArray:
        """Embed n texts in their order: shape ``(n, dimension)``."""
