"""Settlement: what a finished task leaves in the memory, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fluxmem_local.graph import (
    DistillEdge,
    Edge,
    Edit,
    EpisodicNode,
    GroundEdge,
    Node,
    ProceduralNode,
    StepLinkEdge,
)
from fluxmem_local.memory_store import MemoryStore, Outcome, Transaction
from fluxmem_local.types import Layer, NodeState

from .edits import Change
from .refinement import Progress

__all__ = ["settle_success", "settle_without_success", "use_edges"]


def use_edges(episode_id: str, nodes: Sequence[Node]) -> list[Edge]:
    """Make the edges of nodes that served an episode: facts ground it, and it vouches for skills."""
    edges: list[Edge] = []
    for node in nodes:
        if node.layer is Layer.SEMANTIC:
            edges.append(GroundEdge(source_id=node.id, target_id=episode_id))
        elif node.layer is Layer.PROCEDURAL:
            edges.append(DistillEdge(source_id=episode_id, target_id=node.id, metadata={"via": "use"}))
    return edges


def settle_success(store: MemoryStore, progress: Progress, episode: EpisodicNode) -> tuple[Edit, ...]:
    """Keep what was needed, roll the rest back, link the episode to what served it; return the edits as they stand."""
    kept = [change for change in progress.active if _was_needed(change, progress)]
    dropped = [change for change in progress.active if change not in kept]
    dropped_ids = {node.id for change in dropped for node in (*change.added, *change.variants.values())}
    dropped_ids -= {node.id for change in kept for node in change.added}
    served = {node.id: node for subgraph in progress.succeeded for node in subgraph.nodes if node.id not in dropped_ids}
    misled = {id for change in kept for id in _misled(change)} - set(served)
    with store.transaction() as transaction:
        _collect_step_links(store, transaction, episode.id)
        _delete_versions(store, transaction, dropped)
        # While the task ran, anyone may have forgotten what it used, and a version may be of one that is taken back.
        versions = [node.id for change in kept for node in change.variants.values()]
        originals = [id for change in kept for id in change.variants]
        there = store.present([*served, *misled, *versions, *originals])
        served = {id: node for id, node in served.items() if id in there}
        misled &= there
        versions = [id for id in versions if id in there]
        edges = [*use_edges(episode.id, list(served.values())), *_inherited(store, kept, there)]
        final = _finished_edits(store, progress, kept, edges, misled)
        activated = _edges_among(store, list(served), list(served))
        failed = _edges_among(store, sorted(misled), [id for each in progress.activated for id in each.ids])
        if versions:
            transaction.set_state(versions, NodeState.ACTIVE)
        transaction.replace(episode)
        transaction.add_edges(edges)
        outcomes = [Outcome(node_id=id, episode_id=episode.id, helped=1) for id in served]
        outcomes += [Outcome(node_id=id, episode_id=episode.id, hurt=1) for id in sorted(misled)]
        transaction.record_outcomes(outcomes)
        transaction.count_activations(activated, success=True)
        transaction.count_activations([id for id in failed if id not in set(activated)], success=False)
        for edit in final:
            transaction.put_edit(edit)
    return final


def settle_without_success(
    store: MemoryStore, progress: Progress, episode: EpisodicNode, *, alike: float
) -> tuple[Edit, ...]:
    """Roll every edit back and record the episode, unlinked; return the edits as they stand.

    What tasks of at least the similarity ``alike`` had taught did not hold, so their links to what the failed rounds
    started from count a failure more, unless the failure came from outside of the memory.
    """
    final = tuple(replace(edit, kept=False) for edit in progress.edits.values())
    with store.transaction() as transaction:
        if episode.status == "failed" and progress.attributions and progress.attributions[0].action != "none":
            transaction.count_activations(_links_that_failed(store, progress, alike), success=False)
        _collect_step_links(store, transaction, episode.id)
        _delete_versions(store, transaction, progress.active)
        transaction.replace(episode)
        for edit in final:
            transaction.put_edit(edit)
    return final


def _links_that_failed(store: MemoryStore, progress: Progress, alike: float) -> list[str]:
    """The links between the failed step's first context and the tasks in it that are like this one."""
    step = progress.rounds[-1]["step"]
    shown = next(done["context_ids"] for done in progress.rounds if done["step"] == step)
    there = store.present(shown)
    first = [id for id in shown if id in there]
    vector = progress.episode.embedding
    tasks = [node.id for node in store.get_many(first) if node.layer is Layer.EPISODIC]
    if vector is None or not tasks:
        return []
    similar = [id for id, row in zip(tasks, store.embeddings(tasks), strict=True) if float(row @ vector) >= alike]
    return _edges_among(store, similar, first) if similar else []


