"""What counts as blank, and which texts are equal."""

from __future__ import annotations

import hashlib
import unicodedata

import regex

from fluxmem_local.errors import InvalidInputError

__all__ = ["check_text", "content_key", "is_blank", "is_question", "near_key"]

_BLANK = regex.compile(r"[\s\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]*+")
# Signs at the ends of a word that don't change what a fact says. A question mark does, and so does a sign before a
# number.
_ENDS_ASKING = regex.compile(r"[?？؟՞\u037e][^\w?？؟՞\u037e]*+$")
_LONGEST_ENDING = 64
_OPENING = "\"'“”‘’«»„([{「『（"
_CLOSING = "\"'“”‘’«»)]}」』）.,;:!…。，；：！、"


def is_blank(text: str) -> bool:
    """Tell whether a text has no visible character: only spaces, controls and zero-width marks.

    Raises:
        InvalidInputError: not a text.
    """
    return _BLANK.fullmatch(check_text(text)) is not None


def is_question(text: str) -> bool:
    """Tell whether a text ends with a question mark of any script, whatever brackets, quotes or spaces follow it."""
    return _ENDS_ASKING.search(text[-_LONGEST_ENDING:]) is not None


def content_key(text: str) -> str:
    """Return the SHA-256 (hex) that equal contents share, whatever their case, spacing or Unicode composition."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", check_text(text)).casefold())
    return hashlib.sha256(" ".join(folded.split()).encode("utf-8", "surrogatepass")).hexdigest()


def near_key(text: str) -> tuple[str, ...]:
    """Return what texts have in common that differ in case, spacing and outer punctuation of words only.

    Signs inside words and before numbers count, so ``-5``, ``5``, ``1.5`` and ``15`` all differ, as do ``C`` and
    ``C++``, a question and a statement.
    """
    plain = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    words = (word.lstrip(_OPENING).rstrip(_CLOSING) for word in plain.split())
    return tuple(word for word in words if word)


def check_text(text: str) -> str:
    """Return a text as it is.

    Raises:
        InvalidInputError: not a text.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"{type(text).__name__} is no text; give a str")
    return text
