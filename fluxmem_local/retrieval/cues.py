"""Cues: what the form of a chunk says about its use as an answer, apart from its subject."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np
import numpy.typing as npt
import regex

from fluxmem_local.graph import Node
from fluxmem_local.text import is_question, tokenize
from fluxmem_local.types import FloatArray

from .dates import Span, closeness, day_of, find_dates, share
from .relative_dates import find_relative_dates

__all__ = ["dated", "spoken_by", "statement"]

# From this many tokens on a chunk is no scrap.
_FULL_TOKENS = 40
# What is left of a chunk's worth when it ends by asking.
_ASKING = 0.25
_SPEAKER = regex.compile(r"^\s*([\p{L}\p{N}][\p{L}\p{M}\p{N} .'’_-]{0,38})[:：]\s")
_SPEAKER_KEYS = ("speaker", "author", "role", "from")


def statement(nodes: Sequence[Node], lengths: npt.NDArray[np.float64]) -> FloatArray:
    """Say how far n chunks state something: a scrap such as "Sure!" holds little, a question asks: shape ``(n,)``.

    Args:
        nodes: n chunks.
        lengths: their tokens, shape ``(n,)``.
    """
    asking = np.array([is_question(node.content) for node in nodes])
    substance = np.minimum(1.0, lengths / _FULL_TOKENS)
    return np.where(asking, _ASKING * substance, substance).astype(np.float32)


def spoken_by(nodes: Sequence[Node], question: str) -> FloatArray:
    """Say which of n chunks were spoken or written by someone whom the question names: shape ``(n,)``, 0 or 1.

    The speaker is in the metadata, or stands before the text as in "Ana: I moved".
    """
    asked = set(tokenize(question))
    return np.array([float(_is_named(_speaker(node), asked)) for node in nodes], np.float32)


def dated(nodes: Sequence[Node], question: str, today: date) -> FloatArray | None:
    """Say how near the days of n chunks are to the dates that the question names: shape ``(n,)``, in [0, 1].

    A chunk's days are its own and those that it names from there, as in "we moved last year".

    Args:
        nodes: n chunks.
        question: with dates as they are, or as seen from ``today``: "yesterday".
        today: the day on which it is asked.

    Returns:
        None when the question names no date.
    """
    asked: list[Span] = [*find_dates(question), *find_relative_dates(question, today)]
    if not asked:
        return None
    values = []
    for node in nodes:
        told = day_of(node.metadata.values(), node.created_at)
        meant = find_relative_dates(node.content, told)
        values.append(max(closeness(asked, told), share(asked, meant, told.year)))
    return np.array(values, np.float32)


def _speaker(node: Node) -> str:
    for key in _SPEAKER_KEYS:
        if isinstance(named := node.metadata.get(key), str):
            return named
    stands_first = _SPEAKER.match(node.content)
    return stands_first[1] if stands_first else ""


def _is_named(speaker: str, asked: set[str]) -> bool:
    # The first name is what people ask by.
    return speaker.casefold().partition(" ")[0] in asked
