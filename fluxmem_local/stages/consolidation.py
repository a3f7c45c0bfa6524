"""Stage III: lived episodes become skills, and the graph is tidied (spec section 5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import NotFoundError
from fluxmem_local.graph import DistillEdge, EpisodicNode, ProceduralNode, Skill
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM
from fluxmem_local.memory_store import MemoryStore, Outcome, Transaction
from fluxmem_local.metrics import graph_pems
from fluxmem_local.results import ByKey
from fluxmem_local.types import FloatArray, Layer, NodeState

from .advice import SkillWriter
from .clustering import cluster_episodes, word_vectors
from .evolution import Evidence, ReplayFn, evolve_skill
from .families import Family, find_families, is_induced
from .induction import induce_skill
from .teaching import share_subject
from .tidying import TidyPlan, apply_tidying, plan_tidying

__all__ = ["ConsolidationReport", "StageIII"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationReport(ByKey):
    """What a consolidation did, or with ``dry_run`` would do.

    ``clusters`` is their number. ``pems_history`` has for each skill the pairs of version and p_v in the order in which
    they were scored; ``graph_pems`` is the mean p_v of all active skills that have one. ``converged`` tells whether all
    induced skills have settled. ``kept``, ``merged`` and ``dropped`` are pairs of a node or edge id and the reason.
    ``status`` is "failed" when the language model was asked and not one of its answers could be used; nothing is
    changed then, and ``skipped`` names what would have been written.
    """

    clusters: int
    induced_skills: tuple[str, ...] = ()
    updated_skills: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    demoted: tuple[tuple[str, str], ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    merged: tuple[tuple[str, str], ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()
    pruned_edges: tuple[str, ...] = ()
    pems_history: Mapping[str, tuple[tuple[int, float], ...]]
    graph_pems: float = 0.0
    converged: bool = False
    llm_calls: int = 0
    llm_failures: int = 0
    dry_run: bool = False
    status: str = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A skill to write, and what it was made from: it is written only if that is still there unchanged."""

    node: ProceduralNode
    family: Family


