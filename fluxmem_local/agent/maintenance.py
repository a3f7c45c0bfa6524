"""Maintenance: re-embedding, and the memory as a file that can be carried elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    # Before the old vectors are given up: an embedder that fails must fail here.
    await embedder.embed_text("one text to see that this embedder works")
    if before != embedder.fingerprint:
        await asyncio.to_thread(store.replace_embedder, embedder.fingerprint, embedder.dimension)
    num_embedded = 0
    while nodes := await asyncio.to_thread(store.unembedded, _NODES_AT_ONCE):
        vectors = await embedder.embed_batch([node.content for node in nodes])
        await asyncio.to_thread(_set_embeddings, store, nodes, vectors)
        num_embedded += len(nodes)
        if on_progress is not None:
            on_progress(len(nodes))
    await asyncio.to_thread(store.rebuild_indices)
    return ReindexReport(num_embedded=num_embedded, fingerprint_before=before, fingerprint=embedder.fingerprint)


def _set_embeddings(store: MemoryStore, nodes: Sequence[Node], vectors: FloatArray) -> None:
    with store.transaction() as change:
        change.set_embeddings([node.id for node in nodes], vectors)
