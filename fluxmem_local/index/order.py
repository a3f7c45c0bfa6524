"""One order of results for every index: best score first, equal scores by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fluxmem_local.errors import InvalidInputError

__all__ = ["best_first", "check_top_k"]


def check_top_k(top_k: int) -> int:
    """Return ``top_k`` when it is a whole number of at least 0.

    Raises:
        InvalidInputError: anything else.
    """
    if isinstance(top_k, bool) or not isinstance(top_k, (int, np.integer)) or top_k < 0:
        raise InvalidInputError(f"top_k={top_k!r} is not a number of results; give a whole number of at least 0")
    return int(top_k)


def best_first(
    ids: Sequence[str], rows: npt.NDArray[Any], scores: npt.NDArray[Any], top_k: int
) -> list[tuple[str, float]]:
    """Keep the ``top_k`` best of n scores, shape ``(n,)``, each with the id at its place ``rows``, shape ``(n,)``."""
    if 0 < top_k < len(scores):
        # All that tie with the last place stay in, so that ids decide there too.
        chosen = np.flatnonzero(scores >= np.partition(scores, len(scores) - top_k)[len(scores) - top_k])
        rows, scores = rows[chosen], scores[chosen]
    pairs = [(ids[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]
    pairs.sort(key=lambda pair: (-pair[1], pair[0]))
    return pairs[:top_k]
