"""Execution: one call of the user's task function, with whatever it does turned into a value."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fluxmem_local.errors import InvalidInputError, OutsideFailureError
from fluxmem_local.graph import ANSWERED

from .feedback import describe_exception, storable

__all__ = ["ANSWERED", "ExecuteFn", "Execution", "execute"]

Outcome3: TypeAlias = tuple[str, str, bool]
ExecuteFn: TypeAlias = Callable[[str], Awaitable[Outcome3] | Outcome3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What came of one execution; ``seconds`` is its wall time.

    ``outside`` tells that the task function itself knows the failure to be outside of the memory.
    """

    result: str
    feedback: str
    success: bool
    seconds: float
    outside: bool = False


async def execute(execute_fn: ExecuteFn, context: str) -> Execution:
    """Call the task function once; an exception in it is feedback of a failed round.

    Raises:
        InvalidInputError: it returned something else than ``(result, feedback, success)``.
    """
    started = time.perf_counter()
    try:
        returned: Any = execute_fn(context)
        if inspect.isawaitable(returned):
            returned = await returned
    except OutsideFailureError as error:
        return Execution(
            result=storable(str(error.result)),
            feedback=storable(str(error)),
            success=False,
            seconds=time.perf_counter() - started,
            outside=True,
        )
    # Whatever the user's function raises is what the step has to say; cancellation is no Exception and passes.
    except Exception as error:
        return Execution(
            result="",
            feedback=storable(describe_exception(error)),
            success=False,
            seconds=time.perf_counter() - started,
        )
    seconds = time.perf_counter() - started
    match returned:
        case (str(result), str(feedback), bool() | np.bool_() as success):
            return Execution(
                result=storable(result), feedback=storable(feedback), success=bool(success), seconds=seconds
            )
    raise InvalidInputError(
        f"the task function returned {returned!r:.200}; it must return (result: str, feedback: str, success: bool)"
    )
