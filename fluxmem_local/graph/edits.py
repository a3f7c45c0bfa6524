"""Edit: one repair of the graph as a value (spec section 4)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .nodes import new_id

__all__ = ["Edit", "EditKind"]

EditKind = str  # "expand" | "prune" | "reshape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One repair: what was done to which nodes, why, and what became of it.

    ``targets`` are the node ids that were added (expand), cut (prune) or rewritten (reshape; ``after`` then maps the
    target to its new version's id under ``"variants"``). ``kept`` is None while the task runs, True when the task
    succeeded and needed the edit, False when it was rolled back or undone. ``round`` counts from 1.
    """

    kind: EditKind
    targets: tuple[str, ...]
    reason: str
    id: str = field(default_factory=new_id)
    granularity: str | None = None
    round: int = 0
    kept: bool | None = None
    episode_id: str | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    created_at: float = field(default_factory=time.time)
