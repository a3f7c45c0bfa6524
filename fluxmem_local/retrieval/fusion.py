"""Fusion: signals to one score, scores to an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fluxmem_local.types import FloatArray

__all__ = ["fuse", "rank"]


# Not scaled by the best cosine.
_OWN_SCALE = frozenset({"dense", "llm", "graph"})
# What a text says about the question; the other signals adjust that.
_CONTENT = frozenset({"dense", "bm25", "context", "llm"})


def fuse(signals: Mapping[str, FloatArray], weights: Mapping[str, float]) -> FloatArray:
    """Compute ``w_d·dense + w_b·BM25 + w_l·LLM_ver + …`` over the weights of the signals that ran (spec section 3).

    Where the question has a vector, words and cues are scaled by the best cosine: what the best match in words is worth
    beside it follows from how near the best match in meaning is, and scores keep the scale of a cosine. The sum
    is divided by the weights of the content signals, so that it keeps its scale when one of them is missing; what
    adjusts (``graph`` and the cues) is zero where it says nothing. Where no text is near in meaning, such as in a
    memory that was filled without an embedder, the score is that of the words alone.

    Args:
        signals: arrays of shape ``(n,)`` by name; at least one.
        weights: a weight of 0 or more for each name.

    Returns:
        Shape ``(n,)``; content alone gives [0, 1].
    """
    length = len(next(iter(signals.values())))
    fused: FloatArray = np.zeros(length, np.float32)
    if "dense" in signals and not (signals["dense"] > 0).any():
        signals = {name: values for name, values in signals.items() if name != "dense"}
    best = float(signals["dense"].max()) if "dense" in signals else 1.0
    for name, values in signals.items():
        scale = 1.0 if name in _OWN_SCALE else best
        fused += np.float32(weights[name] * scale) * values
    total = sum(weights[name] for name in signals if name in _CONTENT)
    return fused / np.float32(total) if total else fused


def rank(ids: Sequence[str], scores: FloatArray) -> list[int]:
    """Order n candidates best first, equal scores by id; returns positions."""
    return sorted(range(len(ids)), key=lambda position: (-float(scores[position]), ids[position]))
