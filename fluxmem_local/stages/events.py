"""Events: what a running task reports while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from fluxmem_local.graph import Edit
from fluxmem_local.results import ByKey

from .attribution import Attribution

__all__ = [
    "EventListener",
    "FailureAttributed",
    "GraphEdited",
    "RoundStarted",
    "StepExecuted",
    "TaskEvent",
    "TaskFinished",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _EventBase(ByKey):
    """What all events have: the task's episode, the step (from 0) and the round of the step (from 1)."""

    episode_id: str
    step_index: int = 0
    round: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStarted(_EventBase):
    """A context is ready and is about to be executed."""

    context_ids: tuple[str, ...]
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExecuted(_EventBase):
    """The task function returned, or raised; ``seconds`` is its wall time."""

    result: str
    feedback: str
    success: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureAttributed(_EventBase):
    """The failed round has a likely cause."""

    attribution: Attribution


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdited(_EventBase):
    """Edits were made for the next round; ``rolled_back`` are ids of earlier edits that were taken back for it."""

    edits: tuple[Edit, ...]
    rolled_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished(_EventBase):
    """The task is over and all that was learned is stored; ``rounds`` counts executions."""

    status: str
    rounds: int


TaskEvent: TypeAlias = RoundStarted | StepExecuted | FailureAttributed | GraphEdited | TaskFinished
EventListener: TypeAlias = Callable[[TaskEvent], None]
