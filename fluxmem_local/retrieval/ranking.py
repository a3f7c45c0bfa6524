"""Ranking: candidates of one layer to hits, by content and by what similar tasks taught."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import Node
from fluxmem_local.index import TermStatistics
from fluxmem_local.types import FloatArray, Layer, NodeState

from . import signals
from .fusion import fuse, rank
from .hits import Hit
from .query import Query

__all__ = ["content_signals", "rank_nodes", "signal_weights"]


def signal_weights(config: FluxMemConfig) -> dict[str, float]:
    """Return the weight of each signal by its name in a hit."""
    return {
        "dense": config.dense_weight,
        "bm25": config.bm25_weight,
        "context": config.context_weight,
        "llm": config.llm_weight,
        "statement": config.statement_weight,
        "speaker": config.speaker_weight,
        "date": config.date_weight,
        "graph": config.graph_weight,
        "trust": config.trust_weight,
    }


def content_signals(query: Query, nodes: Sequence[Node], statistics: TermStatistics) -> dict[str, FloatArray]:
    """Compute ``dense`` (when the memory has an embedder) and ``bm25`` of n candidates: arrays ``(n,)`` by name.

    Args:
        query: the question.
        nodes: n candidates.
        statistics: of the question's tokens in them, and in others that follow.
    """
    computed: dict[str, FloatArray] = {}
    cosines = query.cosines(nodes)
    if cosines is not None:
        computed["dense"] = cosines
    scores = np.asarray(statistics.scores(query.tokens)[: len(nodes)], np.float32)
    # In a memory of a few facts a word that stands in half of them weighs nothing or less in BM25Okapi, and a match
    # would rank no higher than a miss. When no score is positive, the number of matched words stands in.
    if scores.max(initial=0.0) > 0:
        computed["bm25"] = signals.bm25(scores)
    else:
        computed["bm25"] = signals.bm25(np.array(query.overlaps([node.content for node in nodes]), np.float32))
    return computed


def rank_nodes(
    query: Query,
    nodes: Sequence[Node],
    computed: Mapping[str, FloatArray],
    *,
    top_k: int,
    weights: Mapping[str, float],
    limit: int | None = None,
    drop_dispensable: bool = False,
) -> list[Hit]:
    """Fuse, lift what repaired similar tasks, sink what misled them, keep one version of each memory, and rank.

    Args:
        query: the question.
        nodes: n candidates.
        computed: their content signals by name, each ``(n,)``.
        top_k: places in the final answer, which bounds the lifting.
        weights: of the signals by name, ``graph`` among them.
        limit: hits to return; None: all of them.
        drop_dispensable: leave out what a similar task did better without, in place of only ranking it last.
    """
    if not nodes:
        return []
    ids = [node.id for node in nodes]
    named = dict(computed)
    if query.experience.values:
        named["graph"] = query.experience.signal(ids, fuse(computed, weights), max(1, top_k // 2))
    # Episodes are records of what an agent did, and no word of its own on how things are.
    doubted = [not node.trusted and node.layer is not Layer.EPISODIC for node in nodes]
    if any(doubted):
        named["trust"] = -np.array(doubted, np.float32)
    scores = query.experience.lift(ids, fuse(named, weights), top_k)
    hits = [
        Hit(
            nodes[position],
            float(scores[position]),
            {name: float(values[position]) for name, values in named.items()},
        )
        for position in rank(ids, scores)
        if not (drop_dispensable and ids[position] in query.experience.dispensable)
    ]
    return _one_version_each(query, hits)[:limit]


def _one_version_each(query: Query, hits: list[Hit]) -> list[Hit]:
    """Keep of a memory and its reshaped versions the one that did best in similar tasks.

    Where nothing was learned it is the original: a version proved itself for its own kind of task only. An unfinished
    version is visible to the task that tries it out, which is about that version.
    """
    parents = {hit.node.id: hit.node.variant_of for hit in hits}

    def origin(id: str) -> str:
        seen: set[str] = set()
        while id not in seen and (parent := parents.get(id)) is not None:
            seen.add(id)
            id = parent
        return id

    def merit(hit: Hit) -> tuple[bool, bool, float, bool, float]:
        return (
            hit.node.state is NodeState.TRIAL,
            hit.node.id in query.experience.repairs,
            query.experience.proved.get(hit.node.id, 0.0),
            hit.node.variant_of is None,
            hit.score,
        )

    best: dict[str, Hit] = {}
    for hit in hits:
        family = origin(hit.node.id)
        if family not in best or merit(hit) > merit(best[family]):
            best[family] = hit
    chosen = {hit.node.id for hit in best.values()}
    return [hit for hit in hits if hit.node.id in chosen]
