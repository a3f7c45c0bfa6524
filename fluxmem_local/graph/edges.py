"""The three edge types and the layers each may join (spec section 2)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from fluxmem_local.types import Layer

from .nodes import new_id

__all__ = ["EDGE_KINDS", "DistillEdge", "Edge", "EdgeKind", "GroundEdge", "StepLinkEdge", "edge_may_join"]

EdgeKind: TypeAlias = str


@dataclass(frozen=True, slots=True, kw_only=True)
class _EdgeBase:
    """What all edges have. The counts are of later tasks in which the edge was active: succeeded and failed ones."""

    kind: ClassVar[EdgeKind]

    source_id: str
    target_id: str
    id: str = field(default_factory=new_id)
    weight: float = 1.0
    created_at: float = field(default_factory=time.time)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    success_count: int = 0
    failure_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundEdge(_EdgeBase):
    """Semantic → episodic: this fact was evidence in that episode."""

    kind: ClassVar[EdgeKind] = "ground"


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillEdge(_EdgeBase):
    """Episodic → procedural: this skill was distilled from, or proved in, that episode."""

    kind: ClassVar[EdgeKind] = "distill"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLinkEdge(_EdgeBase):
    """Any → any, from a running episode to what step ``step_index`` activated; collected when the task ends."""

    kind: ClassVar[EdgeKind] = "step"

    step_index: int = 0


Edge: TypeAlias = GroundEdge | DistillEdge | StepLinkEdge

_ENDS: dict[EdgeKind, tuple[Layer, Layer] | None] = {
    GroundEdge.kind: (Layer.SEMANTIC, Layer.EPISODIC),
    DistillEdge.kind: (Layer.EPISODIC, Layer.PROCEDURAL),
    StepLinkEdge.kind: None,
}
EDGE_KINDS = tuple(_ENDS)


def edge_may_join(kind: EdgeKind, source: Layer, target: Layer) -> bool:
    """Tell whether an edge of this kind may go from the one layer to the other."""
    ends = _ENDS[kind]
    return ends is None or ends == (source, target)
