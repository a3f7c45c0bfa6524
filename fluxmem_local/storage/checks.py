"""Checks of what is about to be stored, or names what is stored; they change nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fluxmem_local.errors import BlankTextError, InvalidInputError
from fluxmem_local.graph import (
    EPISODE_STATUSES,
    Edge,
    Edit,
    EpisodicNode,
    Node,
    ProceduralNode,
    SemanticNode,
    SkillVersion,
)
from fluxmem_local.text import is_blank
from fluxmem_local.types import NodeState, Origin, Scope

from .codec import encode_json, payload_of
from .times import validity

__all__ = ["EncodedNode", "check_edge", "check_edit", "check_folder", "check_node", "check_number", "check_text"]

_SQL_INTEGERS = 2**63
_EDITS = ("expand", "prune", "reshape")


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
        raise InvalidInputError(f"{node!r:.200} is no node; give SemanticNode, EpisodicNode or ProceduralNode")
    if not isinstance(node.id, str) or not node.id.strip():
        raise InvalidInputError(f"node id {node.id!r:.200} must be a non-blank text; leave it out to get a new one")
    _check_id(node.id, "a node's id")
    if not isinstance(node.content, str) or is_blank(node.content):
        raise BlankTextError(f"node {node.id!r} has no visible content ({node.content!r:.200}); nothing was stored")
    check_text(node.content, f"the content of node {node.id!r}")
    check_number(node.created_at, f"created_at of node {node.id!r}")
    for name, wanted in (("scope", Scope), ("state", NodeState), ("metadata", Mapping)):
        value = getattr(node, name)
        if not isinstance(value, wanted):
            raise InvalidInputError(f"node {node.id!r} has {name} {value!r:.200}; give a {wanted.__name__}")
    for part in (node.scope.user, node.scope.agent, node.scope.session):
        check_text(part or "", f"the scope of node {node.id!r}")
    if not isinstance(node.added_by, str) or node.added_by not in tuple(Origin):
        raise InvalidInputError(f"node {node.id!r} has added_by {node.added_by!r:.200}; known are {', '.join(Origin)}")
    if node.confirmed_at is not None:
        check_number(node.confirmed_at, f"confirmed_at of node {node.id!r}")
    _check_keys(node.metadata, f"node {node.id!r}")
    validity(node.metadata, f"node {node.id!r}")
    if node.variant_of is not None:
        check_text(node.variant_of, f"variant_of of node {node.id!r}")
    if isinstance(node, SemanticNode):
        _check_fact(node)
    elif isinstance(node, EpisodicNode):
        _check_episode(node)
    else:
        _check_skill(node)
    return EncodedNode(node, encode_json(node.metadata, f"the metadata of node {node.id!r}"), payload_of(node))


def check_edge(edge: Any) -> None:
    """Check everything about an edge but whether its ends are there.

    Raises:
        InvalidInputError: no edge, or a field that cannot be stored.
    """
    if not isinstance(edge, Edge):
        raise InvalidInputError(f"{edge!r:.200} is no edge; give GroundEdge, DistillEdge or StepLinkEdge")
    for name in ("id", "source_id", "target_id"):
        _check_id(getattr(edge, name), f"{name} of {edge.kind} edge {edge.id!r:.200}")
    if not edge.id.strip():
        raise InvalidInputError(f"edge id {edge.id!r} is blank; leave it out to get a new one")
    for name in ("weight", "created_at"):
        check_number(getattr(edge, name), f"{name} of edge {edge.id!r}")
    for name in ("success_count", "failure_count", "step_index"):
        _check_count(getattr(edge, name, 0), f"{name} of edge {edge.id!r}")
    if not isinstance(edge.metadata, Mapping):
        raise InvalidInputError(f"edge {edge.id!r} has metadata {edge.metadata!r:.200}; give a Mapping")
    _check_keys(edge.metadata, f"edge {edge.id!r}")


def check_edit(edit: Edit) -> None:
    """Check that ``undo`` and ``history`` can read an edit.

    Raises:
        InvalidInputError: a field that is none of an edit's.
    """
    what = f"edit {edit.id!r:.200}"
    for text in (edit.id, edit.reason, edit.granularity or "", edit.episode_id or "", *edit.targets):
        check_text(text, f"a field of {what}")
    check_number(edit.created_at, f"created_at of {what}")
    _check_count(edit.round, f"round of {what}")
    if edit.kind not in _EDITS or not (edit.kept is None or isinstance(edit.kept, bool)):
        raise InvalidInputError(f"{what} has kind {edit.kind!r:.200} and kept {edit.kept!r:.200}")
    for data in (edit.before, edit.after):
        if not isinstance(data, Mapping):
            raise InvalidInputError(f"{what} has before or after {data!r:.200}; give a Mapping")
    for name in ("helped", "hurt", "edge_ids", "instead", "context_ids", "variants"):
        value = edit.after.get(name, {} if name == "variants" else ())
        if not isinstance(value, Mapping if name == "variants" else (list, tuple)):
            raise InvalidInputError(f"{what} has {name} {value!r:.200}")
        for id in value.values() if isinstance(value, Mapping) else value:
            check_text(id, f"{name} of {what}")
    if edit.after.get("undone_at") is not None:
        check_number(edit.after["undone_at"], f"undone_at of {what}")


def check_text(text: Any, what: str) -> None:
    """Refuse what is no text, or none that can be written as UTF-8."""
    if not isinstance(text, str):
        raise InvalidInputError(f"{what} is {text!r:.200}; give a text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{what} holds half a surrogate pair at character {error.start}; decode the text first"
        ) from error


def _check_id(id: Any, what: str) -> None:
    check_text(id, what)
    if "\0" in id:
        # SQLite's lists of texts end there, so that nothing would find it again.
        raise InvalidInputError(f"{what} is {id!r:.200}; leave the NUL out")


def check_number(value: Any, what: str) -> None:
    """Refuse what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not _is_finite(value):
        raise InvalidInputError(f"{what} is {value!r:.200}; give a finite number")