def _was_needed(change: Change, progress: Progress) -> bool:
    """Tell whether a change shaped a round that succeeded, and was not refuted before."""
    if change.edit.id in progress.refuted:
        return False
    served = {id for subgraph in progress.succeeded for id in subgraph.ids}
    brought = {node.id for node in (*change.added, *change.variants.values())}
    last = set(progress.succeeded[-1].ids)
    return bool(brought & served) or bool(change.cut - last) or bool(change.views.keys() & last)


def _misled(change: Change) -> frozenset[str]:
    # What a version stands in for failed at its granularity; what was cut misled.
    return change.cut | frozenset(change.variants)


def _inherited(store: MemoryStore, kept: Sequence[Change], there: set[str]) -> list[Edge]:
    """Let each kept skill version be reached from the episodes that led to its original."""
    edges: list[Edge] = []
    for change in kept:
        for original_id, version in change.variants.items():
            if not isinstance(version, ProceduralNode) or not {original_id, version.id} <= there:
                continue
            sources = [edge.source_id for edge in store.edges(target_ids=[original_id], kinds=("distill",))]
            if store.get(original_id).layer is Layer.EPISODIC:
                sources.append(original_id)
            edges += [
                DistillEdge(source_id=id, target_id=version.id, metadata={"via": "reshape"})
                for id in dict.fromkeys(sources)
            ]
    return edges


def _instead(store: MemoryStore, change: Change, progress: Progress) -> list[str]:
    """Find what served in place of each node that was cut: of all that served, the one most like it.

    Of eighteen labelled failures by a misleading memory, it was the one that was needed in each.
    """
    served = [id for id in progress.succeeded[-1].ids if id not in change.cut]
    there = store.present([*served, *change.cut])
    cut, served = sorted(change.cut & there), [id for id in served if id in there]
    if not cut or not served:
        return []
    likeness = store.embeddings(cut) @ store.embeddings(served).T
    nearest = [served[int(row.argmax())] for row in likeness if row.max() > 0]
    return list(dict.fromkeys(nearest))


def _finished_edits(
    store: MemoryStore, progress: Progress, kept: Sequence[Change], edges: Sequence[Edge], misled: set[str]
) -> tuple[Edit, ...]:
    needed = {change.edit.id: change for change in kept}
    final = []
    for edit in progress.edits.values():
        if edit.id not in needed:
            final.append(replace(edit, kept=False))
            continue
        change = needed[edit.id]
        brought = {node.id for node in (*change.added, *change.variants.values())}
        final.append(
            replace(
                edit,
                kept=True,
                after={
                    **edit.after,
                    "helped": sorted(brought),
                    "hurt": sorted(_misled(change) & misled),
                    **({"instead": _instead(store, change, progress)} if change.cut else {}),
                    "edge_ids": [edge.id for edge in edges if {edge.source_id, edge.target_id} & brought],
                    "context_ids": list(progress.succeeded[-1].ids),
                },
            )
        )
    return tuple(final)


def _edges_among(store: MemoryStore, ids: Sequence[str], others: Sequence[str]) -> list[str]:
    kinds = ("ground", "distill")
    edges = [
        *store.edges(source_ids=ids, target_ids=others, kinds=kinds),
        *store.edges(source_ids=others, target_ids=ids, kinds=kinds),
    ]
    return list(dict.fromkeys(edge.id for edge in edges))


def _collect_step_links(store: MemoryStore, transaction: Transaction, episode_id: str) -> None:
    links = store.edges(source_ids=[episode_id], kinds=(StepLinkEdge.kind,))
    if links:
        transaction.delete_edges([link.id for link in links])


def _delete_versions(store: MemoryStore, transaction: Transaction, changes: Sequence[Change]) -> None:
    versions = list(store.present([node.id for change in changes for node in change.variants.values()]))
    if versions:
        transaction.delete_nodes(versions)
