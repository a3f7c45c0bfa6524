"""Verification: how well a text supports a claim or answers a question, by what a model finds likely."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fluxmem_local.answers import parse_score
from fluxmem_local.errors import ModelOutputError
from fluxmem_local.types import FloatArray, JsonObject

from .fitting import cut_to_tokens
from .structured import VERDICT_SCHEMA
from .templates import escape, render

__all__ = ["DEFAULT_SCALES", "LikelihoodModel", "Scale", "VerifyingModel", "gains"]

_VERDICT_TOKENS = 16
# One chunk of memory; more would make the forward pass long and dilute what the evidence says.
_EVIDENCE_TOKENS = 192
_CLAIM_TOKENS = 128
_VERDICT_PROMPT_TOKENS = 768
_YES = ("Yes", "yes", " Yes", " yes")
_NO = ("No", "no", " No", " no")


@dataclass(frozen=True, slots=True)
class Scale:
    """From a gain, any number, to [0, 1]: ``neutral`` is worth 0.5, one ``spread`` above it 0.75, two of them 0.83.

    The map falls off as 1/gain on both sides, so that gains keep their order, and differences between good texts stay
    visible, where a logistic map would call all of them 1.
    """

    neutral: float
    spread: float

    def __call__(self, gains: FloatArray) -> FloatArray:
        """Map n gains: shape ``(n,)``, in (0, 1)."""
        distances = (np.asarray(gains, np.float64) - self.neutral) / self.spread
        values: FloatArray = (0.5 + 0.5 * distances / (1 + np.abs(distances))).astype(np.float32)
        return values


# Measured on SmolLM2-135M-Instruct; `fluxmem models calibrate` measures a model's own. A written verdict is in [0, 1].
DEFAULT_SCALES: Mapping[str, Scale] = {
    "likelihood": Scale(0.9, 0.67),
    "verdict": Scale(0.0, 1.0),
    "json": Scale(0.5, 0.5),
    "none": Scale(0.0, 1.0),
}


class LikelihoodModel(Protocol):
    """What likelihoods are asked of."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""

    async def score_batch(self, contexts: Sequence[str], continuations: Sequence[str]) -> FloatArray:
        """Return the mean log-probability of each continuation's tokens after its context: shape ``(n,)``."""


class VerifyingModel(LikelihoodModel, Protocol):
    """What all methods together ask of a model."""

    def prompt_budget(self, max_new_tokens: int) -> int:
        """Tokens that a prompt may have beside an answer of ``max_new_tokens``."""

    async def choose_batch(self, prompts: Sequence[str], choices: Sequence[Sequence[str]]) -> FloatArray:
        """Return the log-probability of each choice as the answer's beginning: shape ``(n, choices)``."""

    async def generate_json(self, prompt: str, schema: Mapping[str, Any], max_new_tokens: int) -> JsonObject:
        """Answer a prompt with a JSON object."""


async def gains(model: VerifyingModel, method: str, pairs: Sequence[tuple[str, str]]) -> FloatArray:
    """Judge n pairs of claim and evidence by a method, higher is better: shape ``(n,)``.

    Returns:
        "likelihood": how much likelier the evidence makes a token of the claim, in log-probability; "verdict": how much
        it raises the log-odds of a yes; "json": the number that the model writes, in [0, 1].

    Raises:
        ModelOutputError: a written verdict cannot be read.
    """
    if method == "json":
        return await _written_verdicts(model, pairs)
    judge = _likelihoods if method == "likelihood" else _verdicts
    claims = [cut_to_tokens(claim.strip(), _CLAIM_TOKENS, model.count_tokens) for claim, _ in pairs]
    evidences = [cut_to_tokens(evidence.strip(), _EVIDENCE_TOKENS, model.count_tokens) for _, evidence in pairs]
    # What a claim has in any case is worked out once a claim, and taken off.
    distinct = list(dict.fromkeys(claims))
    values = await judge(model, [*claims, *distinct], [*evidences, *["nothing"] * len(distinct)])
    alone = dict(zip(distinct, values[len(pairs) :], strict=True))
    return values[: len(pairs)] - np.asarray([alone[claim] for claim in claims], np.float32)


async def _likelihoods(model: LikelihoodModel, claims: Sequence[str], evidences: Sequence[str]) -> FloatArray:
    contexts = [f"Document: {escape(evidence)}\nThe question that this document answers:" for evidence in evidences]
    return await model.score_batch(contexts, [f" {claim}" for claim in claims])


async def _verdicts(model: VerifyingModel, claims: Sequence[str], evidences: Sequence[str]) -> FloatArray:
    # The claim stands first: then all prompts of a step begin alike, and the model reads that part once.
    budget = min(model.prompt_budget(1), _VERDICT_PROMPT_TOKENS)
    prompts = [
        render("verify_verdict", budget, model.count_tokens, claim=claim, evidence=evidence)
        for claim, evidence in zip(claims, evidences, strict=True)
    ]
    odds = await model.choose_batch(prompts, [_YES, _NO])
    return odds[:, 0] - odds[:, 1]


async def _written_verdicts(model: VerifyingModel, pairs: Sequence[tuple[str, str]]) -> FloatArray:
    budget = min(model.prompt_budget(_VERDICT_TOKENS), _VERDICT_PROMPT_TOKENS)
    # Asked together, so that a backend that batches can run them as one.
    answers = await asyncio.gather(
        *(
            model.generate_json(
                render("verify", budget, model.count_tokens, claim=claim, evidence=evidence),
                VERDICT_SCHEMA,
                _VERDICT_TOKENS,
            )
            for claim, evidence in pairs
        )
    )
    values = [parse_score(str(answer.get("score"))) for answer in answers]
    if None in values:
        raise ModelOutputError("the model's verdict is no number in [0, 1]; use a larger model")
    return np.asarray(values, np.float32)
