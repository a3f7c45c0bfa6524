"""Windows: BM25 of a chunk read together with what stands beside it in its source."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fluxmem_local.index import TermStatistics
from fluxmem_local.text import tokenize
from fluxmem_local.types import FloatArray

__all__ = ["WINDOW_PLACES", "lexical_trust", "window_bm25", "window_weights"]

# Chunks before and after that are looked at; those far off in tokens weigh little anyway.
WINDOW_PLACES = 4
# A best match that holds this share of the question's weight in words is trusted in full.
_TRUSTED_SHARE = 0.3


def window_weights(
    ids: Sequence[str],
    beside: Mapping[str, Mapping[int, str]],
    places: Mapping[str, int],
    lengths: npt.NDArray[np.float64],
    reach: float,
) -> FloatArray:
    """Weigh the m known chunks in the window of each of n chunks: 1 itself, then falling with the distance.

    The distance is counted in tokens between the middles of two chunks, so a short turn of a dialogue is read with
    several turns around it, and a long passage almost by itself.

    Args:
        ids: n chunks.
        beside: their neighbours by id and offset, without gaps.
        places: of each chunk among the m known ones.
        lengths: of the m chunks in tokens, shape ``(m,)``.
        reach: tokens over which the weight falls to 1/e.

    Returns:
        Shape ``(n, m)``.
    """
    rows = np.arange(len(ids))
    weights = np.zeros((len(ids), len(places) + 1), np.float32)
    # A neighbour that is not there stands in a last column, which is dropped.
    nowhere = len(places)
    size = np.append(lengths, np.inf)
    own = np.array([places[id] for id in ids], dtype=np.int64)
    around = [beside.get(id, {}) for id in ids]
    for direction in (-1, 1):
        distance, last = np.zeros(len(ids)), own
        for step in range(direction, direction * (WINDOW_PLACES + 1), direction):
            place = np.array([places[each[step]] if step in each else nowhere for each in around], dtype=np.int64)
            distance = distance + (size[last] + size[place]) / 2
            weights[rows, place] = np.maximum(weights[rows, place], np.exp(-distance / reach))
            last = place
    weights[rows, own] = 1.0
    return weights[:, :nowhere]


def window_bm25(statistics: TermStatistics, weights: FloatArray, headings: Sequence[str] | None = None) -> FloatArray:
    """Compute BM25 over windows: term counts and lengths are summed by weight first, then saturated: shape ``(n,)``.

    Args:
        statistics: of the m known chunks.
        weights: shape ``(n, m)``.
        headings: of the n chunks, blank where there is none; they are read as a part of the chunk.
    """
    counts = weights @ statistics.counts
    lengths = weights @ statistics.lengths
    for row, line in enumerate(headings or ()):
        if line:
            tokens = _counted(line)
            counts[row] += [tokens[term] for term in statistics.terms]
            lengths[row] += tokens.total()
    damped = statistics.saturated(counts, lengths, float(lengths.mean()))
    return np.asarray(damped @ np.maximum(statistics.idf, 0.0), np.float32)


@lru_cache(maxsize=1 << 14)
def _counted(line: str) -> Counter[str]:
    return Counter(tokenize(line))


def lexical_trust(words: Sequence[Sequence[str]], statistics: TermStatistics) -> float:
    """Say how far matches in words are to be trusted for a question, in [0, 1].

    A question in another language than the memory, or about what it does not hold, still matches some chunk in a stray
    word, and scores scaled by the best one would hide how little that is. So the best match is compared with the weight
    of the whole question, in which a word that no chunk holds weighs as a rare one.

    Args:
        words: of the question, each as the tokens that stand for it.
        statistics: of the chunks looked at.
    """
    idf = dict(zip(statistics.terms, np.maximum(statistics.idf, 0.0).tolist(), strict=True))
    unseen = math.log(2 * statistics.corpus_size + 1)
    whole = 0.0
    for word in words:
        known = [idf[token] for token in word if token in idf]
        whole += sum(known) if known else unseen
    if not whole or not len(statistics.counts):
        return 1.0
    best = float(((statistics.counts > 0) @ np.maximum(statistics.idf, 0.0)).max())
    # In a memory of a few facts no word is rare, and nothing can be said.
    return min(1.0, best / whole / _TRUSTED_SHARE) if best > 0 else 1.0
