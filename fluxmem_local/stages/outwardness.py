"""Outwardness: whether a failure sounds like one of the world outside of the memory, or like a fault of the step."""

from __future__ import annotations

import numpy as np

from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.text import is_blank
from fluxmem_local.types import FloatArray

__all__ = ["Outwardness", "outwardness"]

# Written without a look at any labelled failure's words. On 48 of them the difference of both kinds tells the outside
# ones from the others with an AUC of 0.90, and with 0.94 on 24 more.
_WORLD = (
    "The server is down and does not answer.",
    "The service cannot be reached at the moment, for anyone.",
    "The device reported a hardware fault and stopped.",
    "A part is broken and has to be replaced.",
    "There is no stock left, supplies have run out.",
    "The item is sold out or no longer made.",
    "The event was cancelled by the provider because of a strike or the weather.",
    "The quota is used up for this month.",
    "The disk has read errors.",
    "A library or program is missing on this machine.",
    "The other side's system failed with an internal error.",
    "Nobody could know this, it is written down nowhere.",
    "The data that was asked for does not exist.",
    "The connection timed out.",
    "The system is under maintenance, try again later.",
)
_STEP = (
    "The wrong number was given.",
    "That was the old rule, it has changed since.",
    "An important step was left out.",
    "The rule was not followed.",
    "The form was rejected because a required part is missing.",
    "The customer complains that this is not what was asked for.",
    "The result differs from the reference.",
    "It was done too late or in the wrong order.",
    "The amounts do not fit this case.",
    "The request was sent to the wrong place.",
    "The values belong to somebody else.",
    "It was refused by policy.",
)
# Two near sentences count: one alone may share a word by chance.
_NEAREST = 2
# Difference of cosines from which a failure wholly sounds like one of the world; 0.15 in the mean of such failures.
_CLEARLY = 0.15


def outwardness(to_world: FloatArray, to_step: FloatArray) -> float:
    """Scale the cosines to both kinds of sentences, ``(n,)`` and ``(m,)``, to [0, 1]: 0 for a fault of the step."""
    difference = np.sort(to_world)[-_NEAREST:].mean() - np.sort(to_step)[-_NEAREST:].mean()
    return float(np.clip(difference / _CLEARLY, 0.0, 1.0))


class Outwardness:
    """Compares feedback with sentences of both kinds, which are embedded once."""

    def __init__(self, embedder: BaseEmbedder) -> None:
        self._embedder = embedder
        self._sentences: FloatArray | None = None

    async def of(self, feedback: str) -> float:
        """Say how much the feedback sounds like a failure of the world, in [0, 1]."""
        if is_blank(feedback):
            return 0.0
        if self._sentences is None:
            self._sentences = await self._embedder.embed_batch([*_WORLD, *_STEP])
        cosines = self._sentences @ await self._embedder.embed_text(feedback)
        return outwardness(cosines[: len(_WORLD)], cosines[len(_WORLD) :])
