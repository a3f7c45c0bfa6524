"""G = (V, E): nodes, edges and edits as values, and the rules they obey."""

from .cases import Case, read_cases, read_values, sought_slots
from .edges import EDGE_KINDS, DistillEdge, Edge, GroundEdge, StepLinkEdge, edge_may_join
from .edits import Edit
from .nodes import (
    ANSWERED,
    EPISODE_STATUSES,
    EpisodicNode,
    Node,
    ProceduralNode,
    SemanticNode,
    SkillVersion,
    new_id,
    steps_of,
)
from .skill import Alternative, Followed, Pitfall, Route, Skill, Slot, Step
from .subgraph import Subgraph
from .templates import bind, fill, slots_in

__all__ = [
    "ANSWERED",
    "EDGE_KINDS",
    "EPISODE_STATUSES",
    "Alternative",
    "Case",
    "DistillEdge",
    "Edge",
    "Edit",
    "EpisodicNode",
    "Followed",
    "GroundEdge",
    "Node",
    "Pitfall",
    "ProceduralNode",
    "Route",
    "SemanticNode",
    "Skill",
    "SkillVersion",
    "Slot",
    "Step",
    "StepLinkEdge",
    "Subgraph",
    "bind",
    "edge_may_join",
    "fill",
    "new_id",
    "read_cases",
    "read_values",
    "slots_in",
    "sought_slots",
    "steps_of",
]
