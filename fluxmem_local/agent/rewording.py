"""Rewording: whether a passage speaks of what a question calls by other words, by the likelihood of these words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from fluxmem_local.types import FloatArray

from .passages import Fit, Question

__all__ = ["LikelihoodModel", "least_gain"]


@runtime_checkable
class LikelihoodModel(Protocol):
    """What is asked of a model here."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""

    async def score_batch(self, contexts: Sequence[str], continuations: Sequence[str]) -> FloatArray:
        """Return the mean log-probability of each continuation's tokens after its context: shape ``(n,)``."""


async def least_gain(model: LikelihoodModel, question: Question, fit: Fit) -> float:
    """Return by how much the passage raises the log-probability of that missing word which it raises least.

    Each word is judged after the words before it. It is compared with the words that passage and question share: what
    these make likely by themselves is not the passage's merit.
    """
    shared = [word.text for word in fit.passage.words if not word.is_empty and _shared(word.tokens, question)]
    starts = [question.text[: word.start].rstrip() for word in fit.missing]
    ends = [question.text[len(start) : word.end] for start, word in zip(starts, fit.missing, strict=True)]
    scores = await model.score_batch(
        [
            f"Document: {document}\nThe question that this document answers:{f' {start}' if start else ''}"
            for document in (fit.passage.text, " ".join(shared))
            for start in starts
        ],
        [end if start else f" {end}" for start, end in zip(starts, ends, strict=True)] * 2,
    )
    lengths = [model.count_tokens(end) for end in ends]
    return min(
        float(length * (told - alone))
        for length, told, alone in zip(lengths, scores[: len(ends)], scores[len(ends) :], strict=True)
    )


def _shared(tokens: frozenset[str], question: Question) -> bool:
    return any(not tokens.isdisjoint(word.tokens) for word in question.content)
