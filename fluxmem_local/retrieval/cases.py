"""Which cases of a skill a context shows: those that tell best what this task seeks.

A skill that averages its episodes loses what told them apart, so it keeps each as a case: what was given, what was
sought, and how it went. Cases are like a task by meaning and by words; of both, whatever differs among cases in which
the same was sought says nothing about what to seek, and counts less (a linear discriminant, regularised by the mean
variance). What was sought also speaks for itself, by its likeness to what is given: a key is likely to go to a key
holder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import Case, Pitfall, ProceduralNode, Skill, bind, fill, read_cases, slots_in, sought_slots
from fluxmem_local.text import tokenize
from fluxmem_local.types import FloatArray

__all__ = ["CaseIndex", "case_episodes", "refute_values"]

# A case that failed takes this part of its likeness from what it sought.
_FAILED_SHARE = 0.5
# What is sought adds this part of its likeness to what is given, beyond that of all that was ever sought.
_MEANING_SHARE = 0.4
# Of what is less alike than this above chance, most is wrong, and nothing is shown; once a step has failed, a weaker
# hint is better than none. Of k things that are sought, seen from their middle, each has a cosine of -1 / (k - 1) to
# the others by chance.
_LEAST_LIKENESS = 0.2
_LEAST_AFTER_FAILURE = 0.1
# An agent follows what its context shows, so that shows what most speaks for, by the cases that do; what comes next
# comes up when a step has failed with it.
_MOST_SHOWN = 3
# Failures that it names, and how like the task they must be: what failed there is likely to fail here.
_MOST_FAILED = 3
_SAME_TASK = 0.5

_Sought = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Form:
    """A skill, and which of a case's values were sought."""

    skill: Skill
    cases: list[Case]
    is_sought: tuple[bool, ...]

    @classmethod
    def of(cls, node: ProceduralNode) -> _Form:
        """Read the form of a skill; what its metadata holds of no such form counts as nothing."""
        skill = Skill(name="", use="", steps=())
        with suppress(InvalidInputError):
            skill = Skill.from_dict(node.metadata.get("structure"))
        cases = [case for case in _known_cases(node.metadata.get("cases")) if len(case.values) == len(skill.slots)]
        numbers = sought_slots(skill)
        return cls(skill, cases, tuple(slot.number in numbers for slot in skill.slots))

    def sought(self, case: Case) -> _Sought:
        return tuple(
            value.casefold() for value, is_sought in zip(case.values, self.is_sought, strict=True) if is_sought
        )

    def given(self, case: Case) -> str:
        return " ".join(value for value, is_sought in zip(case.values, self.is_sought, strict=True) if not is_sought)


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A case with its likeness to the task."""

    case: Case
    likeness: float


def case_episodes(node: ProceduralNode) -> list[str]:
    """Return the ids of all episodes that a skill's cases are of."""
    return list(dict.fromkeys(id for case in _known_cases(node.metadata.get("cases")) for id in case.episode_ids))


def _known_cases(data: Any) -> list[Case]:
    """Read cases from metadata, which may hold anything: what cannot be read tells of none."""
    with suppress(InvalidInputError):
        return read_cases(data)
    return []


class CaseIndex:
    """The cases of a skill as rows that can be compared with tasks."""

    def __init__(self, node: ProceduralNode, vectors: Mapping[str, FloatArray]) -> None:
        """Compute the rows.

        Args:
            node: the skill.
            vectors: of the cases' episodes by id, each ``(d,)``; a case counts for the episodes that are named here.
        """
        self._form = form = _Form.of(node)
        self._cases = [left for case in form.cases if (left := _of_episodes(case, vectors)).episode_ids]
        words = [tokenize(form.given(case)) for case in self._cases]
        self._columns = {
            token: place for place, token in enumerate(sorted({token for text in words for token in text}))
        }
        rows = np.stack([self._words(text) for text in words]) if words else np.zeros((0, 0), np.float32)
        meaning = [vectors[case.episode_ids[0]] for case in self._cases]
        self._size = meaning[0].size if meaning else 0
        if meaning:
            rows = np.hstack([np.stack(meaning), rows])
        labels = [form.sought(case) if case.succeeded_ids else None for case in self._cases]
        self._metric = _Discriminant(rows, labels)
        self._rows = self._metric.project(rows)
        self._meanings: dict[_Sought, FloatArray] = {}

    @property
    def sought_texts(self) -> list[str]:
        """The different things that cases sought with success, as texts."""
        return list(dict.fromkeys(" ".join(key) for key in self._sought if any(key)))

    def learn_meanings(self, vectors: Mapping[str, FloatArray]) -> None:
        """Take the unit vectors of ``sought_texts``, as far as there are any, each ``(d,)``."""
        known = {key: vectors[text] for key in self._sought if (text := " ".join(key)) in vectors}
        self._meanings = known

    def given_in(self, task: str) -> str:
        """Return what a task gives for the skill's slots, "" where it is none of the skill's tasks."""
        return " ".join((bind(self._form.skill.use, task) or {}).values())

    @property
    def _sought(self) -> list[_Sought]:
        return list(dict.fromkeys(self._form.sought(case) for case in self._cases if case.succeeded_ids))

    def present(
        self,
        node: ProceduralNode,
        *,
        task: str,
        seen: str,
        vector: FloatArray | None,
        given_vector: FloatArray | None = None,
        leave_out: str = "",
    ) -> ProceduralNode:
        """Let the skill's text and structure show the cases that fit a task; without cases it stays as it is.

        Args:
            node: the skill.
            task: what is to be done.
            seen: the task with what is observed; where it names something that cases sought, only those count.
            vector: the task's, ``(d,)``; None compares by words alone.
            given_vector: that of ``given_in(task)``, to compare with what was sought; None leaves that out.
            leave_out: id of an episode that tells nothing here, as it is the one that is asked about.
        """
        if not self._cases:
            return node
        words = self._words(tokenize(self.given_in(task) or task))
        asked = np.hstack([np.zeros(self._size, np.float32) if vector is None else vector, words])
        likeness = self._rows @ self._metric.project(asked)
        spoken = self._spoken(given_vector)
        ranked = [
            _Ranked(left, float(value) + (spoken.get(self._form.sought(case), 0.0) if case.succeeded_ids else 0.0))
            for case, value in zip(self._cases, likeness, strict=True)
            if (left := _without(case, leave_out)).episode_ids
        ]
        ranked.sort(key=lambda each: -each.likeness)
        return _show(node, self._form, _applicable(self._form, ranked, seen), least=_LEAST_LIKENESS)

    def _spoken(self, given: FloatArray | None) -> dict[_Sought, float]:
        """How much each thing sought speaks for itself."""
        if given is None or not self._meanings:
            return {}
        cosines = np.stack(list(self._meanings.values())) @ given
        return dict(zip(self._meanings, (_MEANING_SHARE * (cosines - cosines.mean())).tolist(), strict=True))

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
    form = _Form.of(node)
    skill, sought = form.skill, sought_slots(form.skill)
    given = bind(skill.use, task) or {}
    for step in skill.steps:
        values = bind(step.template, done, given)
        if values is not None and sought & values.keys():
            known = {**given, **values}
            wrong = Case(values=tuple(known.get(slot.number, "") for slot in skill.slots), failed_ids=("",))
            key = form.sought(wrong)
            ranked = [_Ranked(Case.from_dict(each), float(each["likeness"])) for each in shown]
            left = [each for each in ranked if not each.case.succeeded_ids or form.sought(each.case) != key]
            return wrong.values, _show(node, form, [_Ranked(wrong, 1.0), *left], least=_LEAST_AFTER_FAILURE)
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


