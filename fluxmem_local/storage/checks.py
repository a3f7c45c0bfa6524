"""Checks of what is about to be stored; they change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluxmem_local.errors import BlankTextError, InvalidInputError
from fluxmem_local.graph import EPISODE_STATUSES, EpisodicNode, Node, ProceduralNode, SemanticNode
from fluxmem_local.text import is_blank
from fluxmem_local.types import NodeState, Scope

from .codec import encode_json, payload_of

__all__ = ["EncodedNode", "check_node", "check_number", "check_text"]


@dataclass(frozen=True, slots=True)
class EncodedNode:
    """A node that passed the checks, with metadata and payload as they are stored."""

    node: Node
    metadata: str
    payload: str


def check_node(node: Any) -> EncodedNode:
    """Check everything about a node but its vector.

    Raises:
        BlankTextError: content without a visible character.
        InvalidInputError: no node, or a field that cannot be stored.
    """
    if not isinstance(node, (SemanticNode, EpisodicNode, ProceduralNode)):
        raise InvalidInputError(f"{node!r} is no node; give SemanticNode, EpisodicNode or ProceduralNode")
    if not isinstance(node.id, str) or not node.id.strip():
        raise InvalidInputError(f"node id {node.id!r} must be a non-blank text; leave it out to get a new one")
    check_text(node.id, "a node's id")
    if not isinstance(node.content, str) or is_blank(node.content):
        raise BlankTextError(f"node {node.id!r} has no visible content ({node.content!r}); nothing was stored")
    check_text(node.content, f"the content of node {node.id!r}")
    check_number(node.created_at, f"created_at of node {node.id!r}")
    for name, wanted in (("scope", Scope), ("state", NodeState), ("metadata", Mapping)):
        value = getattr(node, name)
        if not isinstance(value, wanted):
            raise InvalidInputError(f"node {node.id!r} has {name} {value!r:.200}; give a {wanted.__name__}")
    for part in (node.scope.user, node.scope.agent, node.scope.session):
        check_text(part or "", f"the scope of node {node.id!r}")
    if isinstance(node, SemanticNode):
        check_text(node.source, f"the source of node {node.id!r}")
        for name in ("count", "chunk_index"):
            value = getattr(node, name)
            if isinstance(value, bool) or not isinstance(value, int) or not (name == "count") <= value < 2**63:
                raise InvalidInputError(f"node {node.id!r} has {name} {value!r}; give a whole number, count from 1 on")
    elif isinstance(node, EpisodicNode):
        if node.status not in EPISODE_STATUSES:
            raise InvalidInputError(
                f"node {node.id!r} has status {node.status!r}; known are {', '.join(EPISODE_STATUSES)}"
            )
        check_text(node.feedback, f"the feedback of node {node.id!r}")
    elif node.pems_score is not None:
        check_number(node.pems_score, f"pems_score of node {node.id!r}")
    return EncodedNode(node, encode_json(node.metadata, f"the metadata of node {node.id!r}"), payload_of(node))


def check_text(text: Any, what: str) -> None:
    """Refuse what is no text, or none that can be written as UTF-8."""
    if not isinstance(text, str):
        raise InvalidInputError(f"{what} is {text!r}; give a text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{what} holds half a surrogate pair at character {error.start}; decode the text first"
        ) from error


def check_number(value: Any, what: str) -> None:
    """Refuse what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not np.isfinite(value):
        raise InvalidInputError(f"{what} is {value!r}; give a finite number")
