"""TermStatistics: what BM25 is computed from, and its formula."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["TermStatistics", "saturated"]


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """What BM25 is computed from, for n documents and the t query terms that any document holds.

    ``idf`` is ``(t,)``, ``counts`` is ``(n, t)``, ``lengths`` is ``(n,)`` in tokens; an unknown document has zeros.
    ``corpus_size`` counts all documents, ``mean_length`` is theirs, ``k1`` and ``b`` are BM25's parameters.
    """

    terms: tuple[str, ...]
    idf: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.float64]
    corpus_size: int
    mean_length: float
    k1: float = 1.5
    b: float = 0.75

    def scores(self, query_tokens: Sequence[str]) -> npt.NDArray[np.float64]:
        """Compute the n documents' BM25: shape ``(n,)``; a token that the query repeats counts as often."""
        repeats = Counter(query_tokens)
        weights = self.idf * [repeats[term] for term in self.terms]
        scores: npt.NDArray[np.float64] = self.saturated(self.counts, self.lengths, self.mean_length) @ weights
        return scores

    def saturated(
        self, counts: npt.NDArray[np.float64], lengths: npt.NDArray[np.float64], mean_length: float
    ) -> npt.NDArray[np.float64]:
        """Damp counts ``(m, t)`` of m texts by BM25's formula, more in texts that are long for the mean: ``(m, t)``."""
        return saturated(counts, lengths[:, None], mean_length, self.k1, self.b)


def saturated(counts: Any, lengths: Any, mean_length: float, k1: float, b: float) -> npt.NDArray[np.float64]:
    """Damp counts by BM25's formula, more in texts that are long for the mean; of any shape, with lengths that fit."""
    damped: npt.NDArray[np.float64] = counts * (k1 + 1) / (counts + k1 * (1 - b + b * lengths / (mean_length or 1.0)))
    return damped
