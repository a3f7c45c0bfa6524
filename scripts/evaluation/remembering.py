"""Remembering: an embedder that embeds each text once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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

    def embed_now(self, text: str) -> FloatArray:
        """Embed one text from code that an event loop runs but that cannot wait for it."""
        if text not in self.vectors:
            with ThreadPoolExecutor(max_workers=1) as thread:
                thread.submit(asyncio.run, self.embed_text(text)).result()
        return self.vectors[text]

    def save(self, path: Path) -> None:
        """Write all vectors to a file."""
        texts = list(self.vectors)
        np.savez(path, texts=np.array(texts), vectors=np.stack([self.vectors[text] for text in texts]))

    def load(self, path: Path) -> None:
        """Read vectors that ``save`` wrote."""
        with np.load(path) as known:
            self.vectors.update(zip(known["texts"].tolist(), known["vectors"], strict=True))
