"""Stage III: lived episodes become skills, and the graph is tidied (spec section 5)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import NotFoundError
from fluxmem_local.graph import DistillEdge, EpisodicNode, Node, ProceduralNode
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM
from fluxmem_local.memory_store import MemoryStore, Transaction
from fluxmem_local.types import FloatArray, Layer, NodeState

from .advice import SkillWriter
from .budget import Budget, BudgetSpent
from .clustering import cluster_episodes, clustering_digest, clusters_of, labels_of, word_vectors
from .evolution import ReplayFn
from .families import Family, find_families, is_induced
from .kinds import regroup_by_kind
from .planning import Planned, Planner
from .regrouping import merge_families
from .report import ConsolidationReport, completed
from .tidying import TidyPlan, apply_tidying, plan_tidying
from .transitions import Lessons, plan_lessons, write_lessons

__all__ = ["ConsolidationReport", "StageIII"]

_CLUSTERED = "clustered"


class StageIII:
    """Consolidates a memory. ``embedder`` None: episodes are clustered by their words; ``llm`` None: no words added."""

    def __init__(
        self, store: MemoryStore, embedder: BaseEmbedder | None, llm: BaseLLM | None, config: FluxMemConfig
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._llm = llm
        self._config = config
        # The labels of new clusters, for the next run.
        self._clustered: str | None = None

    async def run(
        self, replay_fn: ReplayFn | None = None, dry_run: bool = False, *, budget: Budget | None = None
    ) -> ConsolidationReport:
        """Cluster, induce or update, validate, score, refine; note which places lead where; tidy.

        Models and replays work outside of transactions. Each skill is written in one as soon as it is done, so that a
        run that is killed or cancelled loses at most the skill it was at, and the next one goes on from there; tidying
        is the last transaction. A skill whose episodes were changed meanwhile is skipped and named in the report. While
        no answer of the language model could be used, nothing is written. Running again on the same episodes changes
        nothing.

        Args:
            replay_fn: ``(episode, skill) -> bool``, sync or async: does the episode's task succeed with this skill?
                None: recorded evidence decides. Its errors come out; nothing of the skill at hand is written then.
            dry_run: only report.
            budget: after which no further skill is begun; None: all are worked on.
        """
        writer = SkillWriter(self._llm, budget)
        num_clusters, families, vectors = await self._families()
        planner = Planner(
            self._store,
            self._config,
            embedder=self._embedder,
            writer=writer,
            replay_fn=replay_fn,
            vectors=vectors,
        )
        written: list[Planned] = []
        skipped: list[tuple[str, str]] = []
        kept: list[tuple[str, str]] = []
        split: list[tuple[str, str]] = []
        held: list[list[Planned]] = []
        num_left = 0
        for family in families:
            if num_left or writer.budget.is_spent:
                num_left += planner.has_news(family)
                continue
            try:
                plans = await planner.plan(family)
            except BudgetSpent:
                num_left += 1
                continue
            if plans:
                held.append(plans)
                split += [(plans[0].node.id, plan.node.id) for plan in plans[1:]]
            elif family.skill is not None:
                kept.append((family.skill.id, "nothing new in its episodes"))
            # Where a model has answered nothing but nonsense so far, that is to be mended first.
            while held and not writer.is_hopeless:
                plans = held.pop(0)
                reason = None if dry_run else await asyncio.to_thread(self._write_all, plans)
                if reason is None:
                    written += plans
                else:
                    skipped += [(plan.node.id, reason) for plan in plans]
        if writer.is_hopeless:
            unused = "no answer of the language model could be used"
            skipped += [(plan.node.id, unused) for plans in held for plan in plans]
            tidy, lessons = TidyPlan(tidied_at=time.time()), Lessons()
        else:
            lessons = await plan_lessons(
                self._store, await asyncio.to_thread(self._episodes), self._embedder, self._config
            )
            tidy = await asyncio.to_thread(self._tidy, lessons, dry_run)
        report = ConsolidationReport(
            clusters=num_clusters,
            learned_facts=tuple(node.id for node in lessons.new),
            dropped=tuple((id, "its episodes show it no longer") for id in lessons.gone),
            split_skills=tuple(split),
            skipped=tuple(skipped),
            kept=tuple(kept),
            pems_history={},
            llm_calls=writer.num_calls,
            llm_failures=writer.num_failures,
            bad_answers=dict(sorted(writer.bad_answers.items())),
            num_left=num_left,
            dry_run=dry_run,
            status="failed" if writer.is_hopeless else "partial" if num_left else "ok",
        )
        skills = await asyncio.to_thread(self._skills)
        return completed(report, written, tidy, skills, self._store, self._config, writer.count_tokens)

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

    def _clusters(self, episodes: Sequence[EpisodicNode], rows: FloatArray) -> list[tuple[EpisodicNode, ...]]:
        """Cluster episodes, or take the clusters of the last run, when nothing has changed since: they cost most."""
        number, seed, least = self._config.num_clusters, self._config.seed, self._config.min_support
        digest = clustering_digest(episodes, rows, [number, seed, least])
        known = json.loads(self._store.meta(_CLUSTERED) or "{}")
        if known.get("digest") == digest:
            return clusters_of(episodes, known["labels"])
        clusters = cluster_episodes(episodes, rows, num_clusters=number, seed=seed, min_size=least)
        self._clustered = json.dumps({"digest": digest, "labels": labels_of(clusters)})
        return clusters

    async def _families(self) -> tuple[int, list[Family], dict[str, FloatArray]]:
        """Return the number of clusters, the families to work on, and the episodes' vectors by id."""
        episodes = await asyncio.to_thread(self._episodes)
        rows = await self._vectors(episodes)
        clusters = await asyncio.to_thread(self._clusters, episodes, rows)
        if self._config.num_clusters is None:
            clusters = await asyncio.to_thread(regroup_by_kind, clusters, min_support=self._config.min_support)
        vectors = {episode.id: row for episode, row in zip(episodes, rows, strict=True)}
        families = find_families(
            clusters,
            await asyncio.to_thread(self._skills),
            vectors,
            min_support=self._config.min_support,
            trust_clusters=self._config.num_clusters is not None,
            spent=await asyncio.to_thread(self._store.spent_episodes),
        )
        return len(clusters), await asyncio.to_thread(merge_families, families), vectors

    # ---- writing

    def _write_all(self, plans: Sequence[Planned]) -> str | None:
        """Write the skills of one family in one transaction; returns why not, when something changed meanwhile."""
        with self._store.transaction() as change:
            own = {plan.family.skill.id for plan in plans if plan.family.skill is not None}
            others = [skill for skill in self._skills() if is_induced(skill) and skill.id not in own]
            scope = plans[0].node.scope
            claimed = {id for skill in others if skill.scope == scope for id in skill.source_episode_ids}
            for plan in plans:
                reason = self._changed_since(plan.family, claimed)
                if reason is not None:
                    return reason
            for plan in plans:
                self._write(change, plan)
        return None

    def _tidy(self, lessons: Lessons, dry_run: bool) -> TidyPlan:
        if dry_run:
            return plan_tidying(self._store, self._config, now=time.time())
        with self._store.transaction() as change:
            write_lessons(change, lessons, self._store)
            tidy = plan_tidying(self._store, self._config, now=time.time())
            apply_tidying(change, tidy, self._store)
            if self._clustered is not None:
                change.set_meta(_CLUSTERED, self._clustered)
        return tidy

    def _changed_since(self, family: Family, claimed: set[str]) -> str | None:
        skills = (*family.absorbed, *(() if family.skill is None else (family.skill,)))
        read = (*family.successes, *family.failures, *skills)
        try:
            present = self._store.get_many([node.id for node in read])
        except NotFoundError:
            return "an episode or the skill itself was forgotten meanwhile; run it again"
        if any(_as_read(old) != _as_read(new) for old, new in zip(read, present, strict=True)):
            return "an episode or the skill itself was changed meanwhile; run it again"
        ids = {episode.id for episode in family.successes}
        if family.skill is None and not ids.isdisjoint(claimed):
            return "another consolidation made a skill of these episodes meanwhile"
        if family.skill is None and not ids.isdisjoint(self._store.spent_episodes()):
            return "a skill of these episodes was forgotten meanwhile"
        return None

    def _write(self, change: Transaction, plan: Planned) -> None:
        node = plan.node
        if plan.family.skill is None:
            change.add_nodes([node])
        else:
            change.replace(node, reason="consolidation")
        for ended in plan.ended:
            change.replace(ended, reason=str(ended.metadata["ended_because"]))
        # Episodes that went to another skill, and those of a skill that went into this one.
        before = plan.family.skill.source_episode_ids if plan.family.skill is not None else ()
        moved = [(node.id, set(before) - set(node.source_episode_ids))]
        moved += [(skill.id, set(skill.source_episode_ids)) for skill in plan.family.absorbed]
        gone = [
            edge.id
            for id, sources in moved
            if sources
            for edge in self._store.edges(target_ids=[id], source_ids=list(sources), kinds=("distill",))
        ]
        if gone:
            change.delete_edges(gone)
        linked = {edge.source_id for edge in self._store.edges(target_ids=[node.id], kinds=("distill",))}
        change.add_edges(
            [DistillEdge(source_id=id, target_id=node.id) for id in node.source_episode_ids if id not in linked]
        )


def _as_read(node: Node) -> Node:
    """Leave out that an episode was confirmed: each task that succeeds with it does so, and no skill depends on it."""
    return replace(node, confirmed_at=None) if isinstance(node, EpisodicNode) else node
