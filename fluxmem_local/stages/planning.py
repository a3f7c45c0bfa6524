"""Planning: what a family of episodes makes of its skill, before anything is written."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import ProceduralNode, Skill
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.types import FloatArray, NodeState, Origin

from .advice import SkillWriter
from .cases import collect_cases
from .evolution import Evidence, Evolution, ReplayFn, evolve_skill
from .families import MERGED_INTO, Family, known_structure
from .induction import induce_skill
from .regrouping import split_family
from .teaching import share_subject

__all__ = ["Planned", "Planner"]

# One in so many successes is held out.
_HELD_OUT_OF = 5
# A skill is too specific when so many held-out episodes, and fewer than this part of them, succeed with it.
_LEAST_HELD_OUT = 2
_SPECIFIC_SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A skill to write, and what it was made from: it is written only if that is still there unchanged."""

    node: ProceduralNode
    family: Family

    @property
    def ended(self) -> tuple[ProceduralNode, ...]:
        """The absorbed skills as they are put aside, with the reason."""
        return tuple(
            replace(
                skill,
                state=NodeState.DEMOTED,
                metadata={
                    **skill.metadata,
                    MERGED_INTO: self.node.id,
                    "ended_because": f"merged into {self.node.id}: both are one way",
                },
            )
            for skill in self.family.absorbed
        )


class Planner:
    """Works out skills: induction, held-out validation, evolution, and whether a family must be split."""

    def __init__(
        self,
        store: MemoryStore,
        config: FluxMemConfig,
        *,
        embedder: BaseEmbedder | None,
        writer: SkillWriter,
        replay_fn: ReplayFn | None,
        vectors: Mapping[str, FloatArray],
    ) -> None:
        self._store = store
        self._config = config
        self._embedder = embedder
        self._writer = writer
        self._replay_fn = replay_fn
        self._vectors = vectors

    async def plan(self, family: Family) -> list[Planned]:
        """Work out a family's skill, or two where it must be split; none when nothing is new, or nothing in common.

        Raises:
            BudgetSpent: the time was over before it was done.
        """
        known = family.skill
        outcomes = await asyncio.to_thread(self._outcomes, known)
        digest = family.digest(outcomes, replayed=self._replay_fn is not None)
        if not _is_news(family, digest):
            return []
        self._writer.budget.check()
        structure = await asyncio.to_thread(induce_skill, family.successes, family.failures)
        before = known_structure(known)
        if before is not None and (before.description or before.unsupported):
            structure = structure.advised(before)
        else:
            held_out = _held_out(family, self._config)
            seen = [each for each in family.successes if each.id not in held_out]
            structure = await self._writer.advise(structure, seen)
        evolution = await self._evolve(family, structure, outcomes)
        parts = await asyncio.to_thread(
            split_family,
            family,
            structure,
            evolution.failed_ids,
            self._vectors,
            min_support=self._config.min_support,
            seed=self._config.seed,
        )
        if parts is not None:
            return [planned for part in parts for planned in await self.plan(part)]
        if evolution.rejected and before is not None:
            structure = before
        metadata = {
            **evolution.node.metadata,
            "name": structure.name,
            "structure": structure.to_dict(),
            "cases": [case.to_dict() for case in collect_cases(structure, family.successes, family.failures)],
            "digest": digest,
            "failed_episode_ids": [episode.id for episode in family.failures],
        }
        return [Planned(node=_judged(replace(evolution.node, metadata=metadata)), family=family)]

    async def _evolve(self, family: Family, structure: Skill, outcomes: Sequence[Outcome]) -> Evolution:
        known = family.skill
        held_out = _held_out(family, self._config)
        part = None
        if held_out:
            seen = [episode for episode in family.successes if episode.id not in held_out]
            induced = await asyncio.to_thread(induce_skill, seen, family.failures)
            part = induced.advised(structure).render()
        text = structure.render()
        source_ids = tuple(episode.id for episode in family.successes)
        candidate = None
        if known is None:
            node = ProceduralNode(
                skill_text=text,
                scope=family.successes[0].scope,
                source_episode_ids=source_ids,
                added_by=Origin.DERIVED,
            )
        else:
            node = replace(known, source_episode_ids=source_ids)
            before = known_structure(known)
            unchanged = (node.skill_text, before.render() if before is not None else "")
            candidate = text if text not in unchanged else None
        return await evolve_skill(
            node,
            Evidence(
                structure=structure,
                sources=family.successes,
                failures=family.failures,
                outcomes=tuple(outcomes),
                held_out=held_out,
                part=part,
            ),
            candidate=candidate,
            embedder=self._embedder,
            writer=self._writer,
            config=self._config,
            replay_fn=self._replay_fn,
        )

    def has_news(self, family: Family) -> bool:
        """Tell whether ``plan`` would work on a family."""
        return _is_news(family, family.digest(self._outcomes(family.skill), replayed=self._replay_fn is not None))

    def _outcomes(self, skill: ProceduralNode | None) -> list[Outcome]:
        ids = [] if skill is None else [skill.id]
        return [each for each in self._store.outcomes(node_ids=ids) if each.helped or each.hurt]


def _is_news(family: Family, digest: str) -> bool:
    known = family.skill
    if known is None:
        return share_subject(family.successes)
    return known.metadata.get("digest") != digest or known.pems_score is None


def _held_out(family: Family, config: FluxMemConfig) -> frozenset[str]:
    """Choose the episodes that versions are validated on: the same for the same episodes, whatever their order.

    None while the rest would be fewer than ``min_support``.
    """
    number = max(1, len(family.successes) // _HELD_OUT_OF)
    if len(family.successes) - number < config.min_support:
        return frozenset()
    ids = [episode.id for episode in family.successes]
    return frozenset(sorted(ids, key=lambda id: hashlib.sha256(id.encode()).digest())[:number])


def _judged(node: ProceduralNode) -> ProceduralNode:
    """Put a skill aside that does not generalise to episodes it was not made from, and take it back when it does."""
    evidence = node.metadata["evidence"]
    specific = (
        evidence["held_out"] >= _LEAST_HELD_OUT
        and evidence["held_out_succeeded"] < _SPECIFIC_SHARE * evidence["held_out"]
    )
    if specific:
        served, number = evidence["held_out_succeeded"], evidence["held_out"]
        reason = f"too specific: {served} of {number} held-out episodes succeed with it"
        return replace(node, state=NodeState.DEMOTED, metadata={**node.metadata, "ended_because": reason})
    if node.state is NodeState.DEMOTED and "ended_because" in node.metadata:
        metadata = {name: value for name, value in node.metadata.items() if name != "ended_because"}
        return replace(node, state=NodeState.ACTIVE, metadata=metadata)
    return node
