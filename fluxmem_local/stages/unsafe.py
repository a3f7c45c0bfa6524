"""Unsafe content: commands in a skill's text that no episode was seen to succeed with."""

from __future__ import annotations

import regex

from fluxmem_local.graph import ProceduralNode

from .antiunification import words_of
from .families import known_structure
from .teaching import is_content_word, looks_like_doing

__all__ = ["unsafe_lines"]

_NUMBERED = regex.compile(r"^\s*(?:\d+[.)]|[-*+])\s++")
_CODE = regex.compile(r"`([^`\n]++)`")
_FENCE = regex.compile(r"^\s*(?:```|~~~)")
_SLOT = regex.compile(r"<\d+:[^<>\n]*+>")
# Lines that tell of use and evidence; no agent is told to do what they say.
_TOLD = regex.compile(r"When to use: |Seen: <\d+> = |Avoid: |Avoid, it ended the task: ")


def unsafe_lines(node: ProceduralNode) -> list[str]:
    """List the lines of a skill's text that say to do something which its evidence does not hold.

    A line is an order when it is a step of a list or a line of code, or holds what sentences do not. It is supported
    when one step, or one alternative, that succeeded has all of its words.
    """
    supported = _supported(node)
    structure = known_structure(node)
    use = "" if structure is None else f"When to use: {structure.use}"
    found = []
    in_code = False
    for line in node.skill_text.splitlines():
        if _FENCE.match(line):
            in_code = not in_code
            continue
        told = not in_code and _TOLD.match(line) is not None
        # Code in a use that no task gave is an order like any other.
        if not line.strip() or line == use or (told and not line.startswith("When to use: ")):
            continue
        step = _NUMBERED.sub("", line)
        is_order = not told and (in_code or step != line or looks_like_doing(_SLOT.sub(" ", line)))
        # A step names its alternatives, each an order of its own.
        orders = step.split(" | or: ") if is_order else []
        orders += _CODE.findall(line)
        if any(not _is_supported(order, supported) for order in orders):
            found.append(line.strip())
    return found


def _supported(node: ProceduralNode) -> list[set[str]]:
    structure = known_structure(node)
    if structure is None:
        return []
    ways = [(step.template, step.succeeded_ids) for step in structure.steps]
    ways += [(way.template, way.succeeded_ids) for step in structure.steps for way in step.alternatives]
    return [_words(template) for template, succeeded in ways if succeeded]


def _is_supported(order: str, supported: list[set[str]]) -> bool:
    words = _words(order)
    return any(words <= known for known in supported)


def _words(text: str) -> set[str]:
    """Content words and the signs that commands are joined with; slots are nothing of their own."""
    plain = _SLOT.sub(" ", text)
    return {word.key for word in words_of(plain) if is_content_word(word.key) or word.key in "|&;<>$`"}
