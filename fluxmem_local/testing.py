"""Doubles for tests of code that uses the memory: no model, no network, the same answer each time."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

import numpy as np

from fluxmem_local.errors import BlankTextError, InvalidInputError, ModelOutputError
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM
from fluxmem_local.types import FloatArray

__all__ = ["FailingLLM", "HashEmbedder", "LLMCall", "ScriptedLLM"]

Script: TypeAlias = Iterable[Any] | Callable[..., Any]
_Answer = TypeVar("_Answer")

# One character is a word where no spaces are written (CJK ideographs, kana); elsewhere a run of letters and digits is.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
_ENDINGS = ("ings", "ing", "ies", "ed", "es", "s")
_SHORTEST_STEM = 3

_DEFAULTS: Mapping[str, Any] = {
    "generate": "",
    "verify": 0.5,
    "extract_skills": "",
    "refine_skill": "",
    "attribute_failure": {"type": "none", "action": "none", "details": "", "targets": [], "granularity": None},
    "reshape_content": "",
}


class HashEmbedder(BaseEmbedder):
    """Embeds a text as the bag of its words, so that texts that share words are similar.

    Each word (lower case, English endings cut) adds or takes one in a bucket chosen by its SHA-256; the sum is scaled
    to unit length. The same text gives the same vector on every machine.
    """

    def __init__(self, dimension: int = 64) -> None:
        if dimension < 1:
            raise InvalidInputError(f"dimension={dimension} is no vector size; give 1 or more")
        self.dimension = dimension

    @property
    def fingerprint(self) -> str:
        """Name the way of hashing and the vector size."""
        return f"hash-embedder-1/{self.dimension}"

    async def embed_text(self, text: str) -> FloatArray:
        """Embed one text: shape ``(dimension,)``, unit length.

        Raises:
            BlankTextError: there is nothing to embed.
        """
        return self._embed(text)

    async def embed_batch(self, texts: Sequence[str]) -> FloatArray:
        """Embed n texts in their order: shape ``(n, dimension)``, rows of unit length.

        Raises:
            BlankTextError: one of the texts is blank.
        """
        return np.stack([self._embed(text) for text in texts]) if texts else np.empty((0, self.dimension), np.float32)

    def _embed(self, text: str) -> FloatArray:
        if not text.strip():
            raise BlankTextError("blank text cannot be embedded; give text with a visible character")
        vector = self._bag([_stem(word) for word in _WORD.findall(text.casefold())])
        if not vector.any():
            # Only signs, or words that cancel each other out: the whole text counts as one word.
            vector = self._bag([text])
        unit: FloatArray = vector / np.float32(np.linalg.norm(vector))
        return unit

    def _bag(self, words: Iterable[str]) -> FloatArray:
        vector = np.zeros(self.dimension, np.float32)
        for word in words:
            number = int.from_bytes(hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()[:8], "big")
            vector[(number >> 1) % self.dimension] += 1.0 if number & 1 else -1.0
        return vector


@dataclass(frozen=True, slots=True)
class LLMCall:
    """One recorded call: its kind (the method's name) and its arguments by name."""

    kind: str
    arguments: Mapping[str, Any]


class ScriptedLLM(BaseLLM):
    """Gives prepared answers and records what it was asked.

    ``answers`` maps a method's name to the answers of its calls, in order, or to a function that is called with the
    method's arguments. An answer that is an exception is raised. When the answers are used up, or none were given, the
    call gets an answer that leads to doing nothing: empty text, 0.5 from ``verify``, "none" as a failure's cause. The
    batch calls are recorded as such, and take their single answers from the queue of the single call.

    Raises:
        InvalidInputError: ``answers`` names a method that is not a call of a language model.
    """

    def __init__(self, answers: Mapping[str, Script] | None = None) -> None:
        answers = answers or {}
        unknown = sorted(set(answers) - set(_DEFAULTS))
        if unknown:
            raise InvalidInputError(f"{unknown[0]!r} is no call of a language model; calls: {', '.join(_DEFAULTS)}")
        self.calls: list[LLMCall] = []
        self._scripts: dict[str, deque[Any] | Callable[..., Any]] = {
            kind: script if callable(script) else deque(script) for kind, script in answers.items()
        }

    def calls_of(self, kind: str) -> list[LLMCall]:
        """List the recorded calls of one kind, in their order."""
        return [call for call in self.calls if call.kind == kind]

    async def generate(self, prompt: str, system_prompt: str | None = None, temperature: float = 0.7) -> str:
        """Give the next answer of "generate"."""
        return self._next("generate", str, prompt=prompt, system_prompt=system_prompt, temperature=temperature)

    async def verify(self, claim: str, evidence: str) -> float:
        """Give the next answer of "verify"."""
        return self._next("verify", float, claim=claim, evidence=evidence)

    async def extract_skills(self, trajectories: Any) -> str:
        """Give the next answer of "extract_skills"."""
        return self._next("extract_skills", str, trajectories=trajectories)

    async def refine_skill(self, skill_text: str, feedback: str) -> str:
        """Give the next answer of "refine_skill"."""
        return self._next("refine_skill", str, skill_text=skill_text, feedback=feedback)

    async def attribute_failure(self, context: str, feedback: str) -> dict[str, Any]:
        """Give the next answer of "attribute_failure"."""
        return self._next("attribute_failure", dict, context=context, feedback=feedback)

    async def reshape_content(self, node_content: str, target_granularity: str, context: str) -> str:
        """Give the next answer of "reshape_content"."""
        return self._next(
            "reshape_content", str, node_content=node_content, target_granularity=target_granularity, context=context
        )

    async def verify_batch(self, claims: Sequence[str], evidences: Sequence[str]) -> FloatArray:
        """Record one batch, then give n answers of "verify": shape ``(n,)``."""
        self.calls.append(LLMCall("verify_batch", {"claims": list(claims), "evidences": list(evidences)}))
        return await super().verify_batch(claims, evidences)

    async def generate_batch(
        self, prompts: Sequence[str], system_prompt: str | None = None, temperature: float = 0.7
    ) -> list[str]:
        """Record one batch, then give n answers of "generate"."""
        self.calls.append(
            LLMCall(
                "generate_batch",
                {"prompts": list(prompts), "system_prompt": system_prompt, "temperature": temperature},
            )
        )
        return await super().generate_batch(prompts, system_prompt, temperature)

    def _next(self, kind: str, answer_type: type[_Answer], **arguments: Any) -> _Answer:
        # The type is for the type checker only: a script may well stand for a model that answers wrongly.
        self.calls.append(LLMCall(kind, arguments))
        script = self._scripts.get(kind)
        answer = script(**arguments) if callable(script) else script.popleft() if script else _DEFAULTS[kind]
        if isinstance(answer, BaseException):
            raise answer
        return cast(_Answer, dict(answer) if isinstance(answer, Mapping) else answer)


class FailingLLM(BaseLLM):
    """Raises ModelOutputError at each call and counts the calls in ``num_calls``."""

    def __init__(self) -> None:
        self.num_calls = 0

    async def generate(self, prompt: str, system_prompt: str | None = None, temperature: float = 0.7) -> str:
        """Fail."""
        self._fail()

    async def verify(self, claim: str, evidence: str) -> float:
        """Fail."""
        self._fail()

    async def extract_skills(self, trajectories: Any) -> str:
        """Fail."""
        self._fail()

    async def refine_skill(self, skill_text: str, feedback: str) -> str:
        """Fail."""
        self._fail()

    async def attribute_failure(self, context: str, feedback: str) -> dict[str, Any]:
        """Fail."""
        self._fail()

    async def reshape_content(self, node_content: str, target_granularity: str, context: str) -> str:
        """Fail."""
        self._fail()

    def _fail(self) -> NoReturn:
        self.num_calls += 1
        raise ModelOutputError("this language model fails at each call, as its test wants")


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word[: -len(ending)]
    return word
