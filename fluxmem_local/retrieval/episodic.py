"""Episodes: past tasks like this one, by cosine to the observation with the task (spec section 3)."""

from __future__ import annotations

from collections.abc import Sequence

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import EpisodicNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import Layer

from .candidates import find_candidates, get_present
from .hits import Hit
from .query import Query, word_similarity
from .ranking import content_signals, rank_nodes

__all__ = ["retrieve_episodes", "similar_tasks"]

# The weights of the configuration are for facts: episodes are chosen by likeness.
_WEIGHTS = {"dense": 1.0, "bm25": 1.0, "graph": 0.0}


def retrieve_episodes(
    store: MemoryStore, query: Query, *, top_k: int, config: FluxMemConfig, drop_dispensable: bool = False
) -> list[Hit]:
    """Return the ``top_k`` most similar episodes that are not running, best first.

    The cosine alone ranks them; what repaired or misled similar tasks is lifted or sunk. Words rank where the memory
    has no embedder.
    """
    count = top_k * config.candidate_factor
    while True:
        found = find_candidates(store, query, Layer.EPISODIC, count)
        finished = [node for node in found if isinstance(node, EpisodicNode) and node.status != "running"]
        # Running episodes may crowd out the finished ones.
        if len(finished) >= top_k or len(found) < count:
            break
        count *= 2
    cosines = query.cosines(finished)
    if cosines is None:
        statistics = store.term_statistics(Layer.EPISODIC, query.tokens, [node.id for node in finished])
        computed = content_signals(query, finished, statistics)
    else:
        computed = {"dense": cosines}
    return rank_nodes(
        query, finished, computed, top_k=top_k, weights=_WEIGHTS, limit=top_k, drop_dispensable=drop_dispensable
    )


def similar_tasks(
    store: MemoryStore, queries: Sequence[Query], *, count: int, threshold: float
) -> list[tuple[EpisodicNode, float]]:
    """Find the ``count`` finished tasks most like one of the queries, with their similarity of at least ``threshold``.

    Similarity is the cosine of embeddings, or of token sets where the memory has no embedder.
    """
    tasks: dict[str, EpisodicNode] = {}
    similarities: dict[str, float] = {}
    for query in queries:
        for node, similarity in _finished(store, query, count, threshold):
            similarities[node.id] = max(similarity, similarities.get(node.id, similarity))
            tasks[node.id] = node
    order = sorted(similarities, key=lambda id: (-similarities[id], id))
    return [(tasks[id], similarities[id]) for id in order[:count]]


def _finished(store: MemoryStore, query: Query, count: int, threshold: float) -> list[tuple[EpisodicNode, float]]:
    asked = count
    while True:
        if query.vector is None:
            found = store.lexical(Layer.EPISODIC, query.text, asked, **query.view.options)
            nodes = get_present(store, [id for id, _ in found])
            alike = {node.id: word_similarity(query.text, node.content) for node in nodes}
        else:
            found = store.nearest(Layer.EPISODIC, query.vector, asked, **query.view.options)
            alike = dict(found)
            nodes = get_present(store, [id for id, similarity in found if similarity >= threshold])
        finished = [
            (node, alike[node.id])
            for node in nodes
            if isinstance(node, EpisodicNode) and node.status != "running" and alike[node.id] >= threshold
        ]
        # Running episodes may crowd out the finished ones.
        if len(finished) >= count or len(found) < asked or len(nodes) < len(found):
            return finished[:count]
        asked *= 2