def check_folder(path: Any) -> Path:
    """Return the folder that a path names, whole and with ``~`` resolved.

    Raises:
        InvalidInputError: it is no path, it is blank, or no folder can have such a name.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InvalidInputError(f"path={path!r:.200} is no path; name a folder, or give None for a memory in RAM")
    if not os.fspath(path).strip():
        # An empty path would be the current folder.
        raise InvalidInputError(f"path={path!r} is blank; name a folder, or give None for a memory in RAM")
    if "\0" in os.fspath(path):
        raise InvalidInputError(f"path={path!r:.200} holds a NUL byte, which no folder's name does; name another one")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidInputError(f"path={path!r:.200} has no encoding as a folder's name; name another one") from None
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        raise InvalidInputError(f"path={path!r:.200} begins with ~, and there is no such user; write it out") from None


def _check_fact(fact: SemanticNode) -> None:
    check_text(fact.source, f"the source of node {fact.id!r}")
    _check_count(fact.count, f"count of node {fact.id!r}", least=1)
    _check_count(fact.chunk_index, f"chunk_index of node {fact.id!r}")


def _check_episode(episode: EpisodicNode) -> None:
    if not isinstance(episode.status, str) or episode.status not in EPISODE_STATUSES:
        raise InvalidInputError(
            f"node {episode.id!r} has status {episode.status!r:.200}; known are {', '.join(EPISODE_STATUSES)}"
        )
    if episode.success is not None and not isinstance(episode.success, bool):
        raise InvalidInputError(f"node {episode.id!r} has success {episode.success!r:.200}; give True, False or None")
    check_text(episode.task_description, f"the task_description of node {episode.id!r}")
    check_text(episode.feedback, f"the feedback of node {episode.id!r}")


def _check_skill(skill: ProceduralNode) -> None:
    what = f"node {skill.id!r}"
    check_text(skill.skill_text, f"the skill_text of {what}")
    _check_count(skill.version, f"version of {what}", least=1)
    _check_score(skill.pems_score, f"pems_score of {what}")
    for name, kind in (("source_episode_ids", str), ("version_history", SkillVersion)):
        listed = getattr(skill, name)
        if not isinstance(listed, (tuple, list)) or not all(isinstance(each, kind) for each in listed):
            raise InvalidInputError(f"{what} has {name} {listed!r:.200}; give a tuple of {kind.__name__}")
    for past in skill.version_history:
        _check_count(past.version, f"a past version of {what}")
        _check_score(past.pems_score, f"pems_score of a past version of {what}")
        check_number(past.created_at, f"created_at of a past version of {what}")
        for text in (past.skill_text, past.ended_because):
            check_text(text, f"a past version of {what}")


def _check_keys(metadata: Mapping[Any, Any], what: str) -> None:
    for key in metadata:
        if not isinstance(key, str):
            # JSON would make a text of it, under which no filter looks.
            raise InvalidInputError(f"{what} has a metadata key {key!r:.200}; keys are texts")


def _check_count(value: Any, what: str, *, least: int = 0) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _SQL_INTEGERS:
        raise InvalidInputError(f"{what} is {value!r:.200}; give a whole number from {least} on")


def _check_score(value: Any, what: str) -> None:
    if value is not None:
        check_number(value, what)


def _is_finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except (OverflowError, TypeError):
        return False
