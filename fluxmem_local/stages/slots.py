"""Slots: where the episodes of a cluster differ, as the numbered parameters of their skill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import regex

from fluxmem_local.graph import Slot
from fluxmem_local.retrieval.markup import shorten

from .antiunification import Pattern, substitute, words_of
from .teaching import is_content_word

__all__ = ["SlotTable"]

_MOST_CHARS_OF_VALUE = 60
_FIRST_MARK = 0xF0000
_NUMBER = regex.compile(r"[\d.,:%\-]+")
_LETTERS = regex.compile(r"\p{L}{2,}")
_MARKED = regex.compile("\x01(.)\x02")


class SlotTable:
    """Gaps of patterns, joined where they have the same values in all episodes that both are seen in.

    A gap whose values are made of those of slots, as ``shop-web`` and ``blog-web`` of ``shop`` and ``blog``, is written
    with them.
    """

    def __init__(self) -> None:
        self._values: list[dict[str, str]] = []
        self._numbered: tuple[Slot, ...] | None = None

    def of(self, pattern: Pattern, ids: Sequence[str]) -> dict[int, str]:
        """Map each gap of a pattern of these episodes to its text, in which a slot is written as ``_mark`` of it."""
        return {
            gap: self._text(dict(zip(ids, map(_shorten_value, pattern.values(gap)), strict=True)))
            for gap in sorted(pattern.gaps)
        }

    def named(self, texts: Mapping[int, str]) -> dict[int, str]:
        """Write the slots in texts of gaps by number and kind."""
        numbered = self.numbered()
        return {
            gap: _MARKED.sub(lambda found: str(numbered[ord(found[1]) - _FIRST_MARK]), text)
            for gap, text in texts.items()
        }

    def written(self, text: str, id: str) -> str:
        """Write a text of an episode with a slot in the place of each value that the slot has there."""
        words = words_of(text)
        numbered = self.numbered()
        names: dict[str, str] = {}
        for place in sorted(range(len(self._values)), key=lambda place: -len(self._values[place].get(id, ""))):
            value = words_of(self._values[place].get(id, ""))
            if any(is_content_word(word.key) for word in value):
                names[_mark(place)] = str(numbered[place])
                words = substitute(words, value, _mark(place))
        return Pattern(common=tuple(words), gaps={}).render({}, names)

    def numbered(self) -> tuple[Slot, ...]:
        """Return the slots with their numbers and the word for their kind."""
        if self._numbered is None:
            self._numbered = tuple(
                Slot(number=number, kind=_kind(list(values.values())), values=_by_frequency(values.values()))
                for number, values in enumerate(self._values, start=1)
            )
        return self._numbered

    def examples(self, ids: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the values that the slots had together, most frequent first."""
        rows = [self.values_in(id) for id in ids]
        counted = Counter(row for row in rows if any(row))
        return tuple(sorted(counted, key=lambda row: (-counted[row], row)))

    def values_in(self, id: str) -> tuple[str, ...]:
        """Return the values that the slots had in an episode; a slot that it does not have is empty."""
        return tuple(values.get(id, "") for values in self._values)

    def _text(self, values: dict[str, str]) -> str:
        for place, known in enumerate(self._values):
            both = known.keys() & values.keys()
            if len(both) > 1 and all(known[id].casefold() == values[id].casefold() for id in both):
                known.update(values)
                self._numbered = None
                return _mark(place)
        return self._composed(values) or self._new(values)

    def _composed(self, values: Mapping[str, str]) -> str | None:
        """Write values by the slots whose values are parts of them, if that makes them all the same."""
        texts = dict(values)
        for place, known in enumerate(self._values):
            parts = {id: known.get(id, "") for id in texts}
            if all(len(part) > 1 and part.casefold() in texts[id].casefold() for id, part in parts.items()):
                texts = {
                    id: regex.sub(regex.escape(parts[id]), _mark(place), text, flags=regex.IGNORECASE)
                    for id, text in texts.items()
                }
        written = next(iter(texts.values()))
        same = all(text.casefold() == written.casefold() for text in texts.values())
        return written if len(texts) > 1 and same and _MARKED.search(written) else None

    def _new(self, values: dict[str, str]) -> str:
        self._values.append(values)
        self._numbered = None
        return _mark(len(self._values) - 1)


def _mark(slot: int) -> str:
    # One character of private use, between controls that values are cleared of.
    return f"\x01{chr(_FIRST_MARK + slot)}\x02"


def _kind(values: Sequence[str]) -> str:
    """Name the kind of a slot's values: a word that most of them share, or what they look like."""
    given = {value for value in values if value}
    if all(_NUMBER.fullmatch(value) for value in given):
        return "number"
    counts = Counter(part for value in given for part in set(_LETTERS.findall(value.casefold())))
    shared = [part for part, count in counts.items() if 2 * count > len(given) > 1 and is_content_word(part)]
    return max(shared, key=lambda part: (counts[part], part)) if shared else "item"


def _by_frequency(values: Iterable[str]) -> tuple[str, ...]:
    counts = Counter(value for value in values if value)
    return tuple(sorted(counts, key=lambda value: (-counts[value], value)))


def _shorten_value(value: str) -> str:
    return shorten(value.replace("\x01", ""), _MOST_CHARS_OF_VALUE)
