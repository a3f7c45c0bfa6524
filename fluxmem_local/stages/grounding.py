"""Grounding: which of a language model's words about episodes the episodes hold."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from fluxmem_local.answers import usable_text
from fluxmem_local.text import tokenize

from .rewriting import names_in
from .teaching import is_content_word

__all__ = ["grounded_text"]

# Of an added text's content words, this part must be found in the episodes.
_GROUNDED_SHARE = 0.5
# Numbers of a list are no claims.
_LIST_NUMBER = regex.compile(r"(?m)^[^\S\n]*\d+[.)]\s")
_CONTENT_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+(?:[._\-/:@+][\p{L}\p{M}\p{N}]+)*")
# Numbers, paths, addresses and identifiers: nearly right is wrong.
_EXACT = regex.compile(r"[\p{N}._/:@]")


def grounded_text(answer: object, sources: Sequence[str], max_chars: int) -> str | None:
    """Return a model's text on some sources, or None if it can't be used.

    It must be usable at all (not blank, too long, repetitive) and grounded: most of its content words, and each number,
    path, date and name, are found in the sources.
    """
    if not isinstance(answer, str):
        return None
    text = usable_text(answer, max_chars)
    if text is None or text[0] in "{[<":
        return None
    known: set[str] = set()
    for source in sources:
        known.update(tokenize(source))
        known.update(word.casefold() for word in _CONTENT_WORD.findall(source))
    words = [word.casefold() for word in _CONTENT_WORD.findall(_LIST_NUMBER.sub("", text))]
    words = [word for word in words if is_content_word(word)]
    found, named = (
        [any(token in known for token in (word, *tokenize(word))) for word in some]
        for some in (words, filter(is_content_word, names_in(text)))
    )
    exact = [word in known for word in words if _EXACT.search(word)]
    if not words or sum(found) < _GROUNDED_SHARE * len(words) or not all(exact + named):
        return None
    return text
