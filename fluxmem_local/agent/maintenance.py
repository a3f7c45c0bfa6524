"""Maintenance: re-embedding, and the memory as a file that can be carried elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fluxmem_local.errors import ModelNotFoundError
from fluxmem_local.graph import Node
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.results import ByKey
from fluxmem_local.types import FloatArray

__all__ = ["ReindexReport", "reindex"]

_NODES_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexReport(ByKey):
    """What a reindex did: nodes embedded, and the embedder before and after it (None: the memory had none)."""

    num_embedded: int
    fingerprint_before: str | None
    fingerprint: str


async def reindex(
    store: MemoryStore, embedder: BaseEmbedder | None, *, on_progress: Callable[[int], None] | None = None
) -> ReindexReport:
    """Embed all nodes that have no vector of this embedder, then build the indices anew.

    The vectors of another embedder are used by everyone until all new ones are there, and are replaced all at once.
    Each batch is committed, so that a reindex that was cut short goes on where it stopped.

    Args:
        store: the memory, opened with ``accept_other_embedder=True`` when another embedder wrote it.
        embedder: the embedder that the memory has from now on.
        on_progress: called after each batch with the number of nodes in it.

    Raises:
        ModelNotFoundError: there is no embedder.
    """
    if embedder is None:
        raise ModelNotFoundError(
            "reindex needs an embedder; set embedding_model to a registry name or a model directory"
        )
    before = store.fingerprint
    # Before anything is changed: an embedder that fails must fail here.
    await embedder.embed_text("one text to see that this embedder works")
    num_embedded = 0
    if before != embedder.fingerprint:
        await asyncio.to_thread(store.begin_reembedding, embedder.fingerprint, embedder.dimension)
        ended = False
        while not ended:
            # What others add or change meanwhile is found by the next round.
            num_embedded += await _embed(store.not_reembedded, store.reembed, embedder, on_progress)
            ended = await asyncio.to_thread(store.end_reembedding)
    num_embedded += await _embed(store.unembedded, partial(_set_embeddings, store), embedder, on_progress)
    await asyncio.to_thread(store.rebuild_indices)
    return ReindexReport(num_embedded=num_embedded, fingerprint_before=before, fingerprint=embedder.fingerprint)


async def _embed(
    missing: Callable[[int], list[Node]],
    keep: Callable[[Sequence[Node], FloatArray], None],
    embedder: BaseEmbedder,
    on_progress: Callable[[int], None] | None,
) -> int:
    """Embed what is missing, batch by batch, and return its number."""
    number = 0
    while nodes := await asyncio.to_thread(missing, _NODES_AT_ONCE):
        vectors = await embedder.embed_batch([node.content for node in nodes])
        await asyncio.to_thread(keep, nodes, vectors)
        number += len(nodes)
        if on_progress is not None:
            on_progress(len(nodes))
    return number


def _set_embeddings(store: MemoryStore, nodes: Sequence[Node], vectors: FloatArray) -> None:
    with store.transaction() as change:
        change.set_embeddings([node.id for node in nodes], vectors)
