"""Makes a prompt fit a model's context by shortening the memory in it, never the instruction."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from fluxmem_local.errors import InvalidInputError

__all__ = ["cut_to_tokens", "fit_prompt"]

logger = logging.getLogger(__name__)

_MEMORY = re.compile(r"(<context\b[^>]*>)(.*)(</context>)", re.DOTALL)
_TAG_LINE = re.compile(r"\s*(?:</?[A-Za-z_][^<>]*>\s*)+")


def fit_prompt(prompt: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Shorten the memory between ``<context>`` and ``</context>`` until the prompt has at most ``max_tokens``.

    The memory stands in order of use, so its last lines go first; lines of nothing but tags stay, so that what was
    opened is closed. All outside of it stays as it is.

    Raises:
        InvalidInputError: the prompt is too long even without memory.
    """
    total = count(prompt)
    if total <= max_tokens:
        return prompt
    found = _MEMORY.search(prompt)
    if found is None:
        raise InvalidInputError(
            f"the prompt has {total} tokens and the model takes {max_tokens} beside its answer; shorten it, "
            "or put what may be shortened between <context> and </context>"
        )
    lines = found[2].splitlines(keepends=True)
    content = [at for at, line in enumerate(lines) if line.strip() and not _TAG_LINE.fullmatch(line)]

    def kept(num_lines: int) -> str:
        dropped = set(content[num_lines:])
        memory = "".join(line for at, line in enumerate(lines) if at not in dropped)
        return prompt[: found.end(1)] + memory + prompt[found.start(3) :]

    low, high = 0, len(content)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(kept(middle)) <= max_tokens else (low, middle - 1)
    shorter = kept(low)
    if count(shorter) > max_tokens:
        shorter = prompt[: found.end(1)] + prompt[found.start(3) :]
    if count(shorter) > max_tokens:
        raise InvalidInputError(
            f"the instruction alone has {count(shorter)} tokens and the model takes {max_tokens} beside its answer; "
            "shorten it or lower max_new_tokens"
        )
    logger.warning("the memory in a prompt of %d tokens was shortened to fit %d", total, max_tokens)
    return shorter


def cut_to_tokens(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the longest beginning of a text with at most ``max_tokens`` tokens, cut at a space where there is one."""
    if count(text) <= max_tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle]) <= max_tokens else (low, middle - 1)
    space = text.rfind(" ", 0, low)
    return text[: space if space > low // 2 else low].rstrip()
