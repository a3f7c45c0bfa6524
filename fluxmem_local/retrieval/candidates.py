"""Candidates: what each signal proposes, joined (spec section 3, never only the dense ones)."""

from __future__ import annotations

from collections.abc import Iterable

from fluxmem_local.errors import NotFoundError
from fluxmem_local.graph import Node
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import Layer

from .query import Query

__all__ = ["find_candidates", "get_present", "get_visible"]

# Ids looked up at once: each is a term of the database's condition.
_MAX_LINKED = 200


def find_candidates(store: MemoryStore, query: Query, layer: Layer, count: int) -> list[Node]:
    """Join the candidates by embedding, by words, and by links to similar past tasks.

    Each of the three proposes up to ``count`` nodes. Linked ones bring their reshaped versions with them, and a version
    its original, so that the better one can be chosen.
    """
    found: dict[str, None] = {}
    if query.vector is not None:
        found.update((id, None) for id, _ in store.nearest(layer, query.vector, count, **query.view.options))
    found.update((id, None) for id, _ in store.lexical(layer, query.text, count, **query.view.options))
    searched = get_present(store, found)
    linked = get_visible(store, query, layer, query.experience.node_ids)[:count]
    originals = {node.variant_of: None for node in (*searched, *linked) if node.variant_of is not None}
    versions = {variant.id: None for variant in store.variants(*(node.id for node in linked))}
    relatives = get_visible(store, query, layer, [id for id in (*originals, *versions) if id not in found])
    return list({node.id: node for node in (*searched, *linked, *relatives)}.values())


def get_visible(store: MemoryStore, query: Query, layer: Layer, ids: Iterable[str]) -> list[Node]:
    """Get those of the nodes that the question may see, in the order of their ids.

    Edges and outcomes lead anywhere; the question's scope and filters hold for what they lead to as well.
    """
    wanted = [id for id in ids if id not in query.view.exclude][:_MAX_LINKED]
    if not wanted:
        return []
    conditions = [{"id": {"in": wanted}}, *([query.view.filters] if query.view.filters else [])]
    view = query.view
    visible = store.select(layers=(layer,), scope=view.scope, filters={"and": conditions}, **view.times)
    return sorted(visible, key=lambda node: wanted.index(node.id))


def get_present(store: MemoryStore, ids: Iterable[str]) -> list[Node]:
    """Get the nodes that are still there, in their order: an id may be gone since it was looked up or recorded."""
    wanted = list(ids)
    try:
        return store.get_many(wanted)
    except NotFoundError:
        present = []
        for id in wanted:
            try:
                present.append(store.get(id))
            except NotFoundError:
                continue
        return present
