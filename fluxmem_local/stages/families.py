"""Families: which episodes teach which skill, so that another clustering of the same episodes makes no skill twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import EpisodicNode, ProceduralNode, Skill
from fluxmem_local.memory_store import Outcome
from fluxmem_local.storage.records import ELSEWHERE
from fluxmem_local.types import FloatArray, NodeState

from .clustering import ALIKE_COSINE
from .teaching import counts_as_success

__all__ = ["MERGED_INTO", "Family", "find_families", "is_induced", "known_structure"]

# A new episode may lie this much further out, in cosine, than those that a skill was distilled from.
_SLACK = 0.1
# The metadata key of a skill that another one took over: it stays to be read, and teaches nothing.
MERGED_INTO = "merged_into"
# Skills of an earlier form are made anew once.
_FORM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Episodes that succeeded and failed at one kind of task, and the skill they taught already, or None.

    ``absorbed`` are skills that are one with it.
    """

    skill: ProceduralNode | None
    successes: tuple[EpisodicNode, ...]
    failures: tuple[EpisodicNode, ...]
    absorbed: tuple[ProceduralNode, ...] = ()

    def digest(self, outcomes: Sequence[Outcome], *, replayed: bool) -> str:
        """Return a SHA-256 (hex) of all that a skill of this family is made of and judged by."""
        seen = [
            [
                [each.id, each.task_description, each.trajectory, each.success, each.feedback]
                for each in sorted(episodes, key=lambda episode: episode.id)
            ]
            for episodes in (self.successes, self.failures)
        ]
        used = sorted([each.episode_id, each.helped, each.hurt] for each in outcomes)
        text = json.dumps([_FORM, seen, used, replayed], ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(slots=True)
class _Group:
    skill: ProceduralNode | None
    successes: list[EpisodicNode]
    failures: dict[str, EpisodicNode]
    centre: FloatArray
    reach: float


def is_induced(skill: ProceduralNode) -> bool:
    """Tell whether consolidation made this skill here; written or imported ones are never rewritten by it."""
    return (
        "structure" in skill.metadata
        and skill.metadata.keys().isdisjoint((ELSEWHERE, MERGED_INTO))
        and skill.variant_of is None
        and skill.state is not NodeState.TRIAL
    )


def known_structure(skill: ProceduralNode | None) -> Skill | None:
    """Return the structure that a skill was stored with; None when it has none that can be read."""
    try:
        return None if skill is None else Skill.from_dict(skill.metadata.get("structure"))
    except InvalidInputError:
        return None


def find_families(
    clusters: Sequence[Sequence[EpisodicNode]],
    skills: Sequence[ProceduralNode],
    vectors: Mapping[str, FloatArray],
    *,
    min_support: int,
    trust_clusters: bool,
    spent: Collection[str] = (),
) -> list[Family]:
    """Divide episodes among the skills there are and those to come.

    A success that a skill was distilled from stays with that skill. A new one goes to the nearest skill that its
    cluster shares episodes with, or to the nearest of all, if it is alike; what is left of a cluster makes a new skill
    when it has ``min_support`` successes. Failures go to the nearest family of their cluster that they are alike to.

    Args:
        clusters: of episodes of one scope each.
        skills: all skills in order of creation.
        vectors: unit vectors of all episodes by id, shape ``(d,)``.
        min_support: successes that a new skill needs.
        trust_clusters: the user gave their number: they count even where their episodes aren't alike.
        spent: ids of episodes whose skill was forgotten: they teach none again.
    """
    episodes = {episode.id: episode for cluster in clusters for episode in cluster}
    groups = _existing(skills, episodes, vectors)
    taken = {episode.id: group for group in reversed(groups) for episode in group.successes}
    families = list(groups)
    for cluster in clusters:
        scope = cluster[0].scope
        free = [each for each in cluster if counts_as_success(each) and not (each.id in taken or each.id in spent)]
        sharing = [group for group in groups if any(taken.get(each.id) is group for each in cluster)]
        in_scope = [group for group in groups if group.skill is not None and group.skill.scope == scope]
        left = []
        for episode in free:
            group = _nearest(episode, sharing, vectors, least=-1.0 if trust_clusters else ALIKE_COSINE)
            if group is None and not trust_clusters:
                group = _nearest(episode, in_scope, vectors)
            if group is None:
                left.append(episode)
            else:
                group.successes.append(episode)
        local = list(sharing)
        if len(left) >= min_support and (not sharing or _are_alike(left, vectors)):
            fresh = _group(None, left, {}, vectors)
            families.append(fresh)
            local.append(fresh)
        for episode in cluster:
            if episode.status == "failed":
                group = _nearest(episode, local, vectors, least=-1.0 if trust_clusters else ALIKE_COSINE)
                if group is not None:
                    group.failures[episode.id] = episode
    return [
        Family(
            skill=group.skill,
            successes=tuple(sorted(group.successes, key=lambda episode: (episode.created_at, episode.id))),
            failures=tuple(sorted(group.failures.values(), key=lambda episode: (episode.created_at, episode.id))),
        )
        for group in families
        if group.successes
    ]


def _existing(
    skills: Sequence[ProceduralNode], episodes: Mapping[str, EpisodicNode], vectors: Mapping[str, FloatArray]
) -> list[_Group]:
    groups = []
    for skill in filter(is_induced, skills):
        noted = skill.metadata.get("failed_episode_ids")
        sources, failed = (
            # Metadata may hold anything, and who names episodes of others learns nothing from them.
            [episodes[id] for id in ids if isinstance(id, str) and id in episodes and episodes[id].scope == skill.scope]
            for ids in (skill.source_episode_ids, noted if isinstance(noted, list) else ())
        )
        sources = [episode for episode in sources if counts_as_success(episode)]
        if sources:
            groups.append(_group(skill, sources, {each.id: each for each in failed}, vectors))
    return groups


def _group(
    skill: ProceduralNode | None,
    successes: list[EpisodicNode],
    failures: dict[str, EpisodicNode],
    vectors: Mapping[str, FloatArray],
) -> _Group:
    rows = np.stack([vectors[episode.id] for episode in successes])
    centre = rows.mean(axis=0)
    centre = centre / max(float(np.linalg.norm(centre)), 1e-9)
    reach = max(ALIKE_COSINE, float((rows @ centre).min()) - _SLACK)
    return _Group(skill, successes, failures, centre, reach)


def _nearest(
    episode: EpisodicNode, groups: Sequence[_Group], vectors: Mapping[str, FloatArray], *, least: float | None = None
) -> _Group | None:
    """Find the group whose centre is nearest to an episode, among those that it is near enough to.

    Near enough is a cosine of ``least``, or for None as near as the group's own episodes are, with a little slack.
    """
    best, best_cosine = None, -np.inf
    for group in groups:
        cosine = float(vectors[episode.id] @ group.centre)
        if cosine > best_cosine and cosine >= (group.reach if least is None else least):
            best, best_cosine = group, cosine
    return best


def _are_alike(episodes: Sequence[EpisodicNode], vectors: Mapping[str, FloatArray]) -> bool:
    rows = np.stack([vectors[episode.id] for episode in episodes])
    count = len(rows)
    if count < 2:
        return True
    pairs = float(np.square(rows.sum(axis=0)).sum()) - count
    return pairs / (count * (count - 1)) >= ALIKE_COSINE
