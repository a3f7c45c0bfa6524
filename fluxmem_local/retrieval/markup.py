"""Markup: text from memory as XML 1.0 that it can neither close nor open."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from fluxmem_local.types import JsonObject

__all__ = ["attributes", "escape", "json_attribute", "shorten"]

# Everything that XML 1.0 has no way to write, not even escaped.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SIGNS: dict[str, str | int | None] = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ATTRIBUTE_SIGNS: dict[str, str | int | None] = {**_SIGNS, '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


def escape(text: str) -> str:
    """Write a text as element content; a character that XML cannot hold becomes U+FFFD."""
    plain = _UNWRITABLE.sub("\ufffd", text).replace("\r\n", "\n").replace("\r", "\n")
    return plain.translate(str.maketrans(_SIGNS))


def attributes(values: Mapping[str, object]) -> str:
    """Write attributes with a leading space each; those that are None are left out."""
    table = str.maketrans(_ATTRIBUTE_SIGNS)
    return "".join(
        f' {name}="{_UNWRITABLE.sub(chr(0xFFFD), str(value)).translate(table)}"'
        for name, value in values.items()
        if value is not None
    )


def json_attribute(name: str, value: JsonObject) -> str:
    """Write JSON as an attribute in single quotes, with a leading space: its own quotes stay as they are."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f" {name}='{escape(text).replace(chr(39), '&apos;')}'"


def shorten(text: str, max_chars: int) -> str:
    """Cut a text at a word so that it has at most ``max_chars`` characters, the ellipsis among them.

    A first word that is longer than that, or text without spaces, is cut within.
    """
    if len(text) <= max_chars:
        return text
    if max_chars < 1:
        return ""
    head = text[: max_chars - 1]
    if not text[max_chars - 1].isspace():
        words = head.rsplit(None, 1)
        # Scripts without spaces have no word to go back to.
        if len(words) == 2 and len(words[0]) * 2 >= len(head):
            head = words[0]
    return head.rstrip() + "…"
