"""Fusion: signals to one score, scores to an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fluxmem_local.types import FloatArray

__all__ = ["fuse", "rank"]


def fuse(signals: Mapping[str, FloatArray], weights: Mapping[str, float]) -> FloatArray:
    """Compute ``w_d·dense + w_b·BM25 + w_l·LLM_ver + w_g·graph`` over the weights of the signals that ran.

    The content signals are averaged by their weights, so that scores keep their scale when one of them is missing.
    ``graph`` is added on top: it is an adjustment, and zero where nothing was learned.

    Args:
        signals: arrays of shape ``(n,)`` by name; at least one.
        weights: a weight of 0 or more for each name.

    Returns:
        Shape ``(n,)``; content alone gives [0, 1].
    """
    fused: FloatArray = np.zeros(len(next(iter(signals.values()))), np.float32)
    for name, values in signals.items():
        fused += np.float32(weights[name]) * values
    scale = sum(weights[name] for name in signals if name != "graph")
    return fused / np.float32(scale) if scale else fused


def rank(ids: Sequence[str], scores: FloatArray) -> list[int]:
    """Order n candidates best first, equal scores by id; returns positions."""
    return sorted(range(len(ids)), key=lambda position: (-float(scores[position]), ids[position]))
