"""Hit: one retrieved node, and why it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fluxmem_local.graph import Node
from fluxmem_local.types import JsonObject

__all__ = ["Hit"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved node with its score (higher is better) and the signals behind it.

    ``signals`` has a value for each signal that ran: ``dense``, ``bm25`` and ``llm`` in [0, 1], ``graph`` (what similar
    tasks taught) in [-1, 1].
    """

    node: Node
    score: float
    signals: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> JsonObject:
        """Return the hit as JSON values, without the embedding."""
        return {
            "id": self.node.id,
            "layer": str(self.node.layer),
            "content": self.node.content,
            "source": getattr(self.node, "source", ""),
            "metadata": dict(self.node.metadata),
            "score": self.score,
            "signals": dict(self.signals),
        }
