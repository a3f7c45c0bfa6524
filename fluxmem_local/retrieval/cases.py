"""Which cases of a skill a context shows: those that tell best what this task seeks.

A skill that averages its episodes loses what told them apart, so it keeps each as a case: what was given, what was
sought, and how it went. Cases are like a task by meaning and by words; of both, whatever differs among cases in which
the same was sought says nothing about what to seek, and counts less (a linear discriminant, regularised by the mean
variance).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fluxmem_local.graph import Case, Pitfall, ProceduralNode, Skill, bind, fill, slots_in, sought_slots
from fluxmem_local.text import tokenize
from fluxmem_local.types import FloatArray

__all__ = ["CaseIndex", "case_episodes", "refute_values"]

# A case that failed takes this part of its likeness from what it sought.
_FAILED_SHARE = 0.5
# A case that is less alike than this above chance says nothing about the task. Of k things that are sought, seen from
# their middle, each has a cosine of -1 / (k - 1) to the others by chance.
_LEAST_LIKENESS = 0.14
# Different things to seek that a context names, and the cases that speak for each.
_MOST_SOUGHT = 2
_MOST_CASES_EACH = 2
# Failures that it names, and how like the task they must be: what failed there is likely to fail here.
_MOST_FAILED = 3
_SAME_TASK = 0.5

_Sought = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A case with its likeness to the task."""

    case: Case
    likeness: float


def case_episodes(node: ProceduralNode) -> list[str]:
    """Return the ids of all episodes that a skill's cases are of."""
    _, cases = _read(node)
    return list(dict.fromkeys(id for case in cases for id in case.episode_ids))


class CaseIndex:
    """The cases of a skill as rows that can be compared with tasks."""

    def __init__(self, node: ProceduralNode, vectors: Mapping[str, FloatArray]) -> None:
        """Compute the rows.

        Args:
            node: the skill.
            vectors: of the cases' episodes by id, each ``(d,)``; a case counts for the episodes that are named here.
        """
        skill, cases = _read(node)
        self._skill = skill
        self._cases = [left for case in cases if (left := _of_episodes(case, vectors)).episode_ids]
        words = [tokenize(_given_text(skill, case)) for case in self._cases]
        self._columns = {
            token: place for place, token in enumerate(sorted({token for text in words for token in text}))
        }
        rows = np.stack([self._words(text) for text in words]) if words else np.zeros((0, 0), np.float32)
        meaning = [vectors[case.episode_ids[0]] for case in self._cases]
        self._size = meaning[0].size if meaning else 0
        if meaning:
            rows = np.hstack([np.stack(meaning), rows])
        labels = [_sought_of(skill, case) if case.succeeded_ids else None for case in self._cases]
        self._metric = _Discriminant(rows, labels)
        self._rows = self._metric.project(rows)

    def present(
        self, node: ProceduralNode, *, task: str, seen: str, vector: FloatArray | None, leave_out: str = ""
    ) -> ProceduralNode:
        """Let the skill's text and structure show the cases that fit a task; without cases it stays as it is.

        Args:
            node: the skill.
            task: what is to be done.
            seen: the task with what is observed; where it names something that cases sought, only those count.
            vector: the task's, ``(d,)``; None compares by words alone.
            leave_out: id of an episode that tells nothing here, as it is the one that is asked about.
        """
        if not self._cases:
            return node
        given = bind(self._skill.use, task)
        words = self._words(tokenize(" ".join(given.values()) if given else task))
        asked = np.hstack([np.zeros(self._size, np.float32) if vector is None else vector, words])
        likeness = self._rows @ self._metric.project(asked)
        kept = {id for case in self._cases for id in case.episode_ids} - {leave_out}
        ranked = [
            _Ranked(_of_episodes(case, kept), float(value))
            for case, value in zip(self._cases, likeness, strict=True)
            if kept.intersection(case.episode_ids)
        ]
        ranked.sort(key=lambda each: -each.likeness)
        return _show(node, self._skill, _applicable(self._skill, ranked, seen))

    def _words(self, tokens: Sequence[str]) -> FloatArray:
        row = np.zeros(len(self._columns), np.float32)
        known = set(tokens)
        for token in known & self._columns.keys():
            row[self._columns[token]] = len(known) ** -0.5
        return row


def refute_values(node: ProceduralNode, task: str, done: str) -> tuple[tuple[str, ...], ProceduralNode] | None:
    """Take what a failed step sought out of a skill that shows its cases, so that what fits next comes up.

    Returns:
        The values of the failed case and the skill as it is shown then; None when the step did not follow the skill, or
        sought nothing that it could be wrong about.
    """
    shown = node.metadata.get("shown")
    if shown is None:
        return None
    skill, _ = _read(node)
    given = bind(skill.use, task) or {}
    sought = sought_slots(skill)
    for step in skill.steps:
        values = bind(step.template, done, given)
        if values is not None and sought & values.keys():
            known = {**given, **values}
            wrong = Case(values=tuple(known.get(slot.number, "") for slot in skill.slots), failed_ids=("",))
            key = _sought_of(skill, wrong)
            ranked = [_Ranked(Case.from_dict(each), float(each["likeness"])) for each in shown]
            left = [each for each in ranked if not each.case.succeeded_ids or _sought_of(skill, each.case) != key]
            return wrong.values, _show(node, skill, [_Ranked(wrong, 1.0), *left])
    return None


