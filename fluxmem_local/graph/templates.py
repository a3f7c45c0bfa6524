"""Templates: texts with slots, as a skill's use and steps are; filled with values, and read back from a text."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["bind", "fill", "slots_in"]

_SLOT = re.compile(r"<(\d{1,3}):[^<>]{1,80}>")


def slots_in(template: str) -> frozenset[int]:
    """Return the numbers of the slots in a template."""
    return frozenset(int(number) for number in _SLOT.findall(template))


def fill(template: str, values: Mapping[int, str]) -> str:
    """Write values in the place of their slots; a slot without a value stays."""
    return _SLOT.sub(lambda found: values.get(int(found[1]), "") or found[0], template)


def bind(template: str, text: str, known: Mapping[int, str] | None = None) -> dict[int, str] | None:
    """Read the values of a template's slots from a text, whatever its case and spaces.

    A slot ends where the words after it are found first.

    Args:
        template: the text with slots.
        text: maybe an instance of it.
        known: values of slots that the text must have there.

    Returns:
        The values of the template's slots by number; None when the text is no instance.
    """
    text = " ".join(text.split())
    found: dict[int, str] = {}
    pending: int | None = None
    place = 0
    for piece, number in _pieces(template):
        words = piece if number is None else (known or {}).get(number) or found.get(number)
        if not words:
            # Where one of two slots side by side ends, nothing tells.
            if pending is not None:
                return None
            pending = number
            continue
        start = _find(text, words, place + (pending is not None))
        if start < 0 or (pending is None and start != place):
            return None
        if pending is not None:
            found[pending] = text[place:start]
            pending = None
        place = start + len(words)
        if number is not None:
            found[number] = text[start:place]
    if pending is not None:
        found[pending] = text[place:]
        place = len(text)
    return found if place == len(text) and all(value.strip() for value in found.values()) else None


def _pieces(template: str) -> list[tuple[str, int | None]]:
    """Split a template into its words, with None, and its slots, with their number."""
    template = " ".join(template.split())
    pieces: list[tuple[str, int | None]] = []
    place = 0
    for slot in _SLOT.finditer(template):
        if slot.start() > place:
            pieces.append((template[place : slot.start()], None))
        pieces.append((slot[0], int(slot[1])))
        place = slot.end()
    if place < len(template):
        pieces.append((template[place:], None))
    return pieces


def _find(text: str, words: str, start: int) -> int:
    found = text.find(words, start)
    # Lower case may have another length, as that of the Turkish capital I has.
    if found < 0 and len(lowered := text.lower()) == len(text):
        found = lowered.find(words.lower(), start)
    return found
