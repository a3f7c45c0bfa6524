"""Tidying: what long use leaves behind, planned first and then applied in the transaction (spec section 5, S4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import Edge, ProceduralNode, SemanticNode
from fluxmem_local.memory_store import MemoryStore, Transaction
from fluxmem_local.text import near_key
from fluxmem_local.types import Layer, NodeState, Scope

from .families import is_induced

__all__ = ["Merge", "TidyPlan", "apply_tidying", "plan_tidying"]

DAY_S = 86_400.0
# An edge that nothing used loses half its weight in this time; each success makes the time longer by as much.
HALF_LIFE_DAYS = 90
# Under this weight an edge without a success goes, unless it is younger than this.
WEIGHT_FLOOR = 0.1
YOUNG_DAYS = 30
# A skill is demoted when it was tried in so many tasks and helped in fewer than this part of them.
MIN_TRIALS = 5
SUCCESS_FLOOR = 0.3
# A skill whose episodes were forgotten down to one has one instance's word only.
MIN_INSTANCES = 2
_TIDIED_AT = "tidied_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Facts of one scope that say the same: the one to keep, and those that go into it."""

    keep: SemanticNode
    drop_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TidyPlan:
    """What tidying would change; pairs are of an id and the reason."""

    tidied_at: float
    weights: Mapping[str, float] = field(default_factory=dict)
    pruned_edges: tuple[tuple[str, str], ...] = ()
    step_edges: tuple[str, ...] = ()
    merges: tuple[Merge, ...] = ()
    demoted: tuple[tuple[str, str], ...] = ()
    interrupted: tuple[str, ...] = ()
    trial_nodes: tuple[str, ...] = ()


def plan_tidying(store: MemoryStore, config: FluxMemConfig, *, now: float) -> TidyPlan:
    """Find what is to be tidied, and change nothing.

    Planning again after applying, on the same day, finds nothing.
    """
    skills = [
        node
        for node in store.select(layers=(Layer.PROCEDURAL,), states=(NodeState.ACTIVE,))
        if isinstance(node, ProceduralNode)
    ]
    edges = store.edges(kinds=("ground", "distill"))
    weights, tidied_at = _decayed(store, edges, now)
    pruned = _faded(edges, weights, skills, now)
    gone = {id for id, _ in pruned}
    step_edges = store.edges(kinds=("step",))
    dead, running_ids = store.dead_tasks(now=now)
    return TidyPlan(
        weights={id: weight for id, weight in weights.items() if id not in gone},
        pruned_edges=pruned,
        step_edges=tuple(edge.id for edge in step_edges if edge.source_id not in running_ids),
        merges=_duplicates(store),
        demoted=_demoted(store, skills, config),
        interrupted=tuple(dead),
        trial_nodes=_trial_nodes(store, dead),
        tidied_at=tidied_at,
    )


def apply_tidying(change: Transaction, plan: TidyPlan, store: MemoryStore) -> None:
    """Make a plan's changes; to be called in the transaction in which it was planned."""
    edge_ids = [*(id for id, _ in plan.pruned_edges), *plan.step_edges]
    if plan.weights:
        change.reweigh_edges(plan.weights)
    if edge_ids:
        change.delete_edges(edge_ids)
    if plan.interrupted:
        change.end_tasks(plan.interrupted)
    for merge in plan.merges:
        change.merge_nodes(merge.keep.id, merge.drop_ids)
        merged = store.get(merge.keep.id)
        if merged.metadata != merge.keep.metadata:
            change.replace(replace(merged, metadata=merge.keep.metadata), reason="merged with duplicates")
    if plan.demoted:
        change.set_state([id for id, _ in plan.demoted], NodeState.DEMOTED)
    if store.meta(_TIDIED_AT) != repr(plan.tidied_at):
        change.set_meta(_TIDIED_AT, repr(plan.tidied_at))


