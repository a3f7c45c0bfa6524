"""Regrouping: families whose skill serves only some of their episodes are split, families of one way are merged."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fluxmem_local.graph import EpisodicNode, Skill
from fluxmem_local.types import FloatArray

from .antiunification import words_of
from .clustering import cluster_rows
from .families import Family, known_structure
from .induction import induce_skill
from .teaching import is_content_word, share_subject

__all__ = ["merge_families", "split_family"]

# The success of two sub-groups differs when it does by this much.
_LEAST_DIFFERENCE = 0.5


def split_family(
    family: Family,
    structure: Skill,
    failed_ids: Collection[str],
    vectors: Mapping[str, FloatArray],
    *,
    min_support: int,
    seed: int,
) -> tuple[Family, Family] | None:
    """Divide a family where the success of its skill differs by sub-group: the part it serves, and another one.

    The other part gets a skill of its own, so it must have ``min_support`` episodes, and a way that is another than the
    skill's. Sub-groups are those of two clusters, or else those that succeeded and failed.

    Args:
        family: episodes and the skill they taught.
        structure: that skill.
        failed_ids: the sources that do not succeed with it.
        vectors: unit vectors of all episodes by id, shape ``(d,)``.
        min_support: episodes that each part needs.
        seed: of clustering.
    """
    episodes = family.successes
    failed = [episode for episode in episodes if episode.id in failed_ids]
    if len(failed) < min_support or len(episodes) - len(failed) < min_support:
        return None
    labels = cluster_rows(np.stack([vectors[each.id] for each in episodes]), num_clusters=2, seed=seed)
    parts = [[each for each, label in zip(episodes, labels, strict=True) if label == side] for side in (0, 1)]
    for others in (*sorted(parts, key=lambda part: -_failed_share(part, failed_ids)), failed):
        rest = [episode for episode in episodes if episode not in others]
        differs = _failed_share(others, failed_ids) - _failed_share(rest, failed_ids) >= _LEAST_DIFFERENCE
        if differs and min(len(others), len(rest)) >= min_support and _has_own_way(others, structure):
            first, second = _centre(rest, vectors), _centre(others, vectors)
            theirs = [each for each in family.failures if vectors[each.id] @ second > vectors[each.id] @ first]
            ours = tuple(each for each in family.failures if each not in theirs)
            return (
                replace(family, successes=tuple(rest), failures=ours),
                Family(skill=None, successes=tuple(others), failures=tuple(theirs)),
            )
    return None


def merge_families(families: Sequence[Family]) -> list[Family]:
    """Merge families of one scope whose skills anti-unify without loss.

    That is so when the skill of all their episodes has the steps of each with all their words, and the same use: what
    differs was a parameter in each of them already. The oldest skill stays; the others are ``absorbed``.
    """
    merged: list[tuple[Family, Skill]] = []
    for family in families:
        structure = _structure(family)
        for place, (other, known) in enumerate(merged):
            if other.successes[0].scope != family.successes[0].scope or _signature(known) != _signature(structure):
                continue
            both = _joined(other, family)
            if share_subject(both.successes):
                common = induce_skill(both.successes, both.failures)
                if _signature(common) == _signature(structure):
                    merged[place] = (both, common)
                    break
        else:
            merged.append((family, structure))
    return [family for family, _ in merged]


def _structure(family: Family) -> Skill:
    return known_structure(family.skill) or induce_skill(family.successes, family.failures)


def _signature(skill: Skill) -> tuple[object, ...]:
    """What must not be lost: the words of use and steps, beside slots."""
    plain = skill.use
    for slot in skill.slots:
        plain = plain.replace(str(slot), " ")
    return (
        tuple(word.key for word in words_of(plain) if is_content_word(word.key)),
        *((step.words, tuple(sorted(way.template for way in step.alternatives))) for step in skill.steps),
    )


def _joined(one: Family, other: Family) -> Family:
    skills = [family.skill for family in (one, other) if family.skill is not None]
    skills.sort(key=lambda skill: (skill.created_at, skill.id))
    absorbed = {skill.id: skill for skill in (*one.absorbed, *other.absorbed, *skills[1:])}
    return Family(
        skill=skills[0] if skills else None,
        successes=_by_age([*one.successes, *other.successes]),
        failures=_by_age([*one.failures, *other.failures]),
        absorbed=tuple(absorbed.values()),
    )


def _by_age(episodes: Sequence[EpisodicNode]) -> tuple[EpisodicNode, ...]:
    unique = {episode.id: episode for episode in episodes}
    return tuple(sorted(unique.values(), key=lambda episode: (episode.created_at, episode.id)))


def _failed_share(episodes: Sequence[EpisodicNode], failed_ids: Collection[str]) -> float:
    return sum(episode.id in failed_ids for episode in episodes) / max(1, len(episodes))


def _has_own_way(episodes: Sequence[EpisodicNode], structure: Skill) -> bool:
    own = induce_skill(episodes)
    shared = own.steps and all(2 * len(step.succeeded_ids) > len(episodes) for step in own.steps)
    return (
        bool(shared)
        and share_subject(episodes)
        and [step.words for step in own.steps] != [step.words for step in structure.steps]
    )


def _centre(episodes: Sequence[EpisodicNode], vectors: Mapping[str, FloatArray]) -> FloatArray:
    mean: FloatArray = np.stack([vectors[episode.id] for episode in episodes]).mean(axis=0)
    return mean
