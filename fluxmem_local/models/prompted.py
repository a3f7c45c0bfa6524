"""The five task calls of BaseLLM as prompts over three abilities: free text, JSON, and likelihood."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluxmem_local.answers import Attribution, parse_attribution, parse_json_object, usable_text
from fluxmem_local.errors import BlankTextError, InvalidInputError, ModelOutputError
from fluxmem_local.interfaces import BaseLLM
from fluxmem_local.types import FloatArray, JsonObject

from .attribution import Note, attribute_by_likelihood, notes_of, render_notes
from .registry import VERIFICATION_METHODS
from .structured import ATTRIBUTION_SCHEMA, SKILL_SCHEMA
from .templates import echoes, render
from .verification import DEFAULT_SCALES, Scale, gains

__all__ = ["PromptedLLM"]

_ATTRIBUTION_TOKENS = 192
# What the longest skill under its schema may take.
_SKILL_TOKENS = 256
# What verification says of evidence that it cannot judge.
_NO_OPINION = 0.5
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
        verification: "likelihood" compares how likely the claim is with and without the evidence; "verdict" how likely
            the model is to begin its answer with yes; "json" lets it write its verdict; "none" does not ask it.
        scale: from the gains of the first two to [0, 1]; None: as measured on the default model.
        attribution: "likelihood" or "json", for the cause of a failure.

    Raises:
        InvalidInputError: ``verification`` is none of these.
    """

    def __init__(
        self,
        *,
        max_new_tokens: int = 256,
        verification: str = "json",
        scale: Scale | None = None,
        attribution: str = "json",
    ) -> None:
        if verification not in VERIFICATION_METHODS:
            raise InvalidInputError(
                f"verification={verification!r} is unknown; allowed are {', '.join(VERIFICATION_METHODS)}"
            )
        self._max_new_tokens = max_new_tokens
        self._verification = verification
        self._scale = scale or DEFAULT_SCALES[verification]
        self._attribution = attribution
        self.verifies_claims = verification != "none"

    @abstractmethod
    def prompt_budget(self, max_new_tokens: int) -> int:
        """Tokens that a prompt may have beside an answer of ``max_new_tokens``."""

    @abstractmethod
    async def score_batch(self, contexts: Sequence[str], continuations: Sequence[str]) -> FloatArray:
        """Return the mean log-probability of each continuation's tokens after its context: shape ``(n,)``."""

    async def choose_batch(self, prompts: Sequence[str], choices: Sequence[Sequence[str]]) -> FloatArray:
        """Say how likely the model begins its answer to each of n prompts with each choice, in log-probability.

        This default reads the words after the bare prompt; a backend with a chat template answers within it.

        Args:
            prompts: n prompts.
            choices: for each choice the spellings that stand for it; their probabilities are added.

        Returns:
            Shape ``(n, choices)``.
        """
        words = [word for spellings in choices for word in spellings]
        scores = await self.score_batch([prompt for prompt in prompts for _ in words], words * len(prompts))
        ends = np.cumsum([len(spellings) for spellings in choices])[:-1]
        parts = np.split(scores.reshape(len(prompts), len(words)), ends, axis=1)
        return np.stack([np.logaddexp.reduce(part, axis=1) for part in parts], axis=1)

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

        A model that was measured to have no signal is not asked: all evidence gets 0.5.

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
        if told and self._verification == "none":
            values[told] = _NO_OPINION
        elif told:
            measured = await gains(self, self._verification, [(claims[at], evidences[at]) for at in told])
            values[told] = measured if self._verification == "json" else self._scale(measured)
        return values

    async def extract_skills(self, trajectories: Any) -> str:
        """Distil one skill from trajectories: a list of episode texts, or one text.

        Returns:
            JSON text as ``SKILL_SCHEMA`` has it: name, description, and steps with the numbers of their records.

        Raises:
            BlankTextError: there is nothing to learn from; the model is not asked.
            ModelOutputError: the answer cannot be used.
        """
        texts = [trajectories] if isinstance(trajectories, str) else [str(text) for text in trajectories]
        records = [f"Record {number}:\n{text.strip()}" for number, text in enumerate(texts, 1) if text.strip()]
        if not records:
            raise BlankTextError("trajectories are blank, so there is nothing to ask the model; give text")
        room = max(self._max_new_tokens, _SKILL_TOKENS)
        budget = self.prompt_budget(room)
        prompt = render("extract_skills", budget, self.count_tokens, trajectories="\n\n".join(records))
        value = await self.generate_json(prompt, SKILL_SCHEMA, room)
        text = json.dumps(value, ensure_ascii=False)
        if echoes("extract_skills", " ".join(map(str, value.values()))):
            raise ModelOutputError(f"the model gave the instruction back ({text[:60]!r}); nothing is changed")
        return text

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