def _decayed(store: MemoryStore, edges: Sequence[Edge], now: float) -> tuple[dict[str, float], float]:
    """Weights that changed in the whole days since the last time, and the time up to which they are now decayed."""
    known = store.meta(_TIDIED_AT)
    since = None if known is None else float(known)
    weights = {}
    for edge in edges:
        begin = edge.created_at if since is None else max(since, edge.created_at)
        days = int(max(0.0, now - begin) // DAY_S)
        if days:
            weights[edge.id] = edge.weight * 0.5 ** (days / (HALF_LIFE_DAYS * (1 + edge.success_count)))
    if since is None:
        return weights, now
    return weights, since + max(0.0, (now - since) // DAY_S) * DAY_S


def _faded(
    edges: Sequence[Edge], weights: Mapping[str, float], skills: Sequence[ProceduralNode], now: float
) -> tuple[tuple[str, str], ...]:
    sources = {(episode_id, skill.id) for skill in skills for episode_id in skill.source_episode_ids}
    return tuple(
        (edge.id, f"{edge.kind} edge: no success in {(now - edge.created_at) / DAY_S:.0f} days")
        for edge in edges
        # What a skill was distilled from is its provenance, used or not.
        if edge.success_count == 0
        and now - edge.created_at >= YOUNG_DAYS * DAY_S
        and weights.get(edge.id, edge.weight) < WEIGHT_FLOOR
        and (edge.source_id, edge.target_id) not in sources
    )


def _duplicates(store: MemoryStore) -> tuple[Merge, ...]:
    first: dict[tuple[Scope, tuple[str, ...]], list[str]] = {}
    for node in store.iterate(layers=(Layer.SEMANTIC,)):
        key = (node.scope, near_key(node.content))
        if key[1]:
            first.setdefault(key, []).append(node.id)
    merges = []
    for ids in first.values():
        if len(ids) > 1:
            merge = _merge([node for node in store.get_many(ids) if isinstance(node, SemanticNode)])
            if merge is not None:
                merges.append(merge)
    return tuple(merges)


def _merge(nodes: Sequence[SemanticNode]) -> Merge | None:
    """Merge into the oldest original; facts whose metadata contradict each other are two facts."""
    keep, *others = sorted(nodes, key=lambda node: (node.variant_of is not None, node.created_at, node.id))
    metadata = dict(keep.metadata)
    drop_ids = []
    for node in others:
        if all(metadata.get(key, value) == value for key, value in node.metadata.items()):
            metadata |= node.metadata
            drop_ids.append(node.id)
    return Merge(keep=replace(keep, metadata=metadata), drop_ids=tuple(drop_ids)) if drop_ids else None


def _demoted(
    store: MemoryStore, skills: Sequence[ProceduralNode], config: FluxMemConfig
) -> tuple[tuple[str, str], ...]:
    demoted = []
    tried: dict[str, list[bool]] = {}
    for outcome in store.outcomes(node_ids=[skill.id for skill in skills]):
        if outcome.helped or outcome.hurt:
            tried.setdefault(outcome.node_id, []).append(outcome.helped > outcome.hurt)
    for skill in skills:
        results = tried.get(skill.id, [])
        least = min(MIN_INSTANCES, config.min_support)
        if len(results) >= MIN_TRIALS and sum(results) < SUCCESS_FLOOR * len(results):
            demoted.append((skill.id, f"helped in {sum(results)} of the {len(results)} tasks that used it"))
        elif is_induced(skill) and len(skill.source_episode_ids) < least:
            demoted.append((skill.id, f"{len(skill.source_episode_ids)} source episodes are left, {least} are needed"))
    return tuple(demoted)


def _trial_nodes(store: MemoryStore, episode_ids: Collection[str]) -> tuple[str, ...]:
    """Find the unfinished versions that dead tasks left."""
    edits = [edit for edit in store.edits(episode_ids=episode_ids) if edit.kept is None]
    made = {id for edit in edits for id in dict(edit.after.get("variants", {})).values()}
    on_trial = store.select(states=(NodeState.TRIAL,)) if made else []
    return tuple(node.id for node in on_trial if node.id in made)
