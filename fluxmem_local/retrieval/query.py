"""Query: one question, its vector, and the past tasks like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fluxmem_local.graph import Node
from fluxmem_local.text import tokenize, tokenize_query, tokenize_query_words
from fluxmem_local.types import FloatArray

from . import signals
from .experience import Experience
from .filters import View

__all__ = ["Query", "word_similarity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question as the retrievers need it.

    ``vector`` is ``(d,)`` of unit length, or None when the memory has no embedder and words alone count. ``task`` is
    the part of the question that says what is to be done, with a vector of its own; "" where nobody told.
    """

    text: str
    vector: FloatArray | None
    task: str = ""
    task_vector: FloatArray | None = None
    view: View = field(default_factory=View)
    experience: Experience = field(default_factory=Experience)

    @property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """The question's words, each as the tokens that stand for it."""
        return tokenize_query_words(self.text)

    @property
    def tokens(self) -> list[str]:
        """The tokens of all words."""
        return tokenize_query(self.text)

    def cosines(self, nodes: Sequence[Node]) -> FloatArray | None:
        """Compute the clipped cosine of n nodes to the question: shape ``(n,)``.

        What has no embedding may mean anything, so it gets the mean of those that have one, 0 where none has: neither
        does it rank under all that is a little like the question, nor does it gain by it.

        Returns:
            None when the question has no vector.
        """
        if self.vector is None:
            return None
        # The vector that came with the node: one looked up by id might be another by now.
        nothing = np.zeros_like(self.vector)
        rows = [nothing if node.embedding is None else node.embedding for node in nodes]
        if not rows:
            return np.zeros(0, np.float32)
        cosines = signals.dense(np.stack(rows), self.vector)
        unknown = np.array([node.embedding is None for node in nodes])
        if not unknown.all():
            cosines[unknown] = cosines[~unknown].mean()
        return cosines

    def overlaps(self, texts: Sequence[str]) -> list[int]:
        """Count the question's tokens that each text holds."""
        tokens = set(self.tokens)
        return [len(tokens.intersection(tokenize(text))) for text in texts]


def word_similarity(text: str, other: str) -> float:
    """Compute the cosine of two texts as sets of tokens, in [0, 1]: similarity where there is no embedder."""
    tokens, others = set(tokenize(text)), set(tokenize(other))
    return len(tokens & others) / (len(tokens) * len(others)) ** 0.5 if tokens and others else 0.0
