"""What one scope may see of single memories."""

from __future__ import annotations

from collections.abc import Iterator

from fluxmem_local.errors import NotFoundError
from fluxmem_local.graph import Edge, Node
from fluxmem_local.memory_store import HistoryEntry, MemoryStore
from fluxmem_local.storage.portable_scope import lines_within
from fluxmem_local.types import NodeState, Scope

__all__ = ["lines_seen", "links_seen", "node_seen", "past_seen"]


def node_seen(store: MemoryStore, id: str, scope: Scope | None) -> Node:
    """Return a node that the scope sees; None sees everything.

    Raises:
        NotFoundError: there is none of this id, or it is somebody else's, which cannot be told apart.
    """
    node = store.get(id)
    if scope is not None and not scope.sees(node.scope):
        raise NotFoundError(f"no node {id!r} in this memory; list the ids with: fluxmem search")
    return node


def past_seen(store: MemoryStore, id: str, scope: Scope | None) -> list[HistoryEntry]:
    """Return what happened to a node, oldest first, without the repairs of tasks that the scope does not see.

    Raises:
        NotFoundError: there is no such node that the scope sees.
    """
    node_seen(store, id, scope)
    entries = store.history(id)
    if scope is None:
        return entries
    episodes = {edit.id: edit.episode_id for edit in store.edits(node_id=id)}

    def is_seen(entry: HistoryEntry) -> bool:
        if entry.edit_id is not None:
            return _is_seen(store, episodes.get(entry.edit_id), scope)
        return entry.action != "reshaped into" or _is_seen(store, entry.metadata["variant"], scope)

    return [entry for entry in entries if is_seen(entry)]


def links_seen(store: MemoryStore, id: str, scope: Scope | None) -> tuple[list[Edge], list[Node]]:
    """Return the edges of a node and its reshaped versions, as far as the scope sees what they lead to."""
    edges = [*store.edges(source_ids=[id]), *store.edges(target_ids=[id])]
    variants = store.variants(id)
    if scope is None:
        return edges, variants
    ends = dict.fromkeys(end for edge in edges for end in (edge.source_id, edge.target_id))
    seen = {end for end in ends if _is_seen(store, end, scope)}
    return (
        [edge for edge in edges if {edge.source_id, edge.target_id} <= seen],
        [variant for variant in variants if scope.sees(variant.scope)],
    )


def lines_seen(store: MemoryStore, scope: Scope | None) -> Iterator[str]:
    """Write the memory as JSON Lines, as far as the scope sees it."""
    if scope is None:
        return store.export_lines()
    seen = {node.id for node in store.iterate(scope=scope, states=tuple(NodeState))}
    return lines_within(store.export_lines(), scope, seen)


def _is_seen(store: MemoryStore, id: str | None, scope: Scope) -> bool:
    if id is None:
        return False
    try:
        return scope.sees(store.get(id).scope)
    except NotFoundError:
        return False
