"""Small values that stand beside nodes and edges: outcomes and lines of history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ELSEWHERE", "HistoryEntry", "Outcome"]

# The metadata key under which an imported skill keeps all its sources, where this memory does not hold each of them.
ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a node did in an episode: in how many tries it helped, in how many it hurt."""

    node_id: str
    episode_id: str
    helped: int = 0
    hurt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One line of a node's history: what happened, when (seconds since 1970, UTC), and the content after it.

    ``action`` is "added", "updated", "reverted" (back to an earlier content), "reshaped into" (``content`` is the
    version's, ``metadata`` names its id under "variant"), "reshape undone", or, without content, "expanded into a
    context", "pruned from a context", "expand undone" or "prune undone". ``edit_id`` is what ``undo`` takes.
    """

    node_id: str
    action: str
    at: float
    content: str = ""
    reason: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    edit_id: str | None = None
