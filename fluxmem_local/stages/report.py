"""ConsolidationReport: what a consolidation did, for programs and people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import EpisodicNode, ProceduralNode, Subgraph
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.metrics import graph_pems
from fluxmem_local.results import ByKey
from fluxmem_local.retrieval import serialize_context
from fluxmem_local.types import NodeState

from .families import is_induced
from .planning import Planned
from .tidying import TidyPlan

__all__ = ["ConsolidationReport", "completed"]

_NO_BUDGET = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationReport(ByKey):
    """What a consolidation did, or with ``dry_run`` would do.

    ``clusters`` is their number. ``learned_facts`` are new facts on which places lead where. ``pems_history`` has for
    each skill the pairs of version and p_v in the order in which they were scored; ``graph_pems`` is the mean p_v of
    all active skills that have one. ``converged`` tells whether all induced skills have settled. ``kept``, ``merged``,
    ``dropped``, ``split_skills`` and ``merged_skills`` are pairs of an id and the reason or what became of it.
    ``tokens_saved`` says for each settled skill how many tokens shorter a context is with it than with the newest of
    its episodes, for which it stands in. ``bad_answers`` counts answers of the language model that could not be used,
    by what was wrong.

    ``status`` is "partial" when the budget was spent before ``num_left`` families of episodes with news were worked on;
    running again goes on with those. It is "failed" when the language model was asked and not one of its answers could
    be used; nothing is changed then, and ``skipped`` names what would have been written.

    ``forgotten`` are pairs of an id and the reason: what the rules of retention did not keep, whatever the status.
    """

    clusters: int
    learned_facts: tuple[str, ...] = ()
    induced_skills: tuple[str, ...] = ()
    updated_skills: tuple[str, ...] = ()
    split_skills: tuple[tuple[str, str], ...] = ()
    merged_skills: tuple[tuple[str, str], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    demoted: tuple[tuple[str, str], ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    merged: tuple[tuple[str, str], ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()
    pruned_edges: tuple[str, ...] = ()
    forgotten: tuple[tuple[str, str], ...] = ()
    pems_history: Mapping[str, tuple[tuple[int, float], ...]]
    graph_pems: float = 0.0
    converged: bool = False
    tokens_saved: Mapping[str, int] = field(default_factory=dict)
    llm_calls: int = 0
    llm_failures: int = 0
    bad_answers: Mapping[str, int] = field(default_factory=dict)
    num_left: int = 0
    dry_run: bool = False
    status: str = "ok"


def completed(
    report: ConsolidationReport,
    written: Sequence[Planned],
    tidy: TidyPlan,
    skills: Sequence[ProceduralNode],
    store: MemoryStore,
    config: FluxMemConfig,
    count_tokens: Callable[[str], int],
) -> ConsolidationReport:
    """Put into a report what became of the skills; in a dry run, of the skills as they would be."""
    new = [plan.node for plan in written if plan.family.skill is None]
    updated = [plan.node for plan in written if plan.family.skill is not None]
    by_id = {skill.id: skill for skill in (*skills, *new, *updated)}
    absorbed = {skill.id: plan.node.id for plan in written for skill in plan.family.absorbed}
    specific = [
        (node.id, str(node.metadata["ended_because"]))
        for node in (*new, *updated)
        if node.state is NodeState.DEMOTED and "ended_because" in node.metadata
    ]
    aside = {*absorbed, *(id for id, _ in tidy.demoted)}
    active = [node for id, node in by_id.items() if node.state is NodeState.ACTIVE and id not in aside]
    settled = [node for node in active if node.metadata.get("converged")]
    return replace(
        report,
        induced_skills=tuple(node.id for node in new),
        updated_skills=tuple(node.id for node in updated),
        merged_skills=tuple(absorbed.items()),
        demoted=(*specific, *tidy.demoted),
        kept=(*report.kept, *((node.id, _why_kept(node)) for node in (*new, *updated))),
        merged=tuple((id, f"says the same as {merge.keep.id}") for merge in tidy.merges for id in merge.drop_ids),
        dropped=(
            *report.dropped,
            *((id, "a step link of a task that is over") for id in tidy.step_edges),
            *((id, "the unfinished version of a dead task") for id in tidy.trial_nodes),
            *tidy.pruned_edges,
        ),
        pems_history={id: _scores(node) for id, node in by_id.items()},
        pruned_edges=tuple(id for id, _ in tidy.pruned_edges),
        graph_pems=graph_pems([node.pems_score for node in active if node.pems_score is not None]),
        converged=any(map(is_induced, active))
        and all(bool(node.metadata.get("converged")) for node in active if is_induced(node)),
        tokens_saved={node.id: _tokens_saved(node, store, config, count_tokens) for node in settled},
    )


def _tokens_saved(
    skill: ProceduralNode, store: MemoryStore, config: FluxMemConfig, count_tokens: Callable[[str], int]
) -> int:
    ids = store.present(skill.source_episode_ids)
    episodes = [node for node in store.get_many(sorted(ids)) if isinstance(node, EpisodicNode)]
    episodes.sort(key=lambda episode: (-episode.created_at, episode.id))
    with_skill = Subgraph(task="t", procedural=(skill,))
    with_episodes = Subgraph(task="t", episodic=tuple(episodes[: config.top_k_episodic]))
    short, long = (
        serialize_context(graph, token_budget=_NO_BUDGET, count_tokens=count_tokens).num_tokens
        for graph in (with_skill, with_episodes)
    )
    return long - short


def _scores(node: ProceduralNode) -> tuple[tuple[int, float], ...]:
    scores = {past.version: past.pems_score for past in node.version_history} | {node.version: node.pems_score}
    return tuple((version, score) for version, score in sorted(scores.items()) if score is not None)


def _why_kept(node: ProceduralNode) -> str:
    settled = "settled" if node.metadata.get("converged") else "not settled yet"
    return (
        f"version {node.version}, PEMS {node.pems_score or 0.0:.4f}, {len(node.source_episode_ids)} episodes, {settled}"
    )
