"""Quotes: where a text repeats another one, word for word or nearly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import regex

__all__ = ["REDACTED", "Quotes"]

# What stands where a quote was.
REDACTED = "[forgotten]"

# Scripts without spaces are compared sign by sign. What stands between words does not matter, nor do capitals.
_WORD = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*|"
    r"[[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]+",
    regex.V1,
)
# So many words in a row are looked for at once.
_RUN = 3
# A run of fewer words than this is a quote only when it is more than this part of a text.
_CLEAR_RUN, _MOST_OF_IT = 8, 0.8
# Words that may have been put in or changed between two runs.
_GAP = 2
# A shorter text of fewer words than a run stands in many others by chance; it is found where it stands alone.
_LONG_QUOTE = 12
# More words than these are looked up in a text's own, and not one by one in the text.
_MOST_NEEDLES = 16


class Quotes:
    """Finds where any of the given texts is repeated.

    A quote is a run of the same words as in a text: all of them, more than four fifths of them, or at least eight. In
    between up to two words may differ. What ``but_not`` says as well is no quote.
    """

    def __init__(self, texts: Iterable[str], *, but_not: Iterable[str] = ()) -> None:
        self._alone: set[tuple[str, ...]] = set()
        self._short: set[tuple[str, ...]] = set()
        # For each run of words the length in words of the shortest text that has it.
        self._runs: dict[tuple[str, ...], int] = {}
        for text in texts:
            words = tuple(word for word, _, _ in _words(text))
            if len(words) >= _RUN:
                for run in _runs(words):
                    self._runs[run] = min(len(words), self._runs.get(run, len(words)))
            elif sum(map(len, words)) >= _LONG_QUOTE:
                self._short.add(words)
            elif words:
                self._alone.add(words)
        for text in but_not:
            words = tuple(word for word, _, _ in _words(text))
            self._short.discard(words)
            self._alone.discard(words)
            for run in _runs(words):
                self._runs.pop(run, None)
        # Whatever quotes holds one of these words: the longest of each run.
        self._needles = {max(run, key=len) for run in (*self._runs, *self._short, *self._alone)}

    def __bool__(self) -> bool:
        return bool(self._runs or self._short or self._alone)

    def may_be_in(self, text: str) -> bool:
        """Tell at little cost whether a text could quote; it may be any form of it that leaves words whole."""
        return self._may_be_in(text.casefold())

    def found_in(self, text: str) -> bool:
        """Tell whether a text quotes."""
        return next(self._places(text), None) is not None

    def redacted(self, text: str) -> str:
        """Return a text with a mark in the place of each quote, and itself where there is none."""
        parts: list[str] = []
        end = 0
        for start, stop in self._places(text):
            between = text[end:start]
            # One mark for quotes that follow each other.
            parts += [between] if parts and not between.strip() else [between, REDACTED]
            end = stop
        return "".join([*parts, text[end:]]) if parts else text

    def _may_be_in(self, folded: str) -> bool:
        if len(self._needles) > _MOST_NEEDLES:
            # Words by hash: as fast for a thousand texts as for twenty.
            return not self._needles.isdisjoint(_WORD.findall(folded))
        return any(needle in folded for needle in self._needles)

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        """Go through begin and end of the quotes in a text, in their order."""
        folded = text.casefold()
        if not self._may_be_in(folded):
            return
        keys = tuple(_WORD.findall(folded))
        long = not self._runs.keys().isdisjoint(_runs(keys))
        if not long and keys not in self._alone and not self._short:
            return
        words = list(_words(text))
        keys = tuple(word for word, _, _ in words)
        if keys in self._alone:
            yield words[0][1], words[-1][2]
            return
        taken: list[tuple[int, int]] = []
        for length in sorted({len(short) for short in self._short}):
            taken += [
                (place, place + length)
                for place in range(len(keys) - length + 1)
                if keys[place : place + length] in self._short
            ]
        merged: list[tuple[int, int]] = []
        for begin, stop in sorted([*taken, *(self._long(keys) if long else ())]):
            if merged and begin < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
            else:
                merged.append((begin, stop))
        for begin, stop in merged:
            yield words[begin][1], words[stop - 1][2]

    def _long(self, keys: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        hits = [(place, self._runs[run]) for place, run in enumerate(_runs(keys)) if run in self._runs]
        region: list[tuple[int, int]] = []
        for hit in hits:
            if region and hit[0] > region[-1][0] + _RUN + _GAP:
                yield from _quoted(region)
                region = []
            region.append(hit)
        yield from _quoted(region)


def _quoted(region: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Return the words from the first to the last hit when so many of them are a text's that they quote it."""
    if not region:
        return
    covered = _RUN + sum(min(_RUN, after - before) for (before, _), (after, _) in pairwise(region))
    if covered >= _CLEAR_RUN or covered > _MOST_OF_IT * min(length for _, length in region):
        yield region[0][0], region[-1][0] + _RUN


def _runs(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[offset:] for offset in range(_RUN)), strict=False)


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    for found in _WORD.finditer(text):
        yield found[0].casefold(), found.start(), found.end()
