"""The signals of a score: one function of arrays each (spec section 3)."""

from __future__ import annotations

import numpy as np

from fluxmem_local.types import FloatArray

__all__ = ["among_read", "bm25", "dense", "edge_trust", "graph", "llm", "task_relevance"]

_CLEAR_DIFFERENCE = 0.15
# Evidence of this mass is half believed.
_EVIDENCE_PRIOR = 1.0
# What a task counts that is just similar enough for its repairs to carry over.
_RELEVANCE_AT_THRESHOLD = 0.5


def dense(embeddings: FloatArray, query_vector: FloatArray) -> FloatArray:
    """Compute the cosine of n unit vectors ``(n, d)`` to the query ``(d,)``, clipped to [0, 1]: shape ``(n,)``."""
    cosines: FloatArray = embeddings @ query_vector
    return np.clip(cosines, 0.0, 1.0)


def bm25(scores: FloatArray) -> FloatArray:
    """Scale the BM25 scores of n candidates, any sign, to [0, 1] by the best of them: shape ``(n,)``.

    BM25Okapi gives a word that stands in more than half of the facts a weight under zero: such a match counts as none.
    """
    best = float(scores.max(initial=0.0))
    scaled: FloatArray = scores / np.float32(best if best > 0 else 1.0)
    return np.clip(scaled, 0.0, 1.0)


def llm(values: FloatArray, num_candidates: int) -> FloatArray | None:
    """Check what a language model said of n candidates.

    Returns:
        The values as float32 ``(n,)``, or None when one is missing, not a number, or outside [0, 1].
    """
    checked: FloatArray = np.asarray(values, dtype=np.float32)
    if checked.shape != (num_candidates,) or not np.isfinite(checked).all():
        return None
    return checked if ((checked >= 0) & (checked <= 1)).all() else None


def among_read(values: FloatArray) -> FloatArray:
    """Spread a model's words on n candidates over [0, 1], the least supported at 0: shape ``(n,)``.

    A small model finds almost everything likely, and what it says is in the differences. Those of less than
    ``_CLEAR_DIFFERENCE`` in all are not blown up to the whole range.
    """
    least = values.min(initial=1.0)
    spread: FloatArray = (values - least) / np.float32(max(_CLEAR_DIFFERENCE, float(values.max(initial=0.0) - least)))
    return spread


def task_relevance(similarities: FloatArray, related: float, threshold: float) -> FloatArray:
    """Say how much e past tasks tell about the asked one, by their similarity: shape ``(e,)``, in [0, 1].

    Up to ``related`` nothing; from there on it rises, faster from ``threshold`` on, to 1 for the same task.
    """
    known = (related, max(threshold, related + 1e-6), max(1.0, threshold + 2e-6))
    return np.interp(similarities, known, (0.0, _RELEVANCE_AT_THRESHOLD, 1.0)).astype(np.float32)


def edge_trust(weights: FloatArray, successes: FloatArray, failures: FloatArray) -> FloatArray:
    """Weigh n edges by the later tasks in which they were active; an edge without any keeps its weight: ``(n,)``."""
    trust: FloatArray = weights * (1 + successes) / (1 + successes + failures)
    return trust


def graph(relevance: FloatArray, helped: FloatArray, hurt: FloatArray) -> FloatArray:
    """Compute learned connectivity: helped against hurt over similar past tasks, drawn to 0 while evidence is thin.

    Args:
        relevance: of e past tasks, in [0, 1].
        helped: how often each of n nodes helped in each task, shape ``(e, n)``.
        hurt: how often it misled, shape ``(e, n)``.

    Returns:
        Values in (-1, 1), shape ``(n,)``.
    """
    for_it, against_it = relevance @ helped, relevance @ hurt
    return ((for_it - against_it) / (for_it + against_it + _EVIDENCE_PRIOR)).astype(np.float32)
