"""Verification: the language model's word on candidates, one batch a step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from fluxmem_local.graph import Node
from fluxmem_local.interfaces import LLM_TIMEOUT_S, BaseLLM
from fluxmem_local.text import HEADINGS
from fluxmem_local.types import FloatArray

from . import signals

__all__ = ["evidence_of", "verify_nodes"]

_log = logging.getLogger(__name__)

# A longer text is read alone: what stands before it would push its end out of what the model reads.
_READ_TOGETHER = 640


def evidence_of(node: Node, before: Node | None) -> str:
    """Return what the model reads of a fact: its headings, what stands before it in its source if short, itself.

    A turn of a dialogue is often only understood by the one that it answers.
    """
    parts = [str(node.metadata.get(HEADINGS, ""))]
    if before is not None and len(before.content) + len(node.content) <= _READ_TOGETHER:
        parts.append(before.content)
    return "\n".join(part for part in (*parts, node.content) if part)


async def verify_nodes(llm: BaseLLM, query: str, evidences: Sequence[str]) -> FloatArray | None:
    """Ask how well each of n texts supports the query: shape ``(n,)`` in [0, 1].

    Returns:
        None when the model hung, failed, or gave anything but n such numbers. The other signals then rank alone: a
        model that is down must not empty the memory.
    """
    try:
        values = await asyncio.wait_for(llm.verify_batch([query] * len(evidences), list(evidences)), LLM_TIMEOUT_S)
        checked = signals.llm(values, len(evidences))
    # A user's backend may raise anything: a time-out of its server, an error of its device.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        _log.warning(
            "ranking without the language model, which failed to verify %d memories: %.500s", len(evidences), reason
        )
        return None
    if checked is None:
        _log.warning("ranking without the language model, which did not give %d numbers in [0, 1]", len(evidences))
    return checked
