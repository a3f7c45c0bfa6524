"""Passages: sentences of facts, and how well one of them fits a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import regex

from fluxmem_local.text import is_question

from .wording import COPULAS, MEASURE_ASKING, SUBJECT_ASKING, Word, words_of

__all__ = ["Fit", "Passage", "Question", "fit", "passages_of", "quote", "says"]

# A short word before a full stop is an abbreviation or a number more often than a sentence's last word.
# Long runs of quotes or spaces are read once: what looks back is short, and spaces are tried from their first one.
_SENTENCE_END = regex.compile(
    r"(?<=\w{4}[\"'”’)\]]{0,4}[.!?…][\"'”’)\]]{0,4})\s+|(?<=[!?])\s+|(?<=[。！？][」』”’]{0,4})"
    r"|(?<![^\S\n])[^\S\n]*+\n\s*"
)
_CLAUSE_END = regex.compile(r"(?<=[;；])\s*")
_COMMA = regex.compile(r"(?<=[,;，；、])\s*| (?=[-–—] )")
_MARKS = regex.compile(r"^(?:[#>*+\-•]+\s+)+")
_DO = frozenset({"do", "does", "did"})


@dataclass(frozen=True)
class Question:
    """A question with its words."""

    text: str

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """All words, in their order."""
        return words_of(self.text)

    @cached_property
    def content(self) -> tuple[Word, ...]:
        """The words that say what is asked about."""
        return tuple(word for word in self.words if not word.is_empty)

    @cached_property
    def measure(self) -> Word | None:
        """The word that says what is measured, as "heavy" in "how heavy"."""
        return next(
            (two for one, two in pairwise(self.words) if one.text.casefold() in MEASURE_ASKING and not two.is_empty),
            None,
        )

    @cached_property
    def predicate(self) -> tuple[Word, ...]:
        """The words whose order tells who does and who is done to: after "who", and after an English "does"."""
        first = self.words[0].text.casefold() if self.words else ""
        if first in SUBJECT_ASKING and len(self.words) > 1:
            rest = self.words[1:]
            return () if rest[0].text.casefold() in COPULAS else rest
        at = next((at for at, word in enumerate(self.words) if word.text.casefold() in _DO), None)
        return () if at is None else self.words[at + 1 :]


@dataclass(frozen=True)
class Passage:
    """A sentence of a fact, or two that follow each other."""

    fact_id: str
    text: str

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """All words, in their order."""
        return words_of(self.text)


@dataclass(frozen=True, slots=True)
class Fit:
    """How a passage meets a question: the weight of the question's words it holds, and those it does not hold."""

    passage: Passage
    covered: float
    missing: tuple[Word, ...]
    pairs: int


def passages_of(fact_id: str, fact: str) -> list[Passage]:
    """Cut a fact into its sentences, and into each two that follow each other."""
    sentences = [part for part in _parts(fact, _SENTENCE_END) if words_of(part)]
    twos = [fact[fact.find(first) : fact.find(second) + len(second)] for first, second in pairwise(sentences)]
    return [Passage(fact_id, text) for text in dict.fromkeys([*sentences, *(two for two in twos if two)])]


def fit(question: Question, passage: Passage) -> Fit | None:
    """Compare a passage with a question; None when it cannot be the answer, whatever its words mean.

    It cannot when it is a question itself, says the question back, adds nothing to it, lacks a name or number that
    the question gives, tells of the same words in the opposite roles, or of another one: "the production database"
    where the staging database is asked for.
    """
    if is_question(passage.text) or not question.content or _repeats(question, passage):
        return None
    held = [word for word in question.content if _holds(passage.words, word, question)]
    missing = tuple(word for word in question.content if word not in held)
    if not held or any(word.is_told for word in missing):
        return None
    if _is_reversed(question, passage) or any(_is_replaced(word, question, passage) for word in missing):
        return None
    own = [word for word in passage.words if not word.is_empty and not _among(word, question.words)]
    if not own and not all(_among(word, passage.words) for word in question.words):
        return None
    pairs = sum(
        any(first.matches(one) and second.matches(two) for one, two in pairwise(passage.words))
        for first, second in pairwise(question.content)
    )
    return Fit(passage, sum(word.weight for word in held), missing, pairs)


