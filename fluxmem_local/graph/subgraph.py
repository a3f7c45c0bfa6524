"""G_t(q): the part of the graph that one step sees (spec section 3)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .nodes import EpisodicNode, Node, ProceduralNode, SemanticNode

__all__ = ["Subgraph"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """What a step activated, by layer and most useful first; editing one makes a new one."""

    task: str
    observation: str = ""
    semantic: tuple[SemanticNode, ...] = ()
    episodic: tuple[EpisodicNode, ...] = ()
    procedural: tuple[ProceduralNode, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes: facts, then episodes, then skills."""
        return (*self.semantic, *self.episodic, *self.procedural)

    @property
    def ids(self) -> tuple[str, ...]:
        """The nodes' ids in their order."""
        return tuple(node.id for node in self.nodes)

    @property
    def query(self) -> str:
        """Task and observation as one text, the query of Stage I."""
        return f"{self.task}\n{self.observation}".strip()

    def with_nodes(self, nodes: Sequence[Node]) -> Subgraph:
        """Put exactly these nodes in, in their order within each layer."""
        return replace(
            self,
            semantic=tuple(node for node in nodes if isinstance(node, SemanticNode)),
            episodic=tuple(node for node in nodes if isinstance(node, EpisodicNode)),
            procedural=tuple(node for node in nodes if isinstance(node, ProceduralNode)),
        )

    def expanded(self, nodes: Iterable[Node]) -> Subgraph:
        """Add nodes in front of their layer, in their order; those that are in already stay where they are."""
        present = set(self.ids)
        fresh = [node for node in nodes if node.id not in present]
        return self.with_nodes([*fresh, *self.nodes])

    def pruned(self, ids: Collection[str]) -> Subgraph:
        """Take nodes out; ids that are not in are passed over."""
        return self.with_nodes([node for node in self.nodes if node.id not in ids])

    def reshaped(self, variants: Mapping[str, Node]) -> Subgraph:
        """Let each variant stand in for the node whose id it is keyed by."""
        return self.with_nodes([variants.get(node.id, node) for node in self.nodes])
