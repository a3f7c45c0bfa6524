"""Facts: dense, BM25, the language model's verification and learned connectivity together (spec section 3)."""

from __future__ import annotations

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.interfaces import BaseLLM
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import Layer

from .candidates import find_candidates
from .hits import Hit
from .query import Query
from .ranking import content_signals, rank_nodes, signal_weights
from .verification import verify_nodes

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
    nodes = find_candidates(store, query, Layer.SEMANTIC, top_k * config.candidate_factor)
    weights = signal_weights(config)
    computed = content_signals(store, Layer.SEMANTIC, query, nodes)
    hits = rank_nodes(query, nodes, computed, top_k=top_k, weights=weights, drop_dispensable=drop_dispensable)
    if llm is None or config.llm_weight == 0 or not hits:
        return hits[:top_k]
    best = {hit.node.id for hit in hits[: top_k * _VERIFIED_PER_PLACE]}
    kept = [position for position, node in enumerate(nodes) if node.id in best]
    read = [nodes[position] for position in kept]
    verified = await verify_nodes(llm, query.text, read)
    if verified is None:
        return hits[:top_k]
    named = {**{name: values[kept] for name, values in computed.items()}, "llm": verified}
    return rank_nodes(query, read, named, top_k=top_k, weights=weights, limit=top_k)
