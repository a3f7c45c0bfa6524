"""Skills: inherited along DistillEdges from the retrieved episodes, and a few by their own words (spec section 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import EpisodicNode, Node
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import Layer

from .candidates import find_candidates, get_visible
from .experience import trust_in
from .hits import Hit
from .query import Query, word_similarity
from .ranking import content_signals, rank_nodes, signal_weights

__all__ = ["inherit_skills", "retrieve_skills"]

# Skills that no retrieved episode vouches for (imported, hand-written) in one context.
_SKILLS_WITHOUT_EPISODE = 2


def retrieve_skills(
    store: MemoryStore, query: Query, *, top_k: int, config: FluxMemConfig, drop_dispensable: bool = False
) -> list[Hit]:
    """Return the ``top_k`` skills whose own text answers the query best, best first."""
    nodes = find_candidates(store, query, Layer.PROCEDURAL, top_k * config.candidate_factor)
    statistics = store.term_statistics(Layer.PROCEDURAL, query.tokens, [node.id for node in nodes])
    computed = content_signals(query, nodes, statistics)
    return rank_nodes(
        query,
        nodes,
        computed,
        top_k=top_k,
        weights=signal_weights(config),
        limit=top_k,
        drop_dispensable=drop_dispensable,
    )


def inherit_skills(store: MemoryStore, query: Query, episodes: Sequence[Hit], *, config: FluxMemConfig) -> list[Hit]:
    """Return the skills distilled from the retrieved episodes that succeeded, best first.

    A skill counts as much as its best episode does, by similarity and by the trust in the edge. With them come skills
    that a repair brought into similar tasks, and at most two whose own text is no clutter to the task
    (``prune_similarity_threshold``): a skill that has no episode yet would never be seen. What similar tasks did
    better without is left out.
    """
    vouched = _vouched(store, query, episodes)
    for variant in store.variants(*vouched):
        assert variant.variant_of is not None
        vouched.setdefault(variant.id, vouched[variant.variant_of])
    skills = {node.id: node for node in get_visible(store, query, Layer.PROCEDURAL, vouched)}
    found = find_candidates(store, query, Layer.PROCEDURAL, _SKILLS_WITHOUT_EPISODE * config.candidate_factor)
    for node in found:
        if node.id in query.experience.repairs:
            skills.setdefault(node.id, node)
    strangers = [node for node in found if node.id not in skills and node.variant_of not in skills]
    own = _own_similarity(query, [*skills.values(), *strangers])
    strangers = [
        node
        for node in strangers
        if own[node.id] >= config.prune_similarity_threshold and node.id not in query.experience.misleading
    ]
    strangers.sort(key=lambda node: (-own[node.id], node.id))
    nodes = [*skills.values(), *strangers[:_SKILLS_WITHOUT_EPISODE]]
    strength = np.array([max(vouched.get(node.id, 0.0), own[node.id]) for node in nodes], np.float32)
    return rank_nodes(
        query,
        nodes,
        {"dense": np.clip(strength, 0.0, 1.0)},
        top_k=len(nodes),
        weights={"dense": 1.0, "graph": config.graph_weight},
        drop_dispensable=True,
    )


def _vouched(store: MemoryStore, query: Query, episodes: Sequence[Hit]) -> dict[str, float]:
    succeeded = [hit.node for hit in episodes if isinstance(hit.node, EpisodicNode) and hit.node.success]
    alike = _own_similarity(query, succeeded)
    edges = store.edges(source_ids=list(alike), kinds=("distill",)) if alike else []
    vouched: dict[str, float] = {}
    for edge, value in zip(edges, trust_in(edges), strict=True):
        strength = alike[edge.source_id] * float(value)
        vouched[edge.target_id] = max(strength, vouched.get(edge.target_id, strength))
    return vouched


def _own_similarity(query: Query, nodes: Sequence[Node]) -> dict[str, float]:
    """Compare by embeddings, and by words what has none: how like it others are says nothing about its own use."""
    cosines = query.cosines(nodes)
    return {
        node.id: word_similarity(query.text, node.content)
        if cosines is None or node.embedding is None
        else float(cosines[place])
        for place, node in enumerate(nodes)
    }