class _Discriminant:
    """Directions of rows, with those in which rows of one label differ scaled down."""

    def __init__(self, rows: FloatArray, labels: Sequence[_Sought | None]) -> None:
        """Learn the scales.

        Args:
            rows: shape ``(n, d)``.
            labels: of the rows; those with None teach nothing unless all are.
        """
        groups: dict[_Sought, list[int]] = {}
        for place, label in enumerate(labels):
            if label is not None:
                groups.setdefault(label, []).append(place)
        known = [place for places in groups.values() for place in places] or list(range(len(rows)))
        self._centre = rows[known].mean(axis=0) if known else np.zeros(rows.shape[1:], np.float32)
        self._axes = np.zeros((0, rows.shape[1]), np.float32)
        self._shrink = np.zeros(0, np.float32)
        within = [rows[places] - rows[places].mean(axis=0) for places in groups.values()]
        if within and (spread := np.concatenate(within)).any():
            _, scales, self._axes = np.linalg.svd(spread / np.sqrt(len(spread)), full_matrices=False)
            variances = np.square(scales)
            mean = float(variances.sum()) / spread.shape[1]
            self._shrink = 1.0 - np.sqrt(mean / (variances + mean))

    def project(self, rows: FloatArray) -> FloatArray:
        """Scale rows, shape ``(n, d)`` or ``(d,)``, to unit length, so that their products are cosines."""
        centred = rows - self._centre
        scaled = centred - ((centred @ self._axes.T) * self._shrink) @ self._axes
        unit: FloatArray = scaled / np.maximum(np.linalg.norm(scaled, axis=-1, keepdims=True), 1e-9)
        return unit


def _read(node: ProceduralNode) -> tuple[Skill, list[Case]]:
    skill = (
        Skill.from_dict(node.metadata["structure"])
        if "structure" in node.metadata
        else Skill(name="", use="", steps=())
    )
    return skill, [Case.from_dict(each) for each in node.metadata.get("cases", ())]


def _of_episodes(case: Case, known: Collection[str]) -> Case:
    return replace(
        case,
        succeeded_ids=tuple(id for id in case.succeeded_ids if id in known),
        failed_ids=tuple(id for id in case.failed_ids if id in known),
    )


def _given_text(skill: Skill, case: Case) -> str:
    sought = sought_slots(skill)
    return " ".join(value for slot, value in zip(skill.slots, case.values, strict=True) if slot.number not in sought)


def _sought_of(skill: Skill, case: Case) -> _Sought:
    sought = sought_slots(skill)
    return tuple(
        value.casefold() for slot, value in zip(skill.slots, case.values, strict=True) if slot.number in sought
    )


def _applicable(skill: Skill, ranked: Sequence[_Ranked], seen: str) -> list[_Ranked]:
    """Keep the cases of whose sought values most are named in what is seen, and all where none is."""
    text = " ".join(seen.split()).casefold()
    named: dict[str, bool] = {}

    def is_named(value: str) -> bool:
        if value not in named:
            named[value] = re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None
        return named[value]

    counts = [sum(is_named(value) for value in _sought_of(skill, each.case) if value) for each in ranked]
    best = max(counts, default=0)
    return [each for each, count in zip(ranked, counts, strict=True) if count == best]


def _show(node: ProceduralNode, skill: Skill, ranked: Sequence[_Ranked]) -> ProceduralNode:
    """Write the best cases into a skill; ``ranked`` are best first."""
    _, cases = _read(node)
    num_sought = len({_sought_of(skill, case) for case in cases if case.succeeded_ids})
    by_sought: dict[_Sought, list[_Ranked]] = {}
    against: dict[_Sought, float] = {}
    for each in ranked:
        key = _sought_of(skill, each.case)
        if each.case.succeeded_ids:
            by_sought.setdefault(key, []).append(each)
        else:
            against[key] = max(each.likeness, against.get(key, 0.0))
    merits = {key: found[0].likeness - _FAILED_SHARE * against.get(key, 0.0) for key, found in by_sought.items()}
    least = _LEAST_LIKENESS - 1.0 / max(1, num_sought - 1)
    best = sorted((key for key, merit in merits.items() if merit >= least), key=lambda key: -merits[key])
    chosen = [each.case for key in best[:_MOST_SOUGHT] for each in by_sought[key][:_MOST_CASES_EACH]]
    failed = [each.case for each in ranked if not each.case.succeeded_ids and each.likeness >= _SAME_TASK]
    shown = replace(
        skill,
        examples=tuple(case.values for case in chosen),
        pitfalls=_pitfalls(skill, cases, failed[:_MOST_FAILED]),
    )
    text = shown.show_in(node.skill_text)
    left: list[dict[str, Any]] = [{**each.case.to_dict(), "likeness": each.likeness} for each in ranked]
    return replace(
        node,
        content=text,
        skill_text=text,
        metadata={**node.metadata, "structure": shown.to_dict(), "shown": left},
    )


def _pitfalls(skill: Skill, cases: Sequence[Case], shown: Sequence[Case]) -> tuple[Pitfall, ...]:
    """Keep the pitfalls that ended their tasks or that no case stands for, and put the cases that are shown first."""
    sought = sought_slots(skill)
    template = next((step.template for step in skill.steps if slots_in(step.template) & sought), "")

    def action(case: Case) -> str:
        return fill(template, {slot.number: value for slot, value in zip(skill.slots, case.values, strict=True)})

    known = {pitfall.action.casefold(): pitfall for pitfall in skill.pitfalls}
    first = [
        known.get(action(case).casefold(), Pitfall(action=action(case), episode_ids=case.failed_ids)) for case in shown
    ]
    told = {action(case).casefold() for case in cases if case.failed_ids}
    rest = [pitfall for pitfall in skill.pitfalls if pitfall.final or pitfall.action.casefold() not in told]
    return (*first, *(pitfall for pitfall in rest if pitfall not in first))
