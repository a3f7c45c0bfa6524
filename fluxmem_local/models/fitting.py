"""Makes a prompt fit a model's context by shortening the memory in it, never the instruction."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable

from fluxmem_local.errors import InvalidInputError

__all__ = ["MEMORY_ELEMENT", "cut_to_tokens", "fit_prompt"]

logger = logging.getLogger(__name__)

# An element with an id is one memory; text in it is escaped, so the next closing tag of its name is its own.
MEMORY_ELEMENT = re.compile(r"<([A-Za-z_]+)\b[^<>]*?\bid=[\"']([^\"'<>]+)[\"'][^<>]*>(.*?)</\1>", re.DOTALL)
_MEMORY = re.compile(r"(<context\b[^>]*>)(.*)(</context>)", re.DOTALL)
# Looks at one line at a time: \s would go on through a long run of newlines from each of them.
_CONTENT_LINE = re.compile(r"^(?![^\S\n]*(?:</?[A-Za-z_][^<>\n]*>[^\S\n]*)+$)[^\n]*\S[^\n]*$", re.MULTILINE)


def fit_prompt(prompt: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Shorten the memory between ``<context>`` and ``</context>`` until the prompt has at most ``max_tokens``.

    Memories go whole, the least useful first: each kind stands in order of use, so the last of each kind go before the
    first of any. Without elements that carry an id, lines go from the end. All outside of the memory stays as it is.

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
    pieces = _by_use(found[2])

    def kept(num_pieces: int) -> str:
        memory = found[2]
        for start, end in sorted(pieces[num_pieces:], reverse=True):
            memory = memory[:start] + memory[end:]
        return prompt[: found.end(1)] + memory + prompt[found.start(3) :]

    low, high = 0, len(pieces)
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


def _by_use(memory: str) -> list[tuple[int, int]]:
    """List the spans of a memory's pieces, the most useful first."""
    ranks: Counter[str] = Counter()
    ranked = []
    for element in MEMORY_ELEMENT.finditer(memory):
        ranked.append((ranks[element[1]], element.span()))
        ranks[element[1]] += 1
    if not ranked:
        return [line.span() for line in _CONTENT_LINE.finditer(memory)]
    return [span for _, span in sorted(ranked)]


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
