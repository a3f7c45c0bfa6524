"""Results of the task verbs, and the events of a running task."""

from __future__ import annotations

from dataclasses import dataclass

from fluxmem_local.graph import Edit
from fluxmem_local.results import ByKey
from fluxmem_local.stages.attribution import Attribution
from fluxmem_local.stages.events import (
    EventListener,
    FailureAttributed,
    GraphEdited,
    RoundStarted,
    StepExecuted,
    TaskEvent,
    TaskFinished,
)

__all__ = [
    "Attribution",
    "EventListener",
    "FailureAttributed",
    "GraphEdited",
    "RoundStarted",
    "StepExecuted",
    "TaskEvent",
    "TaskFinished",
    "TaskResult",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(ByKey):
    """How a task ended; also readable by key.

    ``trajectory`` has one (observation, result) pair a step, ``steps`` counts them, ``rounds`` counts executions.
    ``edits`` are all that were tried: those with ``kept`` True stay. ``attributions`` has one for each failed round
    after which a repair could follow.
    """

    success: bool
    trajectory: tuple[tuple[str, str], ...]
    steps: int
    episode_id: str
    rounds: int
    edits: tuple[Edit, ...] = ()
    attributions: tuple[Attribution, ...] = ()
    result: str = ""
    feedback: str = ""
