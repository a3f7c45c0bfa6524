"""Verification: the language model's word on candidates, one batch a step."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fluxmem_local.errors import FluxMemError
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
    except (FluxMemError, TypeError, ValueError) as error:
        _log.warning("ranking without the language model, which failed to verify %d memories: %s", len(nodes), error)
        return None
    if checked is None:
        _log.warning("ranking without the language model, which did not give %d numbers in [0, 1]", len(nodes))
    return checked
