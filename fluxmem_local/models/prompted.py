"""The five task calls of BaseLLM as prompts over three abilities: free text, JSON, and likelihood."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluxmem_local.answers import Attribution, parse_attribution, parse_json_object, parse_score, usable_text
from fluxmem_local.errors import BlankTextError, InvalidInputError, ModelOutputError
from fluxmem_local.interfaces import BaseLLM
from fluxmem_local.types import FloatArray, JsonObject

from .attribution import Note, attribute_by_likelihood, notes_of, render_notes
from .structured import ATTRIBUTION_SCHEMA, VERDICT_SCHEMA
from .templates import echoes, render
from .verification import relevance

__all__ = ["PromptedLLM"]

_VERDICT_TOKENS = 16
_ATTRIBUTION_TOKENS = 192
_VERDICT_PROMPT_TOKENS = 768
# Characters of an answer that may be stored; a token is seldom longer than this.
_CHARS_A_TOKEN = 8
# A rewritten note may be longer than the one it is made of, not without end.
_RESHAPE_GROWTH = 2


class PromptedLLM(BaseLLM):
    """Answers the task calls with prompts from files.

    A backend writes ``generate``, ``generate_json``, ``score_batch`` and ``prompt_budget``. Each task call is bounded
    in tokens; an answer that is blank, cut off, repetitive or a copy of the instruction raises ModelOutputError.

    Args:
        max_new_tokens: tokens of one answer at most.
        verification: "likelihood" compares how likely the claim is with and without the evidence; "json" lets the
            model write its verdict.
        attribution: the same choice for the cause of a failure.
    """

    def __init__(self, *, max_new_tokens: int = 256, verification: str = "json", attribution: str = "json") -> None:
        self._max_new_tokens = max_new_tokens
        self._verification = verification
        self._attribution = attribution

    @abstractmethod
    def prompt_budget(self, max_new_tokens: int) -> int:
        """Tokens that a prompt may have beside an answer of ``max_new_tokens``."""

    @abstractmethod
    async def score_batch(self, contexts: Sequence[str], continuations: Sequence[str]) -> FloatArray:
        """Return the mean log-probability of each continuation's tokens after its context: shape ``(n,)``."""

    async def complete(self, prompt: str, max_new_tokens: int) -> str:
        """Answer a prompt greedily and to its end; this default cannot tell an end from a cut.

        Raises:
            ModelOutputError: the answer was cut off at ``max_new_tokens``.
        """
        return await self.generate(prompt, temperature=0.0)

    async def generate_json(self, prompt: str, schema: Mapping[str, Any], max_new_tokens: int) -> JsonObject:
        """Answer a prompt with a JSON object; this default asks in free text and reads what comes.

        Raises:
            ModelOutputError: there is no such object in the answer.
        """
        answer = await self.complete(prompt, max_new_tokens)
        value = parse_json_object(answer, tuple(schema.get("required", ())))
        if value is None:
            raise ModelOutputError(
                f"the model's answer holds no JSON object as asked ({answer[:60]!r}); use a larger model"
            )
        return value

    async def verify(self, claim: str, evidence: str) -> float:
        """Say how well ``evidence`` supports ``claim``, in [0, 1].

        Raises:
            BlankTextError: the claim is blank.
            ModelOutputError: the verdict cannot be read.
        """
        return float((await self.verify_batch([claim], [evidence]))[0])

    async def verify_batch(self, claims: Sequence[str], evidences: Sequence[str]) -> FloatArray:
        """Verify n pairs of claim and evidence as one batch; blank evidence supports nothing.

        Returns:
            Values in [0, 1], shape ``(n,)``.

        Raises:
            BlankTextError: a claim is blank.
            InvalidInputError: not as many evidences as claims.
            ModelOutputError: a verdict cannot be read.
        """
        if len(claims) != len(evidences):
            raise InvalidInputError(f"{len(claims)} claims and {len(evidences)} evidences; give one evidence a claim")
        if not all(claim.strip() for claim in claims):
            raise BlankTextError("a blank claim cannot be verified; give text with a visible character")
        values = np.zeros(len(claims), np.float32)
        told = [at for at, evidence in enumerate(evidences) if evidence.strip()]
        if told:
            pairs = [(claims[at], evidences[at]) for at in told]
            values[told] = await (
                relevance(self, pairs) if self._verification == "likelihood" else self._written_verdicts(pairs)
            )
        return values

    async def extract_skills(self, trajectories: Any) -> str:
        """Distil one skill from trajectories: a list of episode texts, or one text.

        Raises:
            BlankTextError: there is nothing to learn from; the model is not asked.
            ModelOutputError: the answer cannot be used.
        """
        texts = [trajectories] if isinstance(trajectories, str) else [str(text) for text in trajectories]
        records = "\n\n".join(text.strip() for text in texts if text.strip())
        return await self._task("extract_skills", "trajectories", self._max_new_tokens, trajectories=records)

    async def refine_skill(self, skill_text: str, feedback: str) -> str:
        """Improve a skill by what was observed of it.

        Raises:
            BlankTextError: the skill is blank; the model is not asked.
            ModelOutputError: the answer cannot be used.
        """
        return await self._task(
            "refine_skill", "skill_text", self._max_new_tokens, skill_text=skill_text, feedback=feedback
        )

    async def reshape_content(self, node_content: str, target_granularity: str, context: str) -> str:
        """Rewrite a memory: ``"fine"`` spells it out, ``"coarse"`` lifts it to a rule.

        Raises:
            InvalidInputError: another granularity.
            BlankTextError: the memory is blank; the model is not asked.
            ModelOutputError: the answer cannot be used.
        """
        if target_granularity not in ("fine", "coarse"):
            raise InvalidInputError(
                f"target_granularity={target_granularity!r} is unknown; allowed are fine and coarse"
            )
        return await self._task(
            f"reshape_{target_granularity}",
            "node_content",
            max(self._max_new_tokens, _RESHAPE_GROWTH * self.count_tokens(node_content)),
            node_content=node_content,
            context=context,
        )

    async def attribute_failure(self, context: str, feedback: str) -> dict[str, Any]:
        """Name the cause of a failed step; targets are ids of notes that stand in the context.

        Raises:
            ModelOutputError: the answer cannot be used, or there is no feedback to find a cause for.
        """
        if not feedback.strip():
            raise ModelOutputError("blank feedback names no failure, so the model is not asked for its cause")
        notes = notes_of(context)
        if self._attribution == "likelihood":
            found = await attribute_by_likelihood(self, context, notes, feedback)
        else:
            found = await self._written_attribution(context, notes, feedback)
        return {
            "type": found.type,
            "action": found.action,
            "details": found.details,
            "targets": list(found.targets),
            "granularity": found.granularity,
        }

    async def _written_attribution(self, context: str, notes: Sequence[Note], feedback: str) -> Attribution:
        budget = self.prompt_budget(_ATTRIBUTION_TOKENS)
        prompt = render(
            "attribute_failure",
            budget,
            self.count_tokens,
            context=render_notes(context, notes),
            feedback=feedback,
        )
        value = await self.generate_json(prompt, ATTRIBUTION_SCHEMA, _ATTRIBUTION_TOKENS)
        listed = value.get("targets") if isinstance(value.get("targets"), list) else None
        targets = [notes[at - 1].id for at in listed if at in range(1, len(notes) + 1)] if listed else []
        found = parse_attribution({**value, "targets": targets})
        if found is None:
            raise ModelOutputError(f"the model's attribution contradicts itself ({value!r}); nothing is edited")
        return found

    async def _written_verdicts(self, pairs: Sequence[tuple[str, str]]) -> FloatArray:
        budget = min(self.prompt_budget(_VERDICT_TOKENS), _VERDICT_PROMPT_TOKENS)
        # Asked together, so that a backend that batches can run them as one.
        answers = await asyncio.gather(
            *(
                self.generate_json(
                    render("verify", budget, self.count_tokens, claim=claim, evidence=evidence),
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

    async def _task(self, name: str, subject: str, max_new_tokens: int, **data: str) -> str:
        if not data[subject].strip():
            raise BlankTextError(f"{subject} is blank, so there is nothing to ask the model; give text")
        prompt = render(name, self.prompt_budget(max_new_tokens), self.count_tokens, **data)
        answer = await self.complete(prompt, max_new_tokens)
        text = usable_text(answer, _CHARS_A_TOKEN * max_new_tokens)
        if text is None or echoes(name, text):
            raise ModelOutputError(
                f"the model's answer to {name} is blank, too long, repetitive or a copy of the instruction "
                f"({answer[:60]!r}); nothing is changed"
            )
        return text