def _without(case: Case, episode_id: str) -> Case:
    return case if episode_id not in case.episode_ids else _of_episodes(case, set(case.episode_ids) - {episode_id})


def _of_episodes(case: Case, known: Collection[str]) -> Case:
    return replace(
        case,
        succeeded_ids=tuple(id for id in case.succeeded_ids if id in known),
        failed_ids=tuple(id for id in case.failed_ids if id in known),
    )


def _applicable(form: _Form, ranked: Sequence[_Ranked], seen: str) -> list[_Ranked]:
    """Keep the cases of whose sought values most are named in what is seen, and all where none is."""
    text = " ".join(seen.split()).casefold()
    named: dict[str, bool] = {}

    def is_named(value: str) -> bool:
        if value not in named:
            named[value] = re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None
        return named[value]

    counts = [sum(is_named(value) for value in form.sought(each.case) if value) for each in ranked]
    best = max(counts, default=0)
    return [each for each, count in zip(ranked, counts, strict=True) if count == best]


def _show(node: ProceduralNode, form: _Form, ranked: Sequence[_Ranked], *, least: float) -> ProceduralNode:
    """Write the best cases into a skill; ``ranked`` are best first, and ``least`` is the likeness that they need."""
    num_sought = len({form.sought(case) for case in form.cases if case.succeeded_ids})
    by_sought: dict[_Sought, list[_Ranked]] = {}
    against: dict[_Sought, float] = {}
    for each in ranked:
        key = form.sought(each.case)
        if each.case.succeeded_ids:
            by_sought.setdefault(key, []).append(each)
        else:
            against[key] = max(each.likeness, against.get(key, 0.0))
    merits = {key: found[0].likeness - _FAILED_SHARE * against.get(key, 0.0) for key, found in by_sought.items()}
    best = max(merits, key=lambda key: merits[key], default=None)
    known = best is not None and merits[best] >= least - 1.0 / max(1, num_sought - 1)
    chosen = [each.case for each in by_sought[best][:_MOST_SHOWN]] if best is not None and known else []
    failed = [each.case for each in ranked if not each.case.succeeded_ids and each.likeness >= _SAME_TASK]
    shown = replace(
        form.skill,
        examples=tuple(case.values for case in chosen),
        pitfalls=_pitfalls(form, failed[:_MOST_FAILED]),
    )
    text = shown.show_in(node.skill_text)
    left: list[dict[str, Any]] = [{**each.case.to_dict(), "likeness": each.likeness} for each in ranked]
    return replace(
        node,
        content=text,
        skill_text=text,
        metadata={**node.metadata, "structure": shown.to_dict(), "shown": left},
    )


def _pitfalls(form: _Form, shown: Sequence[Case]) -> tuple[Pitfall, ...]:
    """Keep the pitfalls that ended their tasks or that no case stands for, and put the cases that are shown first."""
    skill, sought = form.skill, sought_slots(form.skill)
    template = next((step.template for step in skill.steps if slots_in(step.template) & sought), "")

    def action(case: Case) -> str:
        return fill(template, {slot.number: value for slot, value in zip(skill.slots, case.values, strict=True)})

    known = {pitfall.action.casefold(): pitfall for pitfall in skill.pitfalls}
    first = [
        known.get(action(case).casefold(), Pitfall(action=action(case), episode_ids=case.failed_ids)) for case in shown
    ]
    told = {action(case).casefold() for case in form.cases if case.failed_ids}
    rest = [pitfall for pitfall in skill.pitfalls if pitfall.final or pitfall.action.casefold() not in told]
    return (*first, *(pitfall for pitfall in rest if pitfall not in first))
