"""Relevance by likelihood: evidence supports a claim or question as far as it makes it likelier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fluxmem_local.types import FloatArray

from .fitting import cut_to_tokens
from .templates import escape

__all__ = ["LikelihoodModel", "relevance"]

# One chunk of memory; more would make the forward pass long and dilute what the evidence says.
_EVIDENCE_TOKENS = 192
_CLAIM_TOKENS = 128
# The gain in log-probability a token at which the evidence counts as good and bad alike, and how sharply it turns.
# Measured on SmolLM2-135M-Instruct: facts that answer a question gain 1.2 to 3, unrelated ones 0 to 0.5, facts on the
# same subject that do not answer it 0.1 to 1.1.
_NEUTRAL_GAIN = 0.9
_STEEPNESS = 3.0


class LikelihoodModel(Protocol):
    """What is asked of a model here."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""

    async def score_batch(self, contexts: Sequence[str], continuations: Sequence[str]) -> FloatArray:
        """Return the mean log-probability of each continuation's tokens after its context: shape ``(n,)``."""


async def relevance(model: LikelihoodModel, pairs: Sequence[tuple[str, str]]) -> FloatArray:
    """Judge n pairs of claim and evidence in one batch: shape ``(n,)``, in [0, 1].

    The claim's likelihood without evidence is worked out once a claim, and taken off: a claim that is common in any
    case gains nothing by it.
    """
    claims = [cut_to_tokens(claim.strip(), _CLAIM_TOKENS, model.count_tokens) for claim, _ in pairs]
    evidences = [cut_to_tokens(escape(evidence), _EVIDENCE_TOKENS, model.count_tokens) for _, evidence in pairs]
    distinct = list(dict.fromkeys(claims))
    scores = await model.score_batch(
        [_context(evidence) for evidence in evidences] + [_context("")] * len(distinct),
        [f" {claim}" for claim in [*claims, *distinct]],
    )
    alone = dict(zip(distinct, scores[len(pairs) :], strict=True))
    gains = scores[: len(pairs)] - np.asarray([alone[claim] for claim in claims], np.float32)
    values: FloatArray = (1 / (1 + np.exp(-_STEEPNESS * (gains - _NEUTRAL_GAIN)))).astype(np.float32)
    return values


def _context(evidence: str) -> str:
    return f"Document: {evidence or 'nothing'}\nThe question that this document answers:"