def quote(question: Question, passage: Passage) -> str:
    """Return the passage, or the part of it between semicolons that holds all it has of the question."""
    held = [word for word in question.content if _among(word, passage.words)]
    for part in _parts(passage.text, _CLAUSE_END):
        words = words_of(part)
        if all(_among(word, words) for word in held) and any(
            not word.is_empty and not _among(word, question.words) for word in words
        ):
            return str(_MARKS.sub("", part.rstrip(";； ")))
    return str(_MARKS.sub("", passage.text))


def says(answer: str, question: Question, passage: Passage) -> bool:
    """Tell whether an answer says what a passage says, and nothing else.

    Its words stand in the passage, in one clause, with all that the passage has of the question, in the same order and
    up to the clause's end. Other words may only go before them: empty ones, and the question's own.
    """
    held = [word for word in question.content if _among(word, passage.words)]
    given = words_of(answer)
    for part in dict.fromkeys([*_parts(passage.text, _COMMA), passage.text]):
        words = words_of(part)
        if not all(_among(word, words) for word in held):
            continue
        length = next(
            (at for at in range(min(len(words), len(given))) if not words[-1 - at].matches(given[-1 - at])),
            min(len(words), len(given)),
        )
        before, run = given[: len(given) - length], given[len(given) - length :]
        if (
            any(not word.is_empty and not _among(word, question.words) for word in run)
            and any(_among(word, question.content) for word in run)
            and all(word.is_empty or (_among(word, question.words) and not _among(word, words)) for word in before)
        ):
            return True
    return False


def _parts(text: str, end: regex.Pattern[str]) -> list[str]:
    return [part.strip() for part in end.split(text) if part and part.strip()]


def _among(word: Word, words: Sequence[Word]) -> bool:
    return any(word.matches(other) for other in words)


def _holds(words: Sequence[Word], sought: Word, question: Question) -> bool:
    """Tell whether a word is there; of an owner's name only what it owns is told, so that must be asked for, too."""
    for at, word in enumerate(words):
        if word.matches(sought):
            if not word.is_possessive or sought.is_possessive:
                return True
            if at + 1 < len(words) and _among(words[at + 1], question.words):
                return True
    return False


def _repeats(question: Question, passage: Passage) -> bool:
    """Tell whether the passage holds the question word for word, its asking words too."""
    asking = any(word.is_empty for word in question.words) and len(question.words) > 2
    return asking and _has_run(question.words, passage.words)


def _has_run(sought: Sequence[Word], words: Sequence[Word]) -> bool:
    return any(
        all(one.matches(two) for one, two in zip(sought, words[at:], strict=False))
        for at in range(len(words) - len(sought) + 1)
    )


def _is_reversed(question: Question, passage: Passage) -> bool:
    """Tell whether the passage has the predicate only the other way round: "Ana leads" for "who leads Ana"."""
    asked = question.predicate
    for length in range(2, len(asked) + 1):
        for at in range(1, length):
            first, second = asked[:at], asked[at:length]
            if all(word.is_empty for word in first) or all(word.is_empty for word in second):
                continue
            if _has_run([*second, *first], passage.words) and not _has_run(asked[:length], passage.words):
                return True
    return False


def _is_replaced(missing: Word, question: Question, passage: Passage) -> bool:
    """Tell whether another word stands in the passage before the word that the missing one stands before."""
    following = next((two for one, two in pairwise(question.words) if one is missing), None)
    return following is not None and any(
        two.matches(following) and not one.is_empty and not _among(one, question.words)
        for one, two in pairwise(passage.words)
        if not two.is_empty and not two.is_sign
    )
