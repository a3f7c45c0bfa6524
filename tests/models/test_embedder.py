from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from fluxmem_local.errors import BlankTextError, InvalidInputError, ModelError, ModelNotFoundError
from fluxmem_local.models.embedder import SentenceTransformerEmbedder
from fluxmem_local.models.loading import load_embedder
from fluxmem_local.models.registry import registry_directory

TEXTS = [
    "The cat sat on the mat.",
    "Paris is the capital of France.",
    "A kitten slept.",
    "Water boils at one hundred degrees.",
    "To restart the server, stop the service, wait ten seconds and start it again.",
]


def test_making_one_reads_sizes_and_hashes_but_loads_no_torch(model_cache):
    code = (
        "import sys; from fluxmem_local.models import SentenceTransformerEmbedder as E, TransformersLLM as L;"
        "e = E('tiny-embedder'); L('tiny-llm'); "
        "print(e.dimension, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["64", "False", "False"]


def test_a_fingerprint_tells_weights_apart(model_cache, tmp_path, tiny_embedder):
    assert tiny_embedder.dimension == 64
    assert tiny_embedder.fingerprint.startswith("tiny-embedder/64/mean/")
    folder = shutil.copytree(registry_directory() / "tiny" / "embedder", tmp_path / "copied-elsewhere")
    assert SentenceTransformerEmbedder(folder).fingerprint == tiny_embedder.fingerprint
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    changed = SentenceTransformerEmbedder(folder)
    assert changed.dimension == 64
    assert changed.fingerprint != tiny_embedder.fingerprint


async def test_vectors_have_unit_length_keep_their_order_and_equal_the_librarys(tiny_embedder):
    vectors = await tiny_embedder.embed_batch(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, 64)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    expected = load_embedder("tiny-embedder").model.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(await tiny_embedder.embed_text(TEXTS[3]), vectors[3], atol=1e-6)
    assert (await tiny_embedder.embed_batch([])).shape == (0, 64)


async def test_texts_that_share_words_are_similar(tiny_embedder):
    query, near, far = await tiny_embedder.embed_batch(
        ["What is the capital of France?", "Paris is the capital of France.", "Bread is made of flour and yeast."]
    )
    assert query @ near > query @ far + 0.2


@pytest.mark.parametrize("text", ["", " \n\t"])
async def test_blank_text_is_refused(tiny_embedder, text):
    with pytest.raises(BlankTextError):
        await tiny_embedder.embed_batch(["fine", text])


def test_what_is_no_embedder_is_refused():
    with pytest.raises(ModelError, match="is of kind 'llm'"):
        SentenceTransformerEmbedder("tiny-llm")
    with pytest.raises(ModelNotFoundError):
        SentenceTransformerEmbedder("no-such-embedder")
    with pytest.raises(InvalidInputError, match="batch_size=0"):
        SentenceTransformerEmbedder("tiny-embedder", batch_size=0)


class Counted(SentenceTransformerEmbedder):
    """Counts the windows that reach the model, and can run out of memory."""

    def __init__(self, *arguments, most=1_000, **settings):
        super().__init__(*arguments, **settings)
        self.batches = []
        self.most = most
        self.running = 0
        self.interleaved = False

    def _forward(self, loaded, windows):
        self.running += 1
        self.interleaved |= self.running > 1
        if len(windows) > self.most:
            self.running -= 1
            raise torch.OutOfMemoryError("no room")
        self.batches.append(len(windows))
        time.sleep(0.02)
        vectors = super()._forward(loaded, windows)
        self.running -= 1
        return vectors


async def test_equal_texts_are_embedded_once_within_a_batch_and_between_calls():
    embedder = Counted("tiny-embedder")
    first = await embedder.embed_batch(["a", "b", "a"])
    second = await embedder.embed_batch(["b", "c"])
    assert embedder.batches == [2, 1]
    np.testing.assert_array_equal(first[0], first[2])
    np.testing.assert_array_equal(first[1], second[0])
    second[0][:] = 0
    assert (await embedder.embed_text("b")).any()


async def test_long_text_is_not_cut_away(tiny_embedder):
    start = "The cat sat on the mat. " * 40
    with_end, without_end = await tiny_embedder.embed_batch([start + "Paris is the capital of France. " * 40, start])
    paris = await tiny_embedder.embed_text("Paris is the capital of France.")
    assert with_end @ paris > without_end @ paris + 0.2
    np.testing.assert_allclose(np.linalg.norm(with_end), 1, atol=1e-6)


async def test_out_of_memory_halves_the_batch_and_keeps_order_and_all_texts(tiny_embedder, caplog):
    texts = [f"{word} is" + " so" * (5 * at % 13) for at, word in enumerate(TEXTS[4].split()[:13])]
    expected = [await tiny_embedder.embed_text(text) for text in texts]
    embedder = Counted("tiny-embedder", most=4, batch_size=6)
    np.testing.assert_allclose(await embedder.embed_batch(texts), expected, atol=1e-6)
    assert embedder.batches == [3, 3, 3, 3, 1]
    assert "out of memory" in caplog.text


async def test_out_of_memory_with_one_text_moves_the_model_to_the_cpu(tiny_embedder, caplog):
    class OnDevice(Counted):
        def _forward(self, loaded, windows):
            self.most = 1_000 if self.moved else 0
            return super()._forward(loaded, windows)

        def _load(self):
            loaded = super()._load()
            owner = self

            class Elsewhere:
                device, lock, max_length, model = "cpu", threading.Lock(), loaded.max_length, loaded.model

                def move_to_cpu(self):
                    owner.moved += 1
                    return owner.moved == 1

            return Elsewhere()

    embedder = OnDevice("tiny-embedder")
    embedder.moved = 0
    np.testing.assert_allclose(await embedder.embed_batch(TEXTS), await tiny_embedder.embed_batch(TEXTS), atol=1e-6)
    assert embedder.moved == 1
    assert "moves to the CPU" in caplog.text


async def test_out_of_memory_on_the_cpu_is_the_callers_error():
    with pytest.raises(torch.OutOfMemoryError):
        await Counted("tiny-embedder", most=0).embed_batch(TEXTS)


async def test_callers_at_once_get_what_they_get_alone_and_the_loop_goes_on(tiny_embedder):
    embedder = Counted("tiny-embedder")
    await embedder.embed_text("warm")
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    together = await asyncio.gather(*(embedder.embed_text(f"caller {number} asks") for number in range(8)))
    ticking.cancel()
    alone = await tiny_embedder.embed_batch([f"caller {number} asks" for number in range(8)])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert ticks > 10
    assert not embedder.interleaved
    # What waited while the first ran went together.
    assert len(embedder.batches) < 9


@pytest.mark.real_model
async def test_the_real_embedder_knows_meaning_without_a_shared_word():
    embedder = SentenceTransformerEmbedder()
    assert embedder.dimension == 384
    query, near, far = await embedder.embed_batch(
        ["Which vehicle does she drive?", "Her car is a red Toyota.", "Yeast makes dough rise."]
    )
    assert query @ near > query @ far + 0.2


async def test_what_is_remembered_is_bounded_and_keeps_no_other_text_alive(monkeypatch):
    monkeypatch.setattr("fluxmem_local.models.embedder._CACHED_TEXTS", 5)
    monkeypatch.setattr("fluxmem_local.models.embedder._TEXTS_AT_ONCE", 4)
    embedder = Counted("tiny-embedder")
    texts = [f"text {number}" for number in range(11)]
    vectors = await embedder.embed_batch(texts)
    assert embedder.batches == [4, 4, 3]
    assert len(embedder._cache) == 5
    assert [vector.base for vector in embedder._cache.values()] == [None] * 5
    # The last ones are remembered, the first one is embedded again.
    np.testing.assert_array_equal(await embedder.embed_batch(texts[6:]), vectors[6:])
    assert embedder.batches == [4, 4, 3]
    np.testing.assert_allclose(await embedder.embed_text(texts[0]), vectors[0], atol=1e-6)
    assert embedder.batches == [4, 4, 3, 1]


async def test_on_a_cpu_a_batch_ends_where_padding_would_cost_more(tiny_embedder):
    # Eight long ones are tokens enough for a batch; beside them each short one would be padding for the most part.
    texts = [f"{TEXTS[4]} {TEXTS[3]} {TEXTS[1]} {number}" for number in range(8)] + [
        f"A kitten {number}." for number in range(8)
    ]
    embedder = Counted("tiny-embedder", batch_size=32)
    vectors = await embedder.embed_batch(texts[::-1])
    assert embedder.batches == [8, 8]
    np.testing.assert_allclose(vectors[::-1], [await tiny_embedder.embed_text(text) for text in texts], atol=1e-6)
