"""Anti-unification: what texts share word for word, with gaps where they differ; and alignment of sequences."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import regex

__all__ = ["Pattern", "Word", "align", "anti_unify", "similarity", "substitute", "words_of"]

# A name or number with its joints (a path, a date, an e-mail address), one character of a script without spaces, or
# one sign.
_WORD = regex.compile(
    r"(?V1)(?P<space>\s*+)(?P<word>[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]"
    r"|[[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]]++"
    r"(?:[._\-/:@'+&]{1,2}[[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]]++)*+|\S)"
)
# A longer text is no instruction but a document; the rest of it is left out of the comparison.
_MOST_WORDS = 400
_LEAST_SIMILARITY = 0.5
_VERB_PART = 0.35


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text, and whether white space stands before it; words are equal whatever their case."""

    text: str = field(compare=False)
    space: bool = field(compare=False)
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """What n texts share: their common words in order, and for each gap what each text has there.

    ``gaps`` maps the place of a gap (0: before the first common word, …) to n runs of words; only places at which some
    text has something are gaps.
    """

    common: tuple[Word, ...]
    gaps: Mapping[int, tuple[tuple[Word, ...], ...]]

    @property
    def share(self) -> float:
        """The share of the common words in the longest text that the pattern stands for, in [0, 1]."""
        longest = sum(max(len(run) for run in runs) for runs in self.gaps.values())
        return len(self.common) / max(1, len(self.common) + longest)

    def values(self, place: int) -> tuple[str, ...]:
        """Return the n texts of a gap."""
        return tuple(_join(run) for run in self.gaps[place])

    def render(self, gap_texts: Mapping[int, str], word_texts: Mapping[str, str]) -> str:
        """Write the pattern: a gap as ``gap_texts`` has it, a word whose key is in ``word_texts`` as that says."""
        pieces: list[Word] = []
        for place in range(len(self.common) + 1):
            if place in self.gaps:
                space = next(run[0].space for run in self.gaps[place] if run)
                pieces.append(Word(gap_texts[place], space))
            if place < len(self.common):
                word = self.common[place]
                pieces.append(Word(word_texts.get(word.key, word.text), word.space))
        return _join(pieces)


def words_of(text: str) -> list[Word]:
    """Split a text into words, 400 at most."""
    found = []
    # Spaces before no word would be tried from each of them.
    for match in _WORD.finditer(text.rstrip()):
        found.append(Word(match["word"], bool(match["space"]), match["word"].casefold()))
        if len(found) == _MOST_WORDS:
            break
    return found


def substitute(words: Sequence[Word], run: Sequence[Word], key: str) -> list[Word]:
    """Put one word with this key in the place of each occurrence of a run of words; its text is that of the run."""
    result: list[Word] = []
    place = 0
    while place < len(words):
        if run and list(words[place : place + len(run)]) == list(run):
            result.append(Word(_join(words[place : place + len(run)]), words[place].space, key))
            place += len(run)
        else:
            result.append(words[place])
            place += 1
    return result


def anti_unify(texts: Sequence[Sequence[Word]]) -> Pattern:
    """Find the most specific pattern, as far as blocks of common words go, of which all texts are instances."""
    common = list(texts[0])
    for words in texts[1:]:
        matcher = difflib.SequenceMatcher(None, common, words, autojunk=False)
        common = [common[block.a + offset] for block in matcher.get_matching_blocks() for offset in range(block.size)]
    runs = [_between(common, words) for words in texts]
    return Pattern(
        common=tuple(common),
        gaps={
            place: tuple(run[place] for run in runs)
            for place in range(len(common) + 1)
            if any(run[place] for run in runs)
        },
    )


@dataclass(frozen=True, slots=True)
class _Bag:
    """A text for comparison: each word with the number of times that it was there before, and the first word."""

    words: frozenset[tuple[str, int]]
    first: str

    @classmethod
    def of(cls, words: Sequence[Word]) -> _Bag:
        counts: Counter[str] = Counter()
        seen = set()
        for word in words:
            seen.add((word.key, counts[word.key]))
            counts[word.key] += 1
        return cls(frozenset(seen), words[0].key if words else "")


def similarity(one: Sequence[Word], other: Sequence[Word]) -> float:
    """Dice coefficient of two bags of words, with a part for the same first word, in [0, 1].

    Commands start with their verb: "open wardrobe" and "open chest of drawers" are one step with another object.
    """
    return _similarity(_Bag.of(one), _Bag.of(other))


def _similarity(one: _Bag, other: _Bag) -> float:
    total = len(one.words) + len(other.words)
    if not one.words or not other.words:
        return 0.0 if total else 1.0
    same_verb = one.first == other.first and len(one.first) > 1
    return (1 - _VERB_PART) * 2 * len(one.words & other.words) / total + (_VERB_PART if same_verb else 0.0)


def _numbered(texts: Sequence[Sequence[Word]]) -> tuple[list[int], list[_Bag]]:
    """Number the different texts: each text's number, and the bags in the order of their numbers."""
    numbers: dict[_Bag, int] = {}
    return [numbers.setdefault(_Bag.of(words), len(numbers)) for words in texts], list(numbers)


def align(columns: Sequence[Sequence[Word]], steps: Sequence[Sequence[Word]]) -> list[tuple[int | None, int | None]]:
    """Align two sequences of texts so that the summed similarity of matched pairs is greatest (Needleman-Wunsch).

    Pairs less similar than one half don't match, and gaps cost nothing.

    Returns:
        Pairs of a column's place and a step's place in order; None where one side has nothing.
    """
    rows, cols = len(columns), len(steps)
    best = [[0.0] * (cols + 1) for _ in range(rows + 1)]
    # Long episodes repeat what they do, so that few of the pairs differ.
    (left, bags), (right, others) = _numbered(columns), _numbered(steps)
    known = [[_similarity(bag, other) for other in others] for bag in bags]
    for row in range(1, rows + 1):
        for col in range(1, cols + 1):
            score = known[left[row - 1]][right[col - 1]]
            matched = best[row - 1][col - 1] + score if score >= _LEAST_SIMILARITY else -1.0
            best[row][col] = max(best[row - 1][col], best[row][col - 1], matched)
    pairs: list[tuple[int | None, int | None]] = []
    row, col = rows, cols
    while row or col:
        if row and best[row][col] == best[row - 1][col]:
            row -= 1
            pairs.append((row, None))
        elif col and best[row][col] == best[row][col - 1]:
            col -= 1
            pairs.append((None, col))
        else:
            row, col = row - 1, col - 1
            pairs.append((row, col))
    return pairs[::-1]


def _between(common: Sequence[Word], words: Sequence[Word]) -> list[tuple[Word, ...]]:
    """Words before, between and after the common words, found from the left: one run more than common words."""
    runs: list[tuple[Word, ...]] = []
    run: list[Word] = []
    for word in words:
        if len(runs) < len(common) and word == common[len(runs)]:
            runs.append(tuple(run))
            run = []
        else:
            run.append(word)
    return [*runs, tuple(run)]


def _join(words: Sequence[Word]) -> str:
    return "".join((" " if word.space and place else "") + word.text for place, word in enumerate(words))
