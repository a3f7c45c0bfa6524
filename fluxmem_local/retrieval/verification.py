"""Verification: the language model's word on candidates, one batch a step."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fluxmem_local.graph import Node
from fluxmem_local.interfaces import BaseLLM
from fluxmem_local.types import FloatArray

from . import signals

__all__ = ["verify_nodes"]

_log = logging.getLogger(__name__)


async def verify_nodes(llm: BaseLLM, query: str, nodes: Sequence[Node]) -> FloatArray | None:
    """Ask how well each node supports the query: shape ``(n,)`` in [0, 1].

    Returns:
        None when the model failed or gave anything but n such numbers. The other signals then rank alone: a model
        that is down must not empty the memory.
    """
    try:
        values = await llm.verify_batch([query] * len(nodes), [node.content for node in nodes])
        checked = signals.llm(values, len(nodes))
    # A user's backend may raise anything: a time-out of its server, an error of its device.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        _log.warning(
            "ranking without the language model, which failed to verify %d memories: %.500s", len(nodes), reason
        )
        return None
    if checked is None:
        _log.warning("ranking without the language model, which did not give %d numbers in [0, 1]", len(nodes))
    return checked
