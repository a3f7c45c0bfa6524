"""Hit: one retrieved node, and why it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fluxmem_local.graph import Edge, Edit, Node
from fluxmem_local.types import JsonObject

__all__ = ["Explanation", "Hit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a hit's place comes from.

    ``weights`` has the weight of each of its signals. ``tasks`` are the similar past tasks that it took part in, by
    episode id with their similarity to the question; ``edges`` (ground, distill) and ``edits`` (kept repairs) are what
    connects it with them.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    tasks: Mapping[str, float] = field(default_factory=dict)
    edges: tuple[Edge, ...] = ()
    edits: tuple[Edit, ...] = ()

    def to_dict(self) -> JsonObject:
        """Return it as JSON values; of edges and edits what tells them apart."""
        return {
            "weights": dict(self.weights),
            "tasks": dict(self.tasks),
            "edges": [
                {"id": edge.id, "kind": edge.kind, "source_id": edge.source_id, "target_id": edge.target_id}
                for edge in self.edges
            ],
            "edits": [{"id": edit.id, "kind": edit.kind, "reason": edit.reason} for edit in self.edits],
        }


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved node with its score (higher is better) and the signals behind it.

    ``signals`` has a value for each signal that ran, in [0, 1]: ``dense``, ``bm25``, ``context``, ``statement``,
    ``speaker``, ``date``, ``llm`` (0 for what the model found least supported of all that it read); and ``graph``, what
    similar tasks taught, in [-1, 1]. ``trust`` is there when a candidate is an agent's own word: -1 for it, else 0.
    ``explanation`` is there when it was asked for.
    """

    node: Node
    score: float
    signals: Mapping[str, float] = field(default_factory=dict)
    explanation: Explanation | None = None

    def to_dict(self) -> JsonObject:
        """Return the hit as JSON values, without the embedding."""
        return {
            "id": self.node.id,
            "layer": str(self.node.layer),
            "content": self.node.content,
            "source": getattr(self.node, "source", ""),
            "added_by": str(self.node.added_by),
            "trusted": self.node.trusted,
            "metadata": dict(self.node.metadata),
            "score": self.score,
            "signals": dict(self.signals),
            **({"explanation": self.explanation.to_dict()} if self.explanation is not None else {}),
        }
