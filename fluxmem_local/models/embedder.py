"""SentenceTransformerEmbedder: text to vectors with a local sentence-transformers model (spec section 8)."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fluxmem_local.errors import BlankTextError, InvalidInputError, ModelError
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.types import FloatArray

from .batching import run_in_batches
from .fingerprint import embedder_dimension, embedder_fingerprint
from .loading import LoadedEmbedder, load_embedder
from .registry import check_files, locate_model
from .worker import ModelWorker

__all__ = ["SentenceTransformerEmbedder"]

# 8192 vectors of 384 numbers are 12 MiB.
_CACHED_TEXTS = 8192
_TEXTS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class _Window:
    text_index: int
    input_ids: list[int]


class SentenceTransformerEmbedder(BaseEmbedder):
    """Embeds text with a local sentence-transformers model; all vectors have unit length.

    Making one reads only the model's small files; the weights are loaded at the first text. Equal texts are embedded
    once, whoever asks. A text longer than the model takes is embedded in windows, whose mean is its vector. Calls run
    in one thread a model, so the event loop goes on, and calls that wait together become one batch.

    Args:
        model: registry name or folder.
        device: "auto" takes CUDA, then MPS, then the CPU.
        dtype: "auto", "float32", "bfloat16" or "float16".
        batch_size: windows encoded at once; halved when the device's memory is full.

    Raises:
        ModelNotFoundError: no such model on this machine.
        ModelIntegrityError: a registered file is missing or changed.
        InvalidInputError: ``batch_size`` under 1.
    """

    def __init__(
        self,
        model: str | Path = "all-minilm-l6-v2",
        *,
        device: str = "auto",
        dtype: str = "auto",
        batch_size: int = 32,
    ) -> None:
        if batch_size < 1:
            raise InvalidInputError(f"batch_size={batch_size} is no batch size; give 1 or more")
        located = locate_model(model)
        if located.entry.kind != "embedder":
            raise ModelError(
                f"model {str(model)!r} is of kind {located.entry.kind!r}; give an embedder, as all-minilm-l6-v2"
            )
        check_files(located)
        self.dimension = embedder_dimension(located)
        self._fingerprint = embedder_fingerprint(located, self.dimension)
        self._model = model
        self._device = device
        self._dtype = dtype
        self._batch_size = batch_size
        self._loaded: LoadedEmbedder | None = None
        self._loading = threading.Lock()
        self._cache: OrderedDict[bytes, FloatArray] = OrderedDict()
        self._worker = ModelWorker(self._embed, "embedder")

    @property
    def fingerprint(self) -> str:
        """Name the model with its dimension, pooling and the hash of its weights and tokenizer."""
        return self._fingerprint

    async def embed_text(self, text: str) -> FloatArray:
        """Embed one text: shape ``(dimension,)``, unit length.

        Raises:
            BlankTextError: there is nothing to embed.
        """
        vector: FloatArray = (await self.embed_batch([text]))[0]
        return vector

    async def embed_batch(self, texts: Sequence[str]) -> FloatArray:
        """Embed n texts in their order: shape ``(n, dimension)``, rows of unit length.

        Raises:
            BlankTextError: one of the texts is blank.
        """
        for text in texts:
            if not text.strip():
                raise BlankTextError("blank text cannot be embedded; give text with a visible character")
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        return np.stack(await self._worker.submit("embed", list(texts)))

    def clear_cache(self) -> None:
        """Drop the vectors of texts that were embedded before, as soon as the model is free."""
        if self._cache:
            self._worker.enqueue("clear", [])

    def close(self) -> None:
        """End the thread and let go of the weights; a later call loads them again."""
        self._worker.close()
        self._loaded = None

    def _embed(self, kind: str, texts: list[str]) -> list[FloatArray]:
        # Only the worker's thread gets here, so the cache needs no lock.
        if kind == "clear":
            self._cache.clear()
            return []
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        found = {key: self._cache[key] for key in keys if key in self._cache}
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if new:
            found.update(zip(new, self._encode(list(new.values())), strict=True))
        for key in keys:
            self._cache[key] = found[key]
            self._cache.move_to_end(key)
        while len(self._cache) > _CACHED_TEXTS:
            self._cache.popitem(last=False)
        return [found[key].copy() for key in keys]

    def _encode(self, texts: list[str]) -> list[FloatArray]:
        # In parts, because the tokens of a hundred thousand texts take more memory than their vectors.
        parts = (texts[start : start + _TEXTS_AT_ONCE] for start in range(0, len(texts), _TEXTS_AT_ONCE))
        return [vector for part in parts for vector in self._encode_part(part)]

    def _encode_part(self, texts: list[str]) -> list[FloatArray]:
        loaded = self._load()
        with loaded.lock:
            windows = self._windows(loaded, texts)
            vectors: list[FloatArray] = run_in_batches(
                windows,
                self._batch_size,
                lambda batch: self._forward(loaded, batch),
                loaded.move_to_cpu,
                lambda window: len(window.input_ids),
                on_cpu=loaded.device == "cpu",
            )
        sums = np.zeros((len(texts), self.dimension), np.float64)
        for window, vector in zip(windows, vectors, strict=True):
            sums[window.text_index] += len(window.input_ids) * vector.astype(np.float64)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        if not np.isfinite(sums).all() or not norms.all():
            raise ModelError(f"model {self._model!r} gave a vector without direction; try dtype='float32'")
        # Rows of their own: a cached view would keep the vectors of all these texts in memory.
        return [row.astype(np.float32) for row in sums / norms]

    def _load(self) -> LoadedEmbedder:
        with self._loading:
            if self._loaded is None:
                self._loaded = load_embedder(self._model, self._device, self._dtype)
            return self._loaded

    def _windows(self, loaded: LoadedEmbedder, texts: list[str]) -> list[_Window]:
        tokens = loaded.model.tokenizer(
            [text.encode("utf-8", "replace").decode() for text in texts],
            truncation=True,
            max_length=loaded.max_length,
            return_overflowing_tokens=True,
            return_attention_mask=False,
        )
        return [
            _Window(index, ids)
            for index, ids in zip(tokens["overflow_to_sample_mapping"], tokens["input_ids"], strict=True)
        ]

    def _forward(self, loaded: LoadedEmbedder, windows: Sequence[_Window]) -> list[FloatArray]:
        import torch

        features = loaded.model.tokenizer.pad(
            {"input_ids": [window.input_ids for window in windows]}, return_tensors="pt"
        )
        with torch.inference_mode():
            outputs: Any = loaded.model({name: tensor.to(loaded.device) for name, tensor in features.items()})
        return list(outputs["sentence_embedding"].float().cpu().numpy())
