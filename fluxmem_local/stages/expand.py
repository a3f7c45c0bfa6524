"""Expand: bring memories that the failed step lacked into its context."""

from __future__ import annotations

from fluxmem_local.graph import Edit, Node

from .edits import Change
from .evidence import Evidence, Failure

__all__ = ["propose_expand"]


def propose_expand(evidence: Evidence, failure: Failure, node_ids: tuple[str, ...], reason: str) -> Change | None:
    """Make the edit that adds ``node_ids``, as far as the evidence found them outside of the context."""
    found = {item.node.id: item.node for item in evidence.outside}
    nodes: tuple[Node, ...] = tuple(found[id] for id in node_ids if id in found)
    if not nodes:
        return None
    return Change(
        edit=Edit(
            kind="expand",
            targets=tuple(node.id for node in nodes),
            reason=reason,
            round=failure.round,
            episode_id=failure.episode_id,
            before={"context_ids": list(failure.subgraph.ids)},
        ),
        added=nodes,
    )
