"""Calibration: which way of verifying has a signal on a model, measured on labelled questions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fluxmem_local.errors import ImportFormatError, ModelOutputError
from fluxmem_local.types import FloatArray

from .registry import VERIFICATION_METHODS, registry_directory
from .verification import Scale, VerifyingModel, gains

__all__ = ["Calibration", "LabelledQuestion", "MethodReport", "calibrate", "labelled_questions"]

# Signal is what stays above chance (0.5) after two standard errors, and by enough to be worth a forward pass.
_LEAST_AUC = 0.55
_STANDARD_ERRORS = 2.0
_LEAST_SPREAD = 1e-3


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question, the text that answers it, and texts that do not although they are near to it."""

    question: str
    fact: str
    distractors: tuple[str, ...]
    language: str = ""


@dataclass(frozen=True, slots=True)
class MethodReport:
    """What one method gave.

    ``auc`` is the mean share of a question's distractors that stand below its fact (0.5 is chance), ``auc_error`` its
    standard error, ``first`` the share of questions whose fact stands above all, ``ms_a_text`` the milliseconds that
    one text took. A method whose answers cannot be read has None in all of them.
    """

    method: str
    auc: float | None
    auc_error: float | None
    first: float | None
    ms_a_text: float | None
    scale: Scale | None

    @property
    def has_signal(self) -> bool:
        """Whether the method is above chance beyond doubt."""
        return (
            self.auc is not None
            and self.auc_error is not None
            and self.auc - _STANDARD_ERRORS * self.auc_error > 0.5
            and self.auc >= _LEAST_AUC
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """The method that a model should verify by, "none" when none of them has a signal, and all that was measured."""

    method: str
    reports: tuple[MethodReport, ...]

    @property
    def chosen(self) -> MethodReport:
        """What was measured of the chosen method; for "none" of the best one."""
        named = [report for report in self.reports if report.method == self.method]
        return named[0] if named else max(self.reports, key=lambda report: report.auc or 0.0)


def labelled_questions(path: Path | None = None) -> tuple[LabelledQuestion, ...]:
    """Read labelled questions from JSON Lines with question, fact and distractors; None: the shipped ones.

    Raises:
        ImportFormatError: the file cannot be read, or a line is not of this form.
    """
    file = path or registry_directory() / "verification.jsonl"
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ImportFormatError(f"{file} cannot be read: {error}") from None
    questions = [_question(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not questions:
        raise ImportFormatError(f"{file} has no labelled questions; give one JSON object a line")
    return tuple(questions)


def _question(file: Path, number: int, line: str) -> LabelledQuestion:
    try:
        told = json.loads(line)
        texts = [told["question"], told["fact"], *told["distractors"]]
        if len(texts) < 3 or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError
        return LabelledQuestion(texts[0], texts[1], tuple(texts[2:]), str(told.get("language", "")))
    except (ValueError, KeyError, TypeError):
        raise ImportFormatError(
            f'{file}, line {number}: give {{"question": text, "fact": text, "distractors": [one text or more]}}'
        ) from None


async def calibrate(
    model: VerifyingModel,
    questions: Sequence[LabelledQuestion],
    progress: Callable[[str], None] | None = None,
) -> Calibration:
    """Measure each method on labelled questions and choose the cheapest of those that are as good as the best.

    Args:
        model: the language model.
        questions: at least one; some sixty tell a weak signal from none.
        progress: told which method is measured.
    """
    # Loading the model is no part of a method's time.
    await gains(model, "likelihood", [(questions[0].question, questions[0].fact)])
    reports = []
    for method in VERIFICATION_METHODS:
        if method == "none":
            continue
        if progress:
            progress(f"measuring {method} on {len(questions)} questions")
        reports.append(await _measure(model, method, questions))
    useful = [report for report in reports if report.has_signal]
    if not useful:
        return Calibration("none", tuple(reports))
    best = max(useful, key=lambda report: report.auc or 0.0)
    enough = (best.auc or 0.0) - (best.auc_error or 0.0)
    chosen = next(report for report in useful if (report.auc or 0.0) >= enough)
    return Calibration(chosen.method, tuple(reports))


async def _measure(model: VerifyingModel, method: str, questions: Sequence[LabelledQuestion]) -> MethodReport:
    pairs = [(asked.question, text) for asked in questions for text in (asked.fact, *asked.distractors)]
    started = time.perf_counter()
    try:
        values = await gains(model, method, pairs)
    except ModelOutputError:
        return MethodReport(method, None, None, None, None, None)
    milliseconds = 1000 * (time.perf_counter() - started) / len(pairs)
    ends = np.cumsum([1 + len(asked.distractors) for asked in questions])[:-1]
    groups = np.split(values, ends)
    shares = np.asarray([_share_below(group[0], group[1:]) for group in groups])
    first = np.mean([group[0] > group[1:].max() for group in groups])
    return MethodReport(
        method,
        float(shares.mean()),
        float(shares.std() / np.sqrt(len(shares))),
        float(first),
        milliseconds,
        None if method == "json" else _scale(groups),
    )


def _share_below(value: float, others: FloatArray) -> float:
    return float(np.mean((others < value) + 0.5 * (others == value)))


def _scale(groups: Sequence[FloatArray]) -> Scale:
    """Put 0.5 halfway between facts and distractors, and one spread at the middle half of all gains."""
    facts = np.asarray([group[0] for group in groups])
    others = np.concatenate([group[1:] for group in groups])
    low, high = np.quantile(np.concatenate([facts, others]), [0.25, 0.75])
    neutral = (np.median(facts) + np.median(others)) / 2
    return Scale(round(float(neutral), 3), round(max(float(high - low) / 2, _LEAST_SPREAD), 3))
