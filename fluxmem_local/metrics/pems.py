"""PEMS of skills and of a graph as array functions (spec section 5).

The paper's words: η success_rate, ℓ token_count, δ shift, p_v the PEMS of one skill.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fluxmem_local.errors import DimensionError, InvalidInputError

__all__ = ["embedding_shift", "graph_pems", "skill_pems"]

_Doubles: TypeAlias = npt.NDArray[np.float64]
# ln of less than 3 would be below 1, so that a text of one token would divide by zero.
_LEAST_TOKENS = 3.0


def skill_pems(success_rates: npt.ArrayLike, token_counts: npt.ArrayLike, shifts: npt.ArrayLike) -> _Doubles:
    """Compute ``p_v = η / ln(max(ℓ, 3)) · (1 − δ)`` of n skills.

    ``1 − δ`` is the cosine of two versions. It is negative when the new version points away from the old one, and so is
    the value then: it is not cut off at zero, so that worse changes stay worse.

    Args:
        success_rates: η, shape ``(n,)``, each in [0, 1].
        token_counts: ℓ, shape ``(n,)``, each at least 0.
        shifts: δ, shape ``(n,)``, each in [0, 2]; 0 for a first version.

    Returns:
        p_v, shape ``(n,)``.

    Raises:
        InvalidInputError: shapes that differ, or a value out of its range.
    """
    rates = _column("success_rates", success_rates, 0, 1)
    tokens = _column("token_counts", token_counts, 0, np.inf)
    changes = _column("shifts", shifts, 0, 2)
    if not rates.shape == tokens.shape == changes.shape:
        raise InvalidInputError(
            f"success_rates, token_counts and shifts have shapes {rates.shape}, {tokens.shape} and {changes.shape}; "
            "give one value a skill in each"
        )
    result: _Doubles = rates / np.log(np.maximum(tokens, _LEAST_TOKENS)) * (1.0 - changes)
    return result


def graph_pems(p: npt.ArrayLike) -> float:
    """Compute the PEMS of a graph, ``Σ p_v / |V_proc|``; 0 for a graph without skills.

    Raises:
        InvalidInputError: not one finite value a skill.
    """
    values = _column("p", p, -np.inf, np.inf)
    return float(values.mean()) if values.size else 0.0


def embedding_shift(present: npt.ArrayLike, previous: npt.ArrayLike | None) -> _Doubles:
    """Compute ``δ = 1 − cos`` of n versions and those before them.

    Args:
        present: vectors of any length, shape ``(n, d)``.
        previous: the same of the versions before, or None when all are first versions. A row of zeros, here or in
            ``present``, stands for a vector that there is none of.

    Returns:
        δ in [0, 2], shape ``(n,)``; 0 where there is nothing to compare.

    Raises:
        DimensionError: shapes that differ, NaN or infinity.
    """
    after = _rows("present", present)
    if previous is None:
        return np.zeros(len(after))
    before = _rows("previous", previous)
    if after.shape != before.shape:
        raise DimensionError(
            f"present has shape {after.shape} and previous {before.shape}; give one row a skill in each"
        )
    lengths = np.linalg.norm(after, axis=1) * np.linalg.norm(before, axis=1)
    cosines = np.divide((after * before).sum(axis=1), lengths, out=np.ones_like(lengths), where=lengths > 0)
    shifts: _Doubles = np.clip(1.0 - cosines, 0.0, 2.0)
    return shifts


def _column(name: str, values: npt.ArrayLike, low: float, high: float) -> _Doubles:
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must be numbers, one a skill") from error
    if column.ndim != 1:
        raise InvalidInputError(f"{name} has shape {column.shape}; give one value a skill, shape (n,)")
    wrong = column[~(np.isfinite(column) & (column >= low) & (column <= high))]
    if wrong.size:
        raise InvalidInputError(f"{name} holds {wrong[0]}; allowed are finite values from {low:g} to {high:g}")
    return column


def _rows(name: str, vectors: npt.ArrayLike) -> _Doubles:
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2:
        raise DimensionError(f"{name} has shape {rows.shape}; give one vector a skill, shape (n, d)")
    if not np.isfinite(rows).all():
        raise DimensionError(f"{name} holds NaN or infinity; check the embedder")
    return rows
