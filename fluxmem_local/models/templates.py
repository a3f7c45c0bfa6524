"""Prompt templates: files with an instruction, in which memory is escaped data between tags."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import Template

from fluxmem_local.errors import InvalidInputError

from .fitting import cut_to_tokens

__all__ = ["echoes", "escape", "render"]

logger = logging.getLogger(__name__)

_FOLDER = Path(__file__).with_name("prompts")
_SENTENCE_END = re.compile(r"(?<=[.:!?])\s+")
# Shorter ones may well stand in an honest answer.
_ECHO_MIN_CHARS = 20


def render(name: str, max_tokens: int, count: Callable[[str], int], /, **data: str) -> str:
    """Fill a template with escaped data, the longest of which is shortened until all fits.

    Args:
        name: the template's file name without its ending.
        max_tokens: tokens of the whole prompt at most.
        count: counts a text's tokens.
        data: the template's fields; text in them can close no tag and open none.

    Raises:
        InvalidInputError: the instruction alone has more tokens than allowed.
    """
    template = Template(_text(name))
    fields = {key: escape(value) for key, value in data.items()}
    bare = count(template.substitute(dict.fromkeys(fields, "")))
    if bare >= max_tokens:
        raise InvalidInputError(
            f"prompt {name!r} has {bare} tokens without its data and {max_tokens} are allowed; "
            "lower max_new_tokens or use a model with a longer context"
        )
    # Tokens at the seams may join or part, so the sum is checked again after each cut.
    room = max_tokens - bare
    while count(prompt := template.substitute(fields)) > max_tokens:
        sizes = {key: count(value) for key, value in fields.items()}
        longest = max(sizes, key=lambda key: sizes[key])
        excess = max(1, sum(sizes.values()) - room)
        logger.warning("%s of %d tokens was shortened to fit the model's context", longest, sizes[longest])
        fields[longest] = cut_to_tokens(fields[longest], max(0, sizes[longest] - excess), count)
    return prompt.strip()


def escape(text: str) -> str:
    """Make a text that can close no tag and open none."""
    return text.strip().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def echoes(name: str, answer: str) -> bool:
    """Tell whether an answer repeats a sentence of the instruction, or the end of one."""
    asked, said = (" ".join(text.split()).casefold() for text in (_text(name), answer))
    return any(
        len(sentence) >= _ECHO_MIN_CHARS and sentence in other
        for one, other in ((asked, said), (said, asked))
        for sentence in _SENTENCE_END.split(one)
    )


@cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.md").read_text("utf-8")
