"""Evolution: validate, score and refine one skill until its PEMS settles (spec section 5)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import EpisodicNode, ProceduralNode, Skill, SkillVersion
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.memory_store import Outcome
from fluxmem_local.metrics import embedding_shift, skill_pems
from fluxmem_local.types import FloatArray

from .advice import SkillWriter
from .antiunification import words_of

__all__ = ["Evidence", "Evolution", "ReplayFn", "evolve_skill"]

ReplayFn: TypeAlias = Callable[[EpisodicNode, ProceduralNode], bool | Awaitable[bool]]

# A replay may be a whole run of an agent.
_MOST_REPLAYS = 32
# A text states a step when it has this part of the words that all instances of the step share, and covers an episode
# when it states this part of the steps that the episode took.
_STATED_SHARE = 0.6
_COVERED_SHARE = 0.8
_TAKEN_SHARE = 0.5
_MOST_FAILURES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a skill is judged by: its source episodes, failed ones of the same kind, and what it did where it was used.

    ``structure`` is the skill as induced from the sources: it says which episode took which steps. ``held_out`` are the
    sources that no proposed version has seen, and ``part`` is the text induced without them.
    """

    structure: Skill
    sources: tuple[EpisodicNode, ...]
    failures: tuple[EpisodicNode, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    held_out: frozenset[str] = frozenset()
    part: str | None = None

    @property
    def shown(self) -> tuple[EpisodicNode, ...]:
        """The sources from which versions may be made."""
        return tuple(episode for episode in self.sources if episode.id not in self.held_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """The skill as it came out, whether it settled, and the versions that were scored: pairs of version and p_v.

    ``failed_ids`` are the sources that do not succeed with it; ``rejected`` tells that what new evidence induced failed
    on held-out episodes.
    """

    node: ProceduralNode
    converged: bool
    scored: tuple[tuple[int, float], ...]
    failed_ids: frozenset[str] = frozenset()
    rejected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    number: int
    text: str
    embedding: FloatArray | None
    success_rate: float
    num_tokens: int
    shift: float
    pems: float
    failed: tuple[EpisodicNode, ...]
    held_out_succeeded: int


async def evolve_skill(
    node: ProceduralNode,
    evidence: Evidence,
    *,
    candidate: str | None = None,
    embedder: BaseEmbedder | None,
    writer: SkillWriter,
    config: FluxMemConfig,
    replay_fn: ReplayFn | None = None,
) -> Evolution:
    """Score a skill, try other versions of it, and keep the best.

    A version is tried against the present one and takes its place unless it scores worse or fewer held-out episodes
    succeed with it; the one that goes is written to ``version_history`` with the reason. What new evidence induces is
    tried only if that was no worse without the held-out ones. The skill has settled when two scored versions differ by
    less than ``pems_threshold`` in p_v; where nobody proposes another one, the second is that without the held-out
    episodes, for comparison only. At most ``max_consolidation_rounds`` versions are scored.

    Args:
        node: the skill with its present text.
        evidence: what it is judged by.
        candidate: a text to try first, from new evidence.
        embedder: of the versions' texts; None: no shift is measured.
        writer: proposes refinements.
        config: thresholds.
        replay_fn: whether an episode's task succeeds with the skill; None: recorded evidence decides.
    """
    judge = _Judge(node, evidence, embedder=embedder, writer=writer, replay_fn=replay_fn)
    present = await judge.score(node.version, node.skill_text, shift=_earlier_shift(node))
    scored = [(present.number, present.pems)]
    history = list(node.version_history)
    number = max([node.version, *(past.version for past in history)])
    converged = rejected = False
    helpful = True
    proposal = candidate
    if candidate is not None and evidence.held_out and evidence.part is not None:
        number += 1
        check = await judge.score(number, evidence.part, before=present)
        if check.held_out_succeeded < present.held_out_succeeded:
            history.append(_ended(check, _fails_held_out(present, check)))
            scored.append((number, check.pems))
            rejected, proposal = True, None
        else:
            number -= 1
    # Without the examples. Only a replay can tell whether they were needed: recorded success never misses them.
    brief = evidence.structure.render(examples=0)
    tried_texts = {node.skill_text, *(past.skill_text for past in history)}
    while len(scored) < config.max_consolidation_rounds:
        if proposal is None and helpful:
            proposal = await writer.refine(present.text, _observed(present, evidence), evidence.shown)
            # Who gave no usable answer is not asked about this skill again.
            helpful = proposal is not None
        if proposal is None and replay_fn is not None and brief not in tried_texts:
            proposal = brief
        is_probe = proposal is None and len(scored) == 1
        if is_probe:
            proposal = evidence.part
        if proposal is None:
            break
        tried_texts.add(proposal)
        number += 1
        if proposal == present.text:
            scored.append((number, present.pems))
            converged = True
            break
        tried = await judge.score(number, proposal, before=present)
        scored.append((tried.number, tried.pems))
        converged = abs(tried.pems - present.pems) < config.pems_threshold
        if is_probe:
            loser, reason = tried, f"not kept: a trial without {len(evidence.held_out)} of the episodes"
        else:
            loser, present, reason = _compare(present, tried)
        history.append(_ended(loser, reason))
        proposal = None
        if converged:
            break
    measured = {
        "success_rate": present.success_rate,
        "num_tokens": present.num_tokens,
        "shift": present.shift,
        "replayed": replay_fn is not None,
        "held_out": len(evidence.held_out),
        "held_out_succeeded": present.held_out_succeeded,
    }
    return Evolution(
        node=replace(
            node,
            content=present.text,
            skill_text=present.text,
            embedding=present.embedding,
            version=present.number,
            version_history=tuple(history),
            pems_score=present.pems,
            metadata={**node.metadata, "evidence": measured, "converged": converged},
        ),
        converged=converged,
        scored=tuple(scored),
        failed_ids=frozenset(episode.id for episode in present.failed),
        rejected=rejected,
    )


class _Judge:
    """Gives versions their p_v."""

    def __init__(
        self,
        node: ProceduralNode,
        evidence: Evidence,
        *,
        embedder: BaseEmbedder | None,
        writer: SkillWriter,
        replay_fn: ReplayFn | None,
    ) -> None:
        self._node = node
        self._evidence = evidence
        self._embedder = embedder
        self._writer = writer
        self._replay_fn = replay_fn

    async def score(self, number: int, text: str, *, before: _Version | None = None, shift: float = 0.0) -> _Version:
        """Score a text, as the version after ``before``, or with a shift that is known."""
        embedding = None if self._embedder is None else await self._embedder.embed_text(text)
        if before is not None and before.embedding is not None and embedding is not None:
            shift = float(embedding_shift(embedding[np.newaxis], before.embedding[np.newaxis])[0])
        results = await self._results(number, text, embedding)
        success_rate = float(np.mean([success for _, success in results])) if results else 0.0
        num_tokens = self._writer.count_tokens(text)
        return _Version(
            number=number,
            text=text,
            embedding=embedding,
            success_rate=success_rate,
            num_tokens=num_tokens,
            shift=shift,
            pems=float(skill_pems([success_rate], [num_tokens], [shift])[0]),
            failed=tuple(episode for episode, success in results if episode is not None and not success),
            held_out_succeeded=sum(
                success for episode, success in results if episode is not None and episode.id in self._evidence.held_out
            ),
        )

    async def _results(
        self, number: int, text: str, embedding: FloatArray | None
    ) -> list[tuple[EpisodicNode | None, bool]]:
        sources = self._evidence.sources
        if self._replay_fn is not None:
            skill = replace(self._node, content=text, skill_text=text, version=number, embedding=embedding)
            chosen = sorted(
                sources,
                key=lambda episode: (episode.id not in self._evidence.held_out, -episode.created_at, episode.id),
            )
            replayed: list[tuple[EpisodicNode | None, bool]] = []
            for episode in chosen[:_MOST_REPLAYS]:
                self._writer.budget.check()
                replayed.append((episode, await _replayed(self._replay_fn, episode, skill)))
            return replayed
        words = {word.key for word in words_of(text)}
        results: list[tuple[EpisodicNode | None, bool]] = [
            (episode, bool(episode.success) and covers(self._evidence.structure, words, episode.id))
            for episode in sources
        ]
        known = {episode.id for episode in sources}
        uses = [outcome for outcome in self._evidence.outcomes if outcome.episode_id not in known]
        return results + [(None, outcome.helped > outcome.hurt) for outcome in uses]


async def _replayed(replay_fn: ReplayFn, episode: EpisodicNode, skill: ProceduralNode) -> bool:
    result: Any = replay_fn(episode, skill)
    return bool(await result if inspect.isawaitable(result) else result)


def covers(structure: Skill, words: set[str], episode_id: str) -> bool:
    """Tell whether an episode took the skill's steps, and a text with these words states those that it took.

    That is half of the steps at least, no more of them by an alternative than not: who does all in another way says
    nothing of this one. Without the words, a text of one word would do as well by recorded success as the whole skill,
    and score higher.
    """
    steps = [step for step in structure.steps if step.words]
    taken = [
        step
        for step in steps
        if episode_id in step.succeeded_ids or any(episode_id in way.succeeded_ids for way in step.alternatives)
    ]
    stated = [sum(word in words for word in step.words) >= _STATED_SHARE * len(step.words) for step in taken]
    as_said = sum(episode_id in step.succeeded_ids for step in taken)
    if len(taken) < _TAKEN_SHARE * len(steps) or 2 * as_said < len(taken):
        return False
    return sum(stated) >= _COVERED_SHARE * len(taken)


def _compare(present: _Version, tried: _Version) -> tuple[_Version, _Version, str]:
    """Return the version that ends, the one that stays, and why."""
    if tried.held_out_succeeded < present.held_out_succeeded:
        return tried, present, _fails_held_out(present, tried)
    if tried.pems >= present.pems:
        return present, tried, f"replaced by version {tried.number}: PEMS {present.pems:.4f} -> {tried.pems:.4f}"
    return tried, present, f"not kept: PEMS {tried.pems:.4f}, version {present.number} has {present.pems:.4f}"


def _fails_held_out(present: _Version, tried: _Version) -> str:
    return (
        f"not kept: held-out episodes that succeed with it: {tried.held_out_succeeded}, "
        f"with version {present.number}: {present.held_out_succeeded}"
    )


def _ended(version: _Version, reason: str) -> SkillVersion:
    return SkillVersion(version=version.number, skill_text=version.text, pems_score=version.pems, ended_because=reason)


def _earlier_shift(node: ProceduralNode) -> float:
    """Return what a skill's last change was; metadata may hold anything."""
    measured = node.metadata.get("evidence")
    shift = measured.get("shift") if isinstance(measured, Mapping) else None
    if node.version > 1 and isinstance(shift, (int, float)) and 0 <= shift <= 2:
        return float(shift)
    return 0.0


def _observed(version: _Version, evidence: Evidence) -> str:
    """Say in words what is known of a version."""
    lines = [
        f"Success rate {version.success_rate:.2f} over {len(evidence.sources)} episodes; {version.num_tokens} tokens."
    ]
    failed = [episode for episode in version.failed if episode.id not in evidence.held_out]
    lines += [f"Failed: {episode.task_description}" for episode in failed[:_MOST_FAILURES_SHOWN]]
    lines += [f"Failed before: {pitfall.action}. {pitfall.feedback}".strip() for pitfall in evidence.structure.pitfalls]
    return "\n".join(lines)
