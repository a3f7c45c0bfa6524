"""Answering: a question answered from memory, checked against it, and repaired like any other task."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fluxmem_local.errors import ModelError, ModelOutputError
from fluxmem_local.graph import Edit
from fluxmem_local.interfaces import BaseLLM
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.results import ByKey
from fluxmem_local.text import is_blank, tokenize
from fluxmem_local.types import Scope

from .results import EventListener
from .tasks import TaskRunner

__all__ = ["NOT_SAID", "Answer", "Answerer", "ask"]

NOT_SAID = "The memory does not say."

_SYSTEM_PROMPT = (
    "Answer the question in one short sentence, using only the facts given. "
    "If the facts do not hold the answer, reply: not in memory."
)
# How the prompt's own parts begin; a small model repeats them, or goes on with a next question.
_FRAME = re.compile(r"^\s*(?:Facts|Question|Answer):", re.MULTILINE)
_NEXT_BLOCK = re.compile(r"\n\s*(?:\n|#|[-*] )")
# A sentence or two; more than that is a model that talks on.
_MOST_ANSWER_CHARS = 1200
# Of an answer's own words, the share that the facts must hold.
_LEAST_OVERLAP = 0.5
# Mean of that share and of the model's own verification.
_LEAST_SUPPORT = 0.5
_NAME_OR_NUMBER = re.compile(r"\b\w*\d\w*\b|(?<=[\w,;] )[^\W\d_a-z]\w*")
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
        ModelError: there is no language model, or it cannot work.
        BlankTextError: the question has no visible character.
    """
    if llm is None:
        raise ModelError("answering needs a language model; set llm_model to a registry name, a folder or a .gguf file")
    answerer = Answerer(llm, question, lambda id: _as_told(store, id))
    result = await runner.run_task(question, answerer, scope=scope, on_event=on_event)
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


class Answerer:
    """The task function of one question: generates an answer from the context, checks it, remembers its citations."""

    def __init__(self, llm: BaseLLM, question: str, as_told: Callable[[str], tuple[str, str]]) -> None:
        self._llm = llm
        self._question = question
        self._as_told = as_told
        self.citations: tuple[str, ...] = ()
        self.error: ModelError | None = None

    async def __call__(self, context: str) -> tuple[str, str, bool]:
        """Answer from one context; returns the answer, what is wrong with it, and whether the facts support it."""
        self.citations = ()
        shown = _facts_of(context)
        if not shown:
            return "", f"The context holds no fact that answers: {self._question}", False
        prompt = (
            "Facts:\n" + "\n".join(f"- {fact}" for fact in shown.values()) + f"\n\nQuestion: {self._question}\nAnswer:"
        )
        try:
            # The most likely words: an answer from facts is no place for invention.
            answer = _own_answer(await self._llm.generate(prompt, _SYSTEM_PROMPT, 0.0))
        except ModelOutputError as error:
            return "", f"The model gave no usable answer: {error}", False
        except ModelError as error:
            # The task loop takes errors for feedback; the caller must hear of a model that cannot work at all.
            self.error = error
            raise
        problem = self._problem_of_form(answer)
        if problem:
            return answer[:_MOST_ANSWER_CHARS], problem, False
        # What a repair wrote into a fact, such as the last feedback, is no evidence; what it was written from is.
        facts = dict(self._as_told(id) for id in shown)
        words = self._own_words(answer)
        shares = {id: _share(words, fact) for id, fact in facts.items()}
        cited = _fewest_that_cover(words, facts)
        evidence = "\n".join(facts[id] for id in cited)
        overlap = _share(words, evidence)
        missing = sorted(self._names_and_numbers(answer) - set(tokenize(evidence)))
        if not cited or overlap < _LEAST_OVERLAP or missing:
            which = f" They say nothing of: {', '.join(missing)}." if missing else ""
            return answer, f"The facts in the context do not support the answer.{which}", False
        verified = float(await self._llm.verify(f"{self._question} {answer}", evidence))
        if (overlap + verified) / 2 < _LEAST_SUPPORT:
            return answer, "The facts in the context do not support the answer.", False
        self.citations = tuple(sorted(cited, key=lambda id: -shares[id]))
        return answer, "", True

    def _problem_of_form(self, answer: str) -> str:
        if is_blank(answer) or len(answer) > _MOST_ANSWER_CHARS:
            return "The answer is empty, or far too long to be one."
        if any(refusal in answer.casefold() for refusal in _REFUSALS):
            return f"The context does not hold the answer to: {self._question}"
        return ""

    def _own_words(self, answer: str) -> set[str]:
        """Return the tokens that the answer adds to the question; all of it when it adds none, as a yes or no would."""
        words = set(tokenize(answer))
        return words - set(tokenize(self._question)) or words

    def _names_and_numbers(self, answer: str) -> set[str]:
        """Return the words that only a fact can have told: with a digit, or with a capital within a sentence."""
        told = {word.casefold() for word in _NAME_OR_NUMBER.findall(answer)}
        return told - set(tokenize(self._question))


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


def _share(words: set[str], text: str) -> float:
    return len(words & set(tokenize(text))) / len(words) if words else 0.0


def _fewest_that_cover(words: set[str], facts: Mapping[str, str]) -> tuple[str, ...]:
    """Choose facts, each for the words of the answer that those before it do not hold."""
    left = set(words)
    tokens = {id: set(tokenize(fact)) for id, fact in facts.items()}
    chosen: list[str] = []
    while left:
        best = max(tokens, key=lambda id: len(tokens[id] & left))
        if not tokens[best] & left:
            break
        chosen.append(best)
        left -= tokens[best]
    return tuple(chosen)
