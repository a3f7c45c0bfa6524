"""What counts as blank, and which texts are equal."""

from __future__ import annotations

import hashlib
import unicodedata

import regex

from fluxmem_local.errors import InvalidInputError

__all__ = ["check_text", "content_key", "is_blank"]

_BLANK = regex.compile(r"[\s\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]*+")


def is_blank(text: str) -> bool:
    """Tell whether a text has no visible character: only spaces, controls and zero-width marks.

    Raises:
        InvalidInputError: not a text.
    """
    return _BLANK.fullmatch(check_text(text)) is not None


def content_key(text: str) -> str:
    """Return the SHA-256 (hex) that equal contents share, whatever their case, spacing or Unicode composition."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", check_text(text)).casefold())
    return hashlib.sha256(" ".join(folded.split()).encode("utf-8", "surrogatepass")).hexdigest()


def check_text(text: str) -> str:
    """Return a text as it is.

    Raises:
        InvalidInputError: not a text.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"{type(text).__name__} is no text; give a str")
    return text
