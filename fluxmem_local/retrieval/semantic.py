"""Facts: meaning, words, context and cues to one ranking, then the language model's word (spec section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import Node
from fluxmem_local.interfaces import BaseLLM
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.text import HEADINGS, near_key
from fluxmem_local.types import FloatArray, Layer

from . import cues, signals
from .candidates import find_candidates, get_visible
from .hits import Hit
from .query import Query
from .ranking import content_signals, rank_nodes, signal_weights
from .verification import evidence_of, verify_nodes
from .windows import WINDOW_PLACES, lexical_trust, window_bm25, window_weights

__all__ = ["retrieve_facts"]

# The language model reads this many candidates for each place in the answer: reading is by far the dearest signal.
_VERIFIED_PER_PLACE = 2


async def retrieve_facts(
    store: MemoryStore,
    query: Query,
    *,
    top_k: int,
    config: FluxMemConfig,
    llm: BaseLLM | None,
    drop_dispensable: bool = False,
) -> list[Hit]:
    """Return the ``top_k`` best facts, best first; ``llm`` None ranks without verification."""
    found = find_candidates(store, query, Layer.SEMANTIC, top_k * config.candidate_factor)
    nodes, beside = _with_adjacent(store, query, found)
    weights = signal_weights(config)
    computed = _fact_signals(store, query, nodes, beside, config.context_reach)
    ranked = rank_nodes(query, nodes, computed, top_k=top_k, weights=weights, drop_dispensable=drop_dispensable)
    hits = _repeats_last(ranked, top_k * _VERIFIED_PER_PLACE)
    if llm is None or not llm.verifies_claims or config.llm_weight == 0 or not hits:
        return hits[:top_k]
    best = {hit.node.id for hit in hits}
    kept = [position for position, node in enumerate(nodes) if node.id in best]
    read = [nodes[position] for position in kept]
    before = {id: around[-1] for id, around in beside.items() if -1 in around and id in best}
    earlier = {node.id: node for node in get_visible(store, query, Layer.SEMANTIC, before.values())}
    evidences = [evidence_of(node, earlier.get(before.get(node.id, ""))) for node in read]
    verified = await verify_nodes(llm, query.text, evidences)
    if verified is None:
        return hits[:top_k]
    named = {**{name: values[kept] for name, values in computed.items()}, "llm": signals.among_read(verified)}
    return _repeats_last(rank_nodes(query, read, named, top_k=top_k, weights=weights), top_k)


def _repeats_last(hits: list[Hit], limit: int) -> list[Hit]:
    """Return the first ``limit`` hits, after which comes what says the same as a better one and tells nothing new."""
    seen: set[tuple[str, ...]] = set()
    first: list[Hit] = []
    repeated: list[Hit] = []
    for hit in hits:
        key = near_key(hit.node.content)
        (repeated if key in seen else first).append(hit)
        seen.add(key)
        if len(first) == limit:
            return first
    sunk = 1.0 + hits[0].score - hits[-1].score if repeated else 0.0
    return [*first, *(replace(hit, score=hit.score - sunk) for hit in repeated)][:limit]


def _with_adjacent(
    store: MemoryStore, query: Query, found: Sequence[Node]
) -> tuple[list[Node], dict[str, dict[int, str]]]:
    """Add what stands right before and after each candidate (an answer follows its question).

    Returns:
        All of them, and what stands beside each, by id and offset.
    """
    # One place more than a window, for the windows of the added ones.
    beside = store.neighbours(
        [node.id for node in found], WINDOW_PLACES + 1, scope=query.view.scope, **query.view.times
    )
    for id, neighbours in list(beside.items()):
        for step in (-1, 1):
            if step in neighbours and neighbours[step] not in beside:
                shifted = {offset - step: other for offset, other in {**neighbours, 0: id}.items() if offset != step}
                beside[neighbours[step]] = shifted
    known = {node.id for node in found}
    return [*found, *get_visible(store, query, Layer.SEMANTIC, [id for id in beside if id not in known])], beside


def _fact_signals(
    store: MemoryStore, query: Query, nodes: Sequence[Node], beside: Mapping[str, Mapping[int, str]], reach: float
) -> dict[str, FloatArray]:
    if not nodes:
        return {}
    ids = [node.id for node in nodes]
    known = list(dict.fromkeys([*ids, *(other for id in ids for other in beside.get(id, {}).values())]))
    statistics = store.term_statistics(Layer.SEMANTIC, query.tokens, known)
    computed = content_signals(query, nodes, statistics)
    places = {id: place for place, id in enumerate(known)}
    weights = window_weights(ids, beside, places, statistics.lengths, reach)
    headings = [str(node.metadata.get(HEADINGS, "")) for node in nodes]
    trust = np.float32(lexical_trust(query.words, statistics))
    computed["bm25"] = trust * computed["bm25"]
    computed["context"] = trust * signals.bm25(window_bm25(statistics, weights, headings))
    computed["statement"] = cues.statement(nodes, statistics.lengths[: len(nodes)])
    computed["speaker"] = cues.spoken_by(nodes, query.text)
    dates = cues.dated(nodes, query.text, query.view.today)
    if dates is not None:
        computed["date"] = dates
    return computed
