"""Facts with vectors for measuring scale: made from a seed, clustered as embeddings of sentences are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fluxmem_local.types import FloatArray

__all__ = ["DIMENSION", "Corpus", "make_corpus"]

DIMENSION = 384
_TOPIC_SIZE = 250
_NUM_WORDS = 60_000
_WORDS_OF_TOPIC, _WORDS_OF_ALL = 6, 8
_BATCH = 20_000
# All embeddings of a model lie somewhat to one side, spread over few directions much and over many little, and those of
# one topic are about 0.6 similar to each other.
_OFFSET, _SPREAD, _DECAY = 0.3, 0.75, 0.5


@dataclass(frozen=True)
class Corpus:
    """n facts with their vectors, ``(n, d)``, and q queries with theirs, ``(q, d)``, all of unit length."""

    texts: list[str]
    vectors: FloatArray
    queries: list[str]
    query_vectors: FloatArray


def make_corpus(count: int, num_queries: int, seed: int = 0) -> Corpus:
    """Make facts and queries of the same topics; topics have sizes, and words frequencies, by Zipf's law."""
    random = np.random.default_rng(seed)
    num_topics = max(8, count // _TOPIC_SIZE)
    scales = (np.arange(1, DIMENSION + 1) ** -_DECAY).astype(np.float32)
    scales /= np.linalg.norm(scales)
    offset = _OFFSET * _unit(random.standard_normal((1, DIMENSION), dtype=np.float32))
    centres = offset + _unit(random.standard_normal((num_topics, DIMENSION), dtype=np.float32) * scales)
    topics = _zipf(random, num_topics, count + num_queries, 0.7)
    vectors = np.empty((count + num_queries, DIMENSION), dtype=np.float32)
    for start in range(0, len(vectors), _BATCH):
        part = topics[start : start + _BATCH]
        noise = _unit(random.standard_normal((len(part), DIMENSION), dtype=np.float32) * scales)
        vectors[start : start + len(part)] = _unit(centres[part] + _SPREAD * noise)
    texts = _texts(random, topics, num_topics)
    queries = [" ".join(text.split()[2:9]) for text in texts[count:]]
    return Corpus(texts[:count], vectors[:count], queries, vectors[count:])


def _texts(random: np.random.Generator, topics: np.ndarray, num_topics: int) -> list[str]:
    letters = np.array(list("etaoinshrdlucmfwygpb"))
    words = ["".join(random.choice(letters, 2 + number % 8)) for number in range(_NUM_WORDS)]
    ours = random.integers(200, _NUM_WORDS, (num_topics, 40))
    own = ours[topics[:, None], random.integers(0, 40, (len(topics), _WORDS_OF_TOPIC))]
    common = _zipf(random, _NUM_WORDS, len(topics) * _WORDS_OF_ALL, 1.0).reshape(len(topics), _WORDS_OF_ALL)
    picked = np.concatenate([common[:, :4], own, common[:, 4:]], axis=1).tolist()
    return [f"n{number} " + " ".join(words[word] for word in sentence) + "." for number, sentence in enumerate(picked)]


def _zipf(random: np.random.Generator, kinds: int, count: int, power: float) -> np.ndarray:
    shares = np.arange(1, kinds + 1, dtype=np.float64) ** -power
    return random.choice(kinds, count, p=shares / shares.sum())


def _unit(rows: FloatArray) -> FloatArray:
    unit: FloatArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
