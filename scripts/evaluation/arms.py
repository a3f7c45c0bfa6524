"""Arms: how one agent fares with several memories over the same games, and how sure the differences are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Difference", "Played", "difference", "figures", "show"]

_RESAMPLES = 10_000
_MEASURES = ("success", "score", "steps", "calls", "context_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How one game went.

    ``score`` is the environment's own; ``calls`` counts executions of the task function, ``context_tokens`` those
    of all contexts that it was given. ``died`` is None where no game can be lost.
    """

    success: bool
    score: float
    steps: int
    calls: int = 0
    context_tokens: int = 0
    died: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The mean of an arm less that of another over the same games, with the 95 % interval of the paired bootstrap."""

    arm: str
    against: str
    measure: str
    mean: float
    low: float
    high: float


def difference(
    arms: Mapping[str, Sequence[Played]], arm: str, against: str, measure: str = "success", *, seed: int = 0
) -> Difference:
    """Compare two arms game by game.

    Args:
        arms: the games of each arm, in the same order.
        arm: the one that is thought to be better.
        against: the other one.
        measure: a field of ``Played``.
        seed: of the resampling.
    """
    pairs = zip(arms[arm], arms[against], strict=True)
    gains = np.array([float(getattr(one, measure)) - float(getattr(other, measure)) for one, other in pairs])
    rows = np.random.default_rng(seed).integers(len(gains), size=(_RESAMPLES, len(gains)))
    low, high = np.quantile(gains[rows].mean(axis=1), (0.025, 0.975))
    return Difference(
        arm=arm, against=against, measure=measure, mean=float(gains.mean()), low=float(low), high=float(high)
    )


def figures(
    arms: Mapping[str, Sequence[Played]], comparisons: Sequence[tuple[str, str]], *, measure: str = "success"
) -> dict[str, Any]:
    """Gather means by arm and the differences asked for, as JSON data."""
    rows: list[dict[str, Any]] = []
    for arm, games in arms.items():
        row: dict[str, Any] = {"arm": arm, "n": len(games)}
        row |= {name: float(np.mean([float(getattr(game, name)) for game in games])) for name in _MEASURES}
        if any(game.died is not None for game in games):
            row["deaths"] = float(np.mean([bool(game.died) for game in games]))
        rows.append(row)
    compared = [difference(arms, arm, against, measure) for arm, against in comparisons]
    return {
        "arms": rows,
        "differences": [
            {
                "arm": each.arm,
                "against": each.against,
                "measure": each.measure,
                "mean": each.mean,
                "low": each.low,
                "high": each.high,
            }
            for each in compared
        ],
    }


def show(measured: Mapping[str, Any]) -> None:
    """Print what ``figures`` gathered as two tables."""
    deaths = any("deaths" in row for row in measured["arms"])
    width = max(len(row["arm"]) for row in measured["arms"]) + 2
    print(f"{'arm':<{width}}{'n':>5}{'success':>9}{'score':>8}{'steps':>7}{'calls':>7}{'tokens':>8}", end="")
    print(f"{'deaths':>8}" if deaths else "")
    for row in measured["arms"]:
        print(
            f"{row['arm']:<{width}}{row['n']:>5}{row['success']:>9.3f}{row['score']:>8.3f}{row['steps']:>7.1f}"
            f"{row['calls']:>7.1f}{row['context_tokens']:>8.0f}",
            end="",
        )
        print(f"{row['deaths']:>8.2f}" if deaths else "")
    for each in measured["differences"]:
        print(
            f"{each['arm']} - {each['against']}: {each['measure']} {each['mean']:+.3f} "
            f"[{each['low']:+.3f}, {each['high']:+.3f}]"
        )
