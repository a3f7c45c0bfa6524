"""The three node types (spec section 2): plain values, changed only by making a new one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from fluxmem_local.types import FloatArray, Layer, NodeState, Scope

__all__ = ["EPISODE_STATUSES", "EpisodicNode", "Node", "ProceduralNode", "SemanticNode", "SkillVersion", "new_id"]


EPISODE_STATUSES = ("running", "succeeded", "failed", "interrupted")


def new_id() -> str:
    """Make an id that no other memory has."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeBase:
    """What all nodes have.

    ``embedding`` is ``(d,)`` float32 of unit length and belongs to ``content``; None until the memory stored the node,
    or while the memory has no embedder. ``created_at`` is in seconds since 1970 (UTC). ``variant_of`` is the id of the
    node of which this one is a reshaped version.
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
    """

    layer: ClassVar[Layer] = Layer.EPISODIC

    task_description: str = ""
    trajectory: tuple[tuple[str, str], ...] = ()
    success: bool | None = None
    feedback: str = ""
    status: str = "running"

    def __post_init__(self) -> None:
        if not self.content:
            object.__setattr__(self, "content", self.task_description)
        if not self.task_description:
            object.__setattr__(self, "task_description", self.content)
        object.__setattr__(self, "trajectory", tuple((str(seen), str(done)) for seen, done in self.trajectory))
        if self.success is not None and self.status == "running":
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
        if not self.content:
            object.__setattr__(self, "content", self.skill_text)
        if not self.skill_text:
            object.__setattr__(self, "skill_text", self.content)


Node: TypeAlias = SemanticNode | EpisodicNode | ProceduralNode
