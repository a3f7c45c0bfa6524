"""The graph's own rules (spec section 2) as checks that name what breaks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fluxmem_local.types import Layer, NodeState

from .edges import Edge, StepLinkEdge, edge_may_join
from .nodes import EpisodicNode, Node

__all__ = ["edge_problems", "node_problems"]


def edge_problems(edge: Edge, layers: Mapping[str, Layer], running: set[str]) -> Iterator[str]:
    """Name what is wrong with an edge, given the layer of each node and the ids of the running episodes."""
    ends = (edge.source_id, edge.target_id)
    missing = [end for end in ends if end not in layers]
    if missing:
        yield f"{edge.kind} edge {edge.id} dangles: node {missing[0]} is not there"
        return
    source, target = (layers[end] for end in ends)
    if not edge_may_join(edge.kind, source, target):
        yield f"{edge.kind} edge {edge.id} goes from a {source} to a {target} node"
    if isinstance(edge, StepLinkEdge) and edge.source_id not in running:
        yield f"step edge {edge.id} was not collected: {edge.source_id} is no running episode"


def node_problems(node: Node, trial_of: str | None, running: set[str]) -> Iterator[str]:
    """Name what is wrong with a node, given the episode that it is on trial for."""
    if node.state is NodeState.TRIAL and trial_of not in running:
        yield f"node {node.id} was left on trial: {trial_of} is no running episode"
    if (
        isinstance(node, EpisodicNode)
        and (node.status == "running") != (node.success is None)
        and (node.status != "interrupted")
    ):
        yield f"episode {node.id} has status {node.status} and success {node.success}"
