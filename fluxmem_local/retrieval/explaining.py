"""Explanations: what connects each hit with the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fluxmem_local.graph import Edge, Edit
from fluxmem_local.memory_store import MemoryStore

from .hits import Explanation, Hit
from .query import Query

__all__ = ["explain"]


def explain(store: MemoryStore, query: Query, hits: Sequence[Hit], weights: Mapping[str, float]) -> list[Hit]:
    """Return the hits with their explanations: weights, and the edges and kept repairs of similar past tasks."""
    tasks = query.experience.tasks
    ids = {hit.node.id for hit in hits}
    edges: dict[str, list[Edge]] = {id: [] for id in ids}
    for edge in _edges(store, list(tasks)):
        for end in {edge.source_id, edge.target_id} & ids:
            edges[end].append(edge)
    edits: dict[str, list[Edit]] = {id: [] for id in ids}
    for edit in store.edits(episode_ids=list(tasks)):
        variants = edit.after.get("variants", {}).values() if edit.kind == "reshape" else ()
        for id in {*edit.targets, *variants} & ids if edit.kept else ():
            edits[id].append(edit)
    return [
        replace(
            hit,
            explanation=Explanation(
                weights={name: weights[name] for name in hit.signals if name in weights},
                tasks={
                    id: similarity
                    for id, similarity in tasks.items()
                    if any(id in (edge.source_id, edge.target_id) for edge in edges[hit.node.id])
                    or any(edit.episode_id == id for edit in edits[hit.node.id])
                },
                edges=tuple(edges[hit.node.id]),
                edits=tuple(edits[hit.node.id]),
            ),
        )
        for hit in hits
    ]


def _edges(store: MemoryStore, task_ids: list[str]) -> list[Edge]:
    if not task_ids:
        return []
    return [
        *store.edges(target_ids=task_ids, kinds=("ground",)),
        *store.edges(source_ids=task_ids, kinds=("distill",)),
    ]
