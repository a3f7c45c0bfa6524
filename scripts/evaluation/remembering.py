"""Remembering: an embedder that embeds each text once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.types import FloatArray

__all__ = ["Remembering"]


class Remembering(BaseEmbedder):
    """Embeds each text once, so that the arms of a benchmark share the work, and their times are without embedding."""

    def __init__(self, inner: BaseEmbedder) -> None:
        self.inner = inner
        self.dimension = inner.dimension
        self.vectors: dict[str, FloatArray] = {}

    async def embed_text(self, text: str) -> FloatArray:
        if text not in self.vectors:
            self.vectors[text] = await self.inner.embed_text(text)
        return self.vectors[text]

    async def embed_batch(self, texts: Sequence[str]) -> FloatArray:
        missing = [text for text in dict.fromkeys(texts) if text not in self.vectors]
        if missing:
            self.vectors.update(zip(missing, await self.inner.embed_batch(missing), strict=True))
        return np.stack([self.vectors[text] for text in texts])