class StageIII:
    """Consolidates a memory. ``embedder`` None: episodes are clustered by their words; ``llm`` None: no words added."""

    def __init__(
        self, store: MemoryStore, embedder: BaseEmbedder | None, llm: BaseLLM | None, config: FluxMemConfig
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._llm = llm
        self._config = config

    async def run(self, replay_fn: ReplayFn | None = None, dry_run: bool = False) -> ConsolidationReport:
        """Cluster, induce or update, validate, score, refine, tidy.

        All work of models and replays comes first; then one transaction writes everything. A skill whose episodes were
        changed meanwhile is skipped and named in the report. Running again on the same episodes changes nothing.

        Args:
            replay_fn: ``(episode, skill) -> bool``, sync or async: does the episode's task succeed with this skill?
                None: recorded evidence decides. Its errors come out, and nothing is changed then.
            dry_run: only report.
        """
        writer = SkillWriter(self._llm)
        episodes = await asyncio.to_thread(self._episodes)
        vectors = await self._vectors(episodes)
        clusters = await asyncio.to_thread(
            cluster_episodes,
            episodes,
            vectors,
            num_clusters=self._config.num_clusters,
            seed=self._config.seed,
            min_size=self._config.min_support,
        )
        families = find_families(
            clusters,
            await asyncio.to_thread(self._skills),
            {episode.id: vector for episode, vector in zip(episodes, vectors, strict=True)},
            min_support=self._config.min_support,
            trust_clusters=self._config.num_clusters is not None,
            spent=await asyncio.to_thread(self._store.spent_episodes),
        )
        planned: list[_Planned] = []
        kept: list[tuple[str, str]] = []
        for family in families:
            plan = await self._plan(family, writer, replay_fn)
            if plan is not None:
                planned.append(plan)
            elif family.skill is not None:
                kept.append((family.skill.id, "nothing new in its episodes"))
        failed = 0 < writer.num_calls == writer.num_failures
        if failed:
            # A model that answers nothing but nonsense is set up wrong, and that is to be mended first.
            skipped = [(plan.node.id, "no answer of the language model could be used") for plan in planned]
            written: list[_Planned] = []
            tidy = TidyPlan(tidied_at=time.time())
        else:
            apply = self._preview if dry_run else self._apply
            written, skipped, tidy = await asyncio.to_thread(apply, planned)
        return self._report(
            written,
            tidy,
            ConsolidationReport(
                clusters=len(clusters),
                skipped=tuple(skipped),
                kept=tuple(kept),
                pems_history={},
                llm_calls=writer.num_calls,
                llm_failures=writer.num_failures,
                dry_run=dry_run,
                status="failed" if failed else "ok",
            ),
        )

    # ---- reading

    def _episodes(self) -> list[EpisodicNode]:
        nodes = self._store.select(layers=(Layer.EPISODIC,))
        finished = ("succeeded", "failed")
        return [node for node in nodes if isinstance(node, EpisodicNode) and node.status in finished]

    def _skills(self) -> list[ProceduralNode]:
        nodes = self._store.select(layers=(Layer.PROCEDURAL,), states=(NodeState.ACTIVE, NodeState.DEMOTED))
        return [node for node in nodes if isinstance(node, ProceduralNode)]

    async def _vectors(self, episodes: Sequence[EpisodicNode]) -> FloatArray:
        """Unit vectors of the episodes, shape ``(n, d)``: stored ones, and those that are missing made now."""
        stored = await asyncio.to_thread(self._store.embeddings, [episode.id for episode in episodes])
        missing = [place for place, row in enumerate(stored) if not row.any()]
        if not missing:
            return stored
        if self._embedder is None:
            return word_vectors([episode.content for episode in episodes])
        made = await self._embedder.embed_batch([episodes[place].content for place in missing])
        vectors = np.zeros((len(episodes), self._embedder.dimension), np.float32)
        if stored.shape == vectors.shape:
            vectors[:] = stored
        vectors[missing] = made / np.linalg.norm(made, axis=1, keepdims=True)
        return vectors

    # ---- planning

    async def _plan(self, family: Family, writer: SkillWriter, replay_fn: ReplayFn | None) -> _Planned | None:
        """Work out a family's skill; None when it has one and nothing is new."""
        known = family.skill
        if known is None and not share_subject(family.successes):
            return None
        outcomes = () if known is None else tuple(await asyncio.to_thread(self._outcomes, known.id))
        digest = family.digest(outcomes, replayed=replay_fn is not None)
        if known is not None and known.metadata.get("digest") == digest and known.pems_score is not None:
            return None
        induced = await asyncio.to_thread(induce_skill, family.successes, family.failures)
        before = None if known is None else Skill.from_dict(known.metadata["structure"])
        description = (before.description if before is not None else "") or await writer.describe(family.successes)
        structure = induced.described(description or "")
        text = structure.render()
        metadata = {
            "name": structure.name,
            "structure": structure.to_dict(),
            "digest": digest,
            "failed_episode_ids": [episode.id for episode in family.failures],
        }
        source_ids = tuple(episode.id for episode in family.successes)
        if known is None:
            node = ProceduralNode(
                skill_text=text,
                scope=family.successes[0].scope,
                source_episode_ids=source_ids,
                metadata=metadata,
            )
        else:
            node = replace(known, source_episode_ids=source_ids, metadata={**known.metadata, **metadata})
        evolution = await evolve_skill(
            node,
            Evidence(structure=structure, sources=family.successes, failures=family.failures, outcomes=outcomes),
            candidate=text if before is not None and text not in (before.render(), node.skill_text) else None,
            embedder=self._embedder,
            writer=writer,
            config=self._config,
            replay_fn=replay_fn,
        )
        return _Planned(node=evolution.node, family=family)

    def _outcomes(self, skill_id: str) -> list[Outcome]:
        return [each for each in self._store.outcomes(node_ids=[skill_id]) if each.helped or each.hurt]

    # ---- writing

    def _preview(self, planned: Sequence[_Planned]) -> tuple[list[_Planned], list[tuple[str, str]], TidyPlan]:
        return list(planned), [], plan_tidying(self._store, self._config, now=time.time())

    def _apply(self, planned: Sequence[_Planned]) -> tuple[list[_Planned], list[tuple[str, str]], TidyPlan]:
        written: list[_Planned] = []
        skipped: list[tuple[str, str]] = []
        with self._store.transaction() as change:
            claimed = {id for skill in self._skills() if is_induced(skill) for id in skill.source_episode_ids}
            for plan in planned:
                reason = self._changed_since(plan.family, claimed)
                if reason is None:
                    self._write(change, plan)
                    written.append(plan)
                else:
                    skipped.append((plan.node.id, reason))
            tidy = plan_tidying(self._store, self._config, now=time.time())
            apply_tidying(change, tidy, self._store)
        return written, skipped, tidy

    def _changed_since(self, family: Family, claimed: set[str]) -> str | None:
        read = (*family.successes, *family.failures, *(() if family.skill is None else (family.skill,)))
        try:
            present = self._store.get_many([node.id for node in read])
        except NotFoundError:
            return "an episode or the skill itself was forgotten meanwhile; run it again"
        if any(old != new for old, new in zip(read, present, strict=True)):
            return "an episode or the skill itself was changed meanwhile; run it again"
        if family.skill is None and claimed.intersection(episode.id for episode in family.successes):
            return "another consolidation made a skill of these episodes meanwhile"
        if family.skill is None and self._store.spent_episodes().intersection(each.id for each in family.successes):
            return "a skill of these episodes was forgotten meanwhile"
        return None

    def _write(self, change: Transaction, plan: _Planned) -> None:
        if plan.family.skill is None:
            change.add_nodes([plan.node])
        else:
            change.replace(plan.node, reason="consolidation")
        linked = {edge.source_id for edge in self._store.edges(target_ids=[plan.node.id], kinds=("distill",))}
        change.add_edges(
            [
                DistillEdge(source_id=id, target_id=plan.node.id)
                for id in plan.node.source_episode_ids
                if id not in linked
            ]
        )

    # ---- reporting

    def _report(self, written: Sequence[_Planned], tidy: TidyPlan, report: ConsolidationReport) -> ConsolidationReport:
        new = [plan.node for plan in written if plan.family.skill is None]
        updated = [plan.node for plan in written if plan.family.skill is not None]
        # A dry run reports on the skills as they would be.
        skills = {skill.id: skill for skill in (*self._skills(), *new, *updated)}
        demoted = {id for id, _ in tidy.demoted}
        active = [node for id, node in skills.items() if node.state is NodeState.ACTIVE and id not in demoted]
        return replace(
            report,
            induced_skills=tuple(node.id for node in new),
            updated_skills=tuple(node.id for node in updated),
            demoted=tidy.demoted,
            kept=(*report.kept, *((node.id, _why_kept(node)) for node in (*new, *updated))),
            merged=tuple((id, f"says the same as {merge.keep.id}") for merge in tidy.merges for id in merge.drop_ids),
            dropped=(
                *((id, "a step link of a task that is over") for id in tidy.step_edges),
                *((id, "the unfinished version of a dead task") for id in tidy.trial_nodes),
                *tidy.pruned_edges,
            ),
            pems_history={id: _scores(node) for id, node in skills.items()},
            pruned_edges=tuple(id for id, _ in tidy.pruned_edges),
            graph_pems=graph_pems([node.pems_score for node in active if node.pems_score is not None]),
            converged=any(map(is_induced, active))
            and all(bool(node.metadata.get("converged")) for node in active if is_induced(node)),
        )


def _scores(node: ProceduralNode) -> tuple[tuple[int, float], ...]:
    scores = {past.version: past.pems_score for past in node.version_history} | {node.version: node.pems_score}
    return tuple((version, score) for version, score in sorted(scores.items()) if score is not None)


def _why_kept(node: ProceduralNode) -> str:
    settled = "settled" if node.metadata.get("converged") else "not settled yet"
    return (
        f"version {node.version}, PEMS {node.pems_score or 0.0:.4f}, {len(node.source_episode_ids)} episodes, {settled}"
    )
