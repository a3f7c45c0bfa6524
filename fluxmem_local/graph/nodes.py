"""The three node types (spec section 2): plain values, changed only by making a new one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.types import FloatArray, Layer, NodeState, Origin, Scope

__all__ = [
    "ANSWERED",
    "EPISODE_STATUSES",
    "EpisodicNode",
    "Node",
    "ProceduralNode",
    "SemanticNode",
    "SkillVersion",
    "new_id",
    "steps_of",
]


EPISODE_STATUSES = ("running", "succeeded", "failed", "interrupted")
# The key in an episode's metadata that tells that its steps only answered, and did nothing.
ANSWERED = "answered"


def new_id() -> str:
    """Make an id that no other memory has."""
    return uuid.uuid4().hex


def steps_of(trajectory: Any) -> tuple[tuple[str, str], ...]:
    """Return a trajectory as pairs of texts.

    Raises:
        InvalidInputError: it is no list, or a step in it is no pair.
    """
    if not isinstance(trajectory, Iterable) or isinstance(trajectory, (str, bytes, Mapping)):
        raise InvalidInputError(
            f"trajectory={trajectory!r:.200} must list (observation, action) pairs, as [('door is shut', 'open it')]"
        )
    steps = []
    for step in trajectory:
        if not isinstance(step, Sequence) or isinstance(step, (str, bytes)) or len(step) != 2:
            raise InvalidInputError(f"trajectory step {step!r:.200} is no (observation, action) pair")
        steps.append((str(step[0]), str(step[1])))
    return tuple(steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeBase:
    """What all nodes have.

    ``embedding`` is ``(d,)`` float32 of unit length and belongs to ``content``; None until the memory stored the node,
    or while the memory has no embedder. ``created_at`` is in seconds since 1970 (UTC). ``variant_of`` is the id of the
    node of which this one is a reshaped version. ``confirmed_at`` says since when the word of an agent is trusted.
    """

    layer: ClassVar[Layer]

    id: str = field(default_factory=new_id)
    content: str = ""
    embedding: FloatArray | None = field(default=None, compare=False, repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: float = field(default_factory=time.time)
    scope: Scope = field(default_factory=Scope)
    state: NodeState = NodeState.ACTIVE
    variant_of: str | None = None
    added_by: Origin = Origin.USER
    confirmed_at: float | None = None

    @property
    def trusted(self) -> bool:
        """Tell whether it counts in full: an agent's own word does once a success or the owner confirmed it."""
        return self.added_by != Origin.AGENT or self.confirmed_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticNode(_NodeBase):
    """A fact chunk. ``count`` says how often the same content was added to its scope."""

    layer: ClassVar[Layer] = Layer.SEMANTIC

    source: str = ""
    chunk_index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodicNode(_NodeBase):
    """A lived task: trajectory τ = ((observation, action), ...).

    ``content`` is what is embedded and equals ``task_description`` unless given. ``status`` is running, succeeded,
    failed or interrupted; ``success`` is None while it runs.

    Raises:
        InvalidInputError: a trajectory that is no list of (observation, action) pairs.
    """

    layer: ClassVar[Layer] = Layer.EPISODIC

    task_description: str = ""
    trajectory: tuple[tuple[str, str], ...] = ()
    success: bool | None = None
    feedback: str = ""
    status: str = "running"
    added_by: Origin = Origin.AGENT

    def __post_init__(self) -> None:
        _fill_either(self, "content", "task_description")
        object.__setattr__(self, "trajectory", steps_of(self.trajectory))
        if isinstance(self.success, bool) and isinstance(self.status, str) and self.status == "running":
            object.__setattr__(self, "status", "succeeded" if self.success else "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillVersion:
    """One version of a skill, and why it ended (empty while it is the present one)."""

    version: int
    skill_text: str
    pems_score: float | None = None
    created_at: float = field(default_factory=time.time)
    ended_because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProceduralNode(_NodeBase):
    """A distilled skill. ``content`` is ``skill_text``; ``version_history`` has the earlier versions, oldest first."""

    layer: ClassVar[Layer] = Layer.PROCEDURAL

    skill_text: str = ""
    version: int = 1
    version_history: tuple[SkillVersion, ...] = ()
    source_episode_ids: tuple[str, ...] = ()
    pems_score: float | None = None

    def __post_init__(self) -> None:
        _fill_either(self, "content", "skill_text")


def _fill_either(node: Any, one: str, other: str) -> None:
    """Let an empty text be the other one."""
    for empty, given in ((one, other), (other, one)):
        value = getattr(node, empty)
        # Anything but a text is the memory's to refuse.
        if isinstance(value, str) and not value:
            object.__setattr__(node, empty, getattr(node, given))


Node: TypeAlias = SemanticNode | EpisodicNode | ProceduralNode
