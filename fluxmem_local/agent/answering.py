"""Answering: a question answered from memory, checked against it, and repaired like any other task."""

from __future__ import annotations

import asyncio
import logging
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fluxmem_local.errors import ModelError, ModelNotFoundError, ModelOutputError
from fluxmem_local.graph import Edit
from fluxmem_local.interfaces import LLM_TIMEOUT_S, BaseLLM
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.results import ByKey
from fluxmem_local.retrieval import signals
from fluxmem_local.text import is_blank
from fluxmem_local.types import Scope

from .passages import Passage, Question, fit, passages_of, quote, says
from .results import EventListener
from .rewording import LikelihoodModel, least_gain
from .tasks import TaskRunner

__all__ = ["NOT_SAID", "Answer", "Answerer", "ask"]

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

NOT_SAID = "The memory does not say."

_SYSTEM_PROMPT = (
    "Answer the question in one short sentence, using only the facts given. "
    "If the facts do not hold the answer, reply: not in memory."
)
# How the prompt's own parts begin; a small model repeats them, or goes on with a next question.
_FRAME = re.compile(r"^[^\S\n]*(?:Facts|Question|Answer):", re.MULTILINE)
_NEXT_BLOCK = re.compile(r"\n\s*(?:\n|#|[-*] )")
# A sentence or two; more than that is a model that talks on.
_MOST_ANSWER_CHARS = 1200
# Passages that the model is asked about.
_MOST_CANDIDATES = 4
_LEAST_VERDICT = 0.5
# The gain in log-probability from which a word of the question counts as told in other words; more is asked for where
# a passage shares only one word with the question. Measured by scripts/bench_answers.py.
_GAIN_OF_MANY = 0.8
_GAIN_OF_ONE = 4.0
_REFUSALS = (
    "not in memory",
    "does not say",
    "do not say",
    "don't know",
    "do not know",
    "no information",
    "cannot answer",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(ByKey):
    """An answer from memory; ``citations`` are ids of the facts that hold what it says, none when it is not supported.

    ``rounds`` counts the tries and ``edits`` are the repairs between them; ``episode_id`` is the recorded episode.
    """

    text: str
    supported: bool
    citations: tuple[str, ...]
    episode_id: str
    rounds: int
    edits: tuple[Edit, ...] = ()


async def ask(
    runner: TaskRunner,
    llm: BaseLLM | None,
    question: str,
    *,
    store: MemoryStore,
    scope: Scope,
    on_event: EventListener | None = None,
) -> Answer:
    """Run a question as a task whose function answers it, and return what became of it.

    Raises:
        ModelNotFoundError: there is no language model.
        ModelError: it cannot work.
        BlankTextError: the question has no visible character.
    """
    if llm is None:
        raise ModelNotFoundError(
            "answering needs a language model; set llm_model to a registry name, a folder or a .gguf file"
        )
    answerer = Answerer(llm, question, lambda id: _as_told(store, id))
    result = await runner.run_task(question, answerer, scope=scope, on_event=on_event, answers=True)
    if answerer.error is not None:
        raise answerer.error
    return Answer(
        text=result.result if result.success else NOT_SAID,
        supported=result.success,
        citations=answerer.citations if result.success else (),
        episode_id=result.episode_id,
        rounds=result.rounds,
        edits=result.edits,
    )


@dataclass(frozen=True, slots=True)
class _Evidence:
    """``is_certain`` False: only an answer that a model gives and that says the same makes it an answer."""

    passage: Passage
    is_certain: bool


class Answerer:
    """The task function of one question: generates an answer from the context, checks it, remembers its citations."""

    def __init__(self, llm: BaseLLM, question: str, as_told: Callable[[str], tuple[str, str]]) -> None:
        self._llm = llm
        self._question = Question(question)
        self._as_told = as_told
        self.citations: tuple[str, ...] = ()
        self.error: ModelError | None = None
        self._patience_s = LLM_TIMEOUT_S

    async def __call__(self, context: str) -> tuple[str, str, bool]:
        """Answer from one context; returns the answer, what is wrong with it, and whether the facts support it."""
        self.citations = ()
        shown = _facts_of(context)
        # What a repair wrote into a fact, such as the last feedback, is no evidence; what it was written from is.
        facts = dict(self._as_told(id) for id in shown)
        evidence = await self._evidence(facts)
        if evidence is None:
            return "", f"The context holds no fact that answers: {self._question.text}", False
        answer = quote(self._question, evidence.passage) if evidence.is_certain else ""
        # A small model's own words go wrong more often than not; a sentence of a fact is right if the fact is.
        if self._llm.writes_memories:
            said = await self._asked(self._generated(shown))
            problem = "" if said is None else self._problem_of_form(said)
            if said and problem:
                return said[:_MOST_ANSWER_CHARS], problem, False
            if said and says(said, self._question, evidence.passage):
                answer = said
        if not answer:
            return "", f"No fact in the context is sure to answer: {self._question.text}", False
        self.citations = (evidence.passage.fact_id,)
        return answer, "", True

    async def _evidence(self, facts: Mapping[str, str]) -> _Evidence | None:
        """Find the passage that answers the question: one that fits, by the model's verdict as by its words."""
        passages = [passage for id, fact in facts.items() for passage in passages_of(id, fact)]
        fits = [found for passage in passages if (found := fit(self._question, passage)) is not None]
        fits.sort(key=lambda found: (-found.covered, -found.pairs, len(found.passage.text)))
        fits = fits[:_MOST_CANDIDATES]
        if not fits:
            return None
        given = await self._asked(
            self._llm.verify_batch([self._question.text] * len(fits), [found.passage.text for found in fits])
        )
        verdicts = None if given is None else signals.llm(given, len(fits))
        for at, found in enumerate(fits):
            if verdicts is not None and verdicts[at] < _LEAST_VERDICT:
                continue
            if not found.missing:
                return _Evidence(found.passage, is_certain=True)
            if isinstance(self._llm, LikelihoodModel):
                # Where one word alone is shared, any other thing done or had by the same name would be the answer.
                if found.covered < 2 and found.missing != (self._question.measure,):
                    continue
                gain = await self._asked(least_gain(self._llm, self._question, found))
                if gain is not None and gain >= (_GAIN_OF_MANY if found.covered >= 2 else _GAIN_OF_ONE):
                    return _Evidence(found.passage, is_certain=True)
            elif found.covered > sum(word.weight for word in found.missing):
                return _Evidence(found.passage, is_certain=False)
        return None

    async def _generated(self, shown: Mapping[str, str]) -> str:
        prompt = "Facts:\n" + "\n".join(f"- {fact}" for fact in shown.values())
        prompt += f"\n\nQuestion: {self._question.text}\nAnswer:"
        # The most likely words: an answer from facts is no place for invention.
        return _own_answer(await self._llm.generate(prompt, _SYSTEM_PROMPT, 0.0))

    async def _asked(self, call: Awaitable[_Result]) -> _Result | None:
        """Wait for the model; None when it gives nothing of use, so that the facts' own words have to do."""
        try:
            return await asyncio.wait_for(call, self._patience_s)
        except asyncio.TimeoutError:
            # From now on nothing is waited for, and so not even begun.
            self._patience_s = 0.0
            _log.warning("answering without the language model, which gave no answer in time")
        except ModelOutputError as error:
            _log.info("answering without the language model's word: %.500s", error)
        except ModelError as error:
            # The task loop takes errors for feedback; the caller must hear of a model that cannot work at all.
            self.error = error
            raise
        # A user's backend may raise anything: a time-out of its server, an error of its device.
        except Exception as error:
            _log.warning(
                "answering without the language model, which failed: %.500s", f"{type(error).__name__}: {error}"
            )
        return None

    def _problem_of_form(self, answer: str) -> str:
        if is_blank(answer) or len(answer) > _MOST_ANSWER_CHARS:
            return "The answer is empty, or far too long to be one."
        if any(refusal in answer.casefold() for refusal in _REFUSALS):
            return f"The context does not hold the answer to: {self._question.text}"
        return ""


def _own_answer(generated: str) -> str:
    """Return what a model says itself, without the prompt's frame; nothing when it repeats the instruction."""
    said = _FRAME.split(generated.strip().removeprefix("Answer:"), maxsplit=1)[0].strip()
    # One sentence was asked for; behind the first paragraph a small model copies the facts.
    said = _NEXT_BLOCK.split(said, maxsplit=1)[0].strip()
    words = " ".join(said.split())
    return "" if any(sentence in words for sentence in _SYSTEM_PROMPT.split(". ")) else said


def _as_told(store: MemoryStore, id: str) -> tuple[str, str]:
    """Return id and content of the fact as it was added, before any repair rewrote it."""
    node = store.get(id)
    while node.variant_of is not None:
        node = store.get(node.variant_of)
    return node.id, node.content


def _facts_of(context: str) -> Mapping[str, str]:
    """Read the facts back out of a rendered context: id to content, in their order."""
    root = ElementTree.fromstring(context)
    return {fact.get("id", ""): fact.text or "" for fact in root.iterfind("semantic_memory/fact")}
