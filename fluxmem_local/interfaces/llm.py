"""BaseLLM: what the stages ask of a language model (spec section 6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluxmem_local.types import FloatArray

__all__ = ["LLM_TIMEOUT_S", "UNMEASURED_ATTRIBUTION", "BaseLLM", "approximate_tokens"]


# A model that answers nothing for so long hangs: what asked it goes on without.
LLM_TIMEOUT_S = 120.0
# A little better than chance: enough to settle what the rules leave open.
UNMEASURED_ATTRIBUTION = 0.35


class BaseLLM(ABC):
    """A language model, reduced to the calls of the three stages.

    Six methods must be written. The batch calls and the token count have defaults that loop over them, so a minimal
    backend works; a local one overrides them to run one padded batch.

    What a model says is never trusted: callers check every answer, and an answer that cannot be used leads to no edit.

    ``writes_memories`` False says that the model's skills, rewritings and answers were measured to be of no use: they
    are then composed from the evidence alone, and no tokens are spent on asking. ``attributes_failures`` False says the
    same of its word on the cause of a failure, ``verifies_claims`` False of its word on a claim.
    ``attribution_accuracy`` is how often its cause of a failure was the right one of four (0.25 is chance): it sets
    the share of that word beside the rules. The default is for models of which it was not measured.
    """

    verifies_claims: bool = True
    writes_memories: bool = True
    attributes_failures: bool = True
    attribution_accuracy: float = UNMEASURED_ATTRIBUTION

    @abstractmethod
    async def generate(self, prompt: str, system_prompt: str | None = None, temperature: float = 0.7) -> str:
        """Answer a prompt in free text."""

    @abstractmethod
    async def verify(self, claim: str, evidence: str) -> float:
        """Say how well ``evidence`` supports ``claim``, in [0, 1]."""

    @abstractmethod
    async def extract_skills(self, trajectories: Any) -> str:
        """Distil a skill from trajectories: a list of episode texts, or one text."""

    @abstractmethod
    async def refine_skill(self, skill_text: str, feedback: str) -> str:
        """Improve a skill by what was observed of it."""

    @abstractmethod
    async def attribute_failure(self, context: str, feedback: str) -> dict[str, Any]:
        """Name the cause of a failed step.

        Returns:
            ``type`` ("connection", "unit" or "none"), ``action`` ("expand", "prune", "reshape" or "none"),
            ``details`` (text), ``targets`` (node ids of the context) and ``granularity`` ("fine", "coarse" or None).
        """

    @abstractmethod
    async def reshape_content(self, node_content: str, target_granularity: str, context: str) -> str:
        """Rewrite a memory: ``"fine"`` spells it out, ``"coarse"`` lifts it to a rule."""

    async def verify_batch(self, claims: Sequence[str], evidences: Sequence[str]) -> FloatArray:
        """Verify pairs of claim and evidence.

        Args:
            claims: n claims.
            evidences: n evidences, one a claim.

        Returns:
            Values in [0, 1], shape ``(n,)``.
        """
        values = [await self.verify(claim, evidence) for claim, evidence in zip(claims, evidences, strict=True)]
        return np.asarray(values, dtype=np.float32)

    async def generate_batch(
        self, prompts: Sequence[str], system_prompt: str | None = None, temperature: float = 0.7
    ) -> list[str]:
        """Answer n prompts; the answers stand in the prompts' order."""
        return [await self.generate(prompt, system_prompt, temperature) for prompt in prompts]

    def close(self) -> None:  # noqa: B027
        """End what the model holds, as threads and weights; the default holds nothing.

        An agent closes the models that it made itself, not those it was given.
        """

    def count_tokens(self, text: str) -> int:
        """Count the model's tokens of a text; without a tokenizer, about as many as there would be."""
        return approximate_tokens(text)


def approximate_tokens(text: str) -> int:
    """Guess the tokens of a text: about one for each four bytes of a word."""
    return sum(1 + max(0, len(word.encode()) - 4) // 4 for word in text.split())
