"""Skills as files: approval, export, import and comparison (Agent Skills folders)."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fluxmem_local.errors import ImportFormatError, InvalidInputError, NotFoundError
from fluxmem_local.graph import DistillEdge, EpisodicNode, ProceduralNode, SkillVersion
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.results import ByKey
from fluxmem_local.stages.unsafe import unsafe_lines
from fluxmem_local.storage.codec import scope_key
from fluxmem_local.storage.records import ELSEWHERE
from fluxmem_local.storage.skill_md import write_skill
from fluxmem_local.text import content_key
from fluxmem_local.types import Layer, NodeState, Scope

from .sight import node_seen
from .skill_folders import APPROVED, folder_of, known_folders, read_skill_in, read_skills, write_skill_file

__all__ = [
    "SkillsExport",
    "SkillsImport",
    "approve_skill",
    "diff_skill",
    "export_skills",
    "import_skills",
    "is_approved",
    "skill_seen",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsExport(ByKey):
    """What was written: pairs of a skill's id and its folder; what was not, with the reason; what is marked unsafe."""

    written: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    unsafe: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsImport(ByKey):
    """The ids of skills that are new, that got another version, and that stayed as they were with the reason."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[tuple[str, str], ...] = ()
    unsafe: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def skill_seen(store: MemoryStore, id: str, scope: Scope | None) -> ProceduralNode:
    """Return a skill that the scope sees.

    Raises:
        NotFoundError: there is none of this id.
        InvalidInputError: it is no skill.
    """
    node = node_seen(store, id, scope)
    if not isinstance(node, ProceduralNode):
        raise InvalidInputError(f"{id} is {node.layer} memory and no skill; run: fluxmem show {id}")
    return node


def is_approved(skill: ProceduralNode) -> bool:
    """Tell whether somebody approved this version of a skill."""
    approved = skill.metadata.get(APPROVED)
    return isinstance(approved, Mapping) and approved.get("version") == skill.version


def approve_skill(store: MemoryStore, id: str, *, approved: bool, scope: Scope | None) -> ProceduralNode:
    """Approve the present version of a skill, or take that back; a later version needs approval of its own.

    Raises:
        NotFoundError: there is none of this id.
        InvalidInputError: it is no skill.
    """
    with store.transaction() as change:
        skill = skill_seen(store, id, scope)
        metadata = {name: value for name, value in skill.metadata.items() if name != APPROVED}
        if approved:
            metadata[APPROVED] = {"version": skill.version, "at": time.time()}
        skill = replace(skill, metadata=metadata)
        change.replace(skill, reason="approved" if approved else "approval taken back")
    return skill


def export_skills(
    store: MemoryStore, folder: Path, *, ids: Sequence[str] | None, scope: Scope | None, force: bool
) -> SkillsExport:
    """Write skills as folders with a SKILL.md each; those that nobody approved only by force.

    Raises:
        NotFoundError: an unknown id.
        InvalidInputError: an id of no skill, or a folder that cannot be written to.
    """
    if ids is None:
        nodes = store.select(layers=(Layer.PROCEDURAL,), scope=scope)
        skills = [node for node in nodes if isinstance(node, ProceduralNode)]
    else:
        skills = [skill_seen(store, id, scope) for id in ids]
    written: list[tuple[str, str]] = []
    left_out: list[tuple[str, str]] = []
    unsafe: dict[str, tuple[str, ...]] = {}
    try:
        known = known_folders(folder)
        for skill in skills:
            if not (is_approved(skill) or force):
                why = f"version {skill.version} is not approved; run: fluxmem skills approve {skill.id}"
                left_out.append((skill.id, why))
                continue
            target = folder_of(folder, skill, known)
            known[target] = skill.id
            lines = unsafe_lines(skill)
            for place in (folder, target):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_skill_file(target, write_skill(skill, folder=target.name, unsafe=lines))
            written.append((skill.id, str(target)))
            if lines:
                unsafe[skill.id] = tuple(lines)
    except OSError as error:
        raise InvalidInputError(
            f"{folder}: {error.strerror or error}; name a folder that may be written; "
            f"{len(written)} of {len(skills)} skills were written"
        ) from None
    return SkillsExport(written=tuple(written), left_out=tuple(left_out), unsafe=unsafe)


async def import_skills(
    store: MemoryStore, embedder: BaseEmbedder | None, folder: Path, *, scope: Scope | None
) -> SkillsImport:
    """Take in the SKILL.md of a folder, or of all folders in it, all or nothing.

    A skill keeps its id and its versions. One that is there already is not doubled: a later version takes its place, an
    edited text becomes the next version, and an earlier one changes nothing; one that is somebody else's comes in with
    an id of its own. Approval is not taken over.

    Args:
        store: the memory.
        embedder: of its vectors.
        folder: a folder with a SKILL.md in it, or with such folders.
        scope: whom they are for; None: as the files say.

    Raises:
        ImportFormatError: a file that cannot be read; nothing was imported then.
    """
    given = await asyncio.to_thread(read_skills, folder, scope)
    vectors: dict[str, Any] = {}
    if embedder is not None and given:
        rows = await embedder.embed_batch([skill.content for skill in given])
        vectors = {skill.id: row for skill, row in zip(given, rows, strict=True)}
    return await asyncio.to_thread(_take_in, store, given, vectors)


def diff_skill(store: MemoryStore, id: str, other: int | Path | None, *, scope: Scope | None) -> str:
    """Compare the present text of a skill with an earlier one, line by line; "" where they are equal.

    Args:
        store: the memory.
        id: the skill.
        other: a version, or a folder with a SKILL.md; None: the version before.
        scope: who asks.

    Raises:
        NotFoundError: no such skill or version.
        ImportFormatError: a SKILL.md that cannot be read.
    """
    skill = skill_seen(store, id, scope)
    if isinstance(other, Path):
        there = read_skill_in(other)
        before, name = there.skill_text, str(other)
    else:
        past = {version.version: version.skill_text for version in skill.version_history}
        past[skill.version] = skill.skill_text
        number = _version_before(skill) if other is None else other
        if number not in past:
            raise NotFoundError(f"{id} has no version {number}; known are {', '.join(map(str, sorted(past)))}")
        before, name = past[number], f"version {number}"
    lines = difflib.unified_diff(
        before.splitlines(), skill.skill_text.splitlines(), name, f"version {skill.version}", lineterm=""
    )
    return "\n".join(lines)


def _version_before(skill: ProceduralNode) -> int:
    """Return the version that the present one replaced: those that were only tried do not count."""
    replaced = [past.version for past in skill.version_history if past.ended_because.startswith("replaced")]
    return replaced[-1] if replaced else skill.version


def _take_in(store: MemoryStore, given: Sequence[ProceduralNode], vectors: Mapping[str, Any]) -> SkillsImport:
    added: list[str] = []
    updated: list[str] = []
    unchanged: list[tuple[str, str]] = []
    unsafe: dict[str, tuple[str, ...]] = {}
    try:
        with store.transaction() as change:
            known = {
                node.id: node
                for node in store.select(layers=(Layer.PROCEDURAL,), states=tuple(NodeState))
                if isinstance(node, ProceduralNode)
            }
            texts = {(node.scope, content_key(node.skill_text)): id for id, node in known.items()}
            for each in given:
                skill = _own(each, known)
                before = known.get(skill.id)
                twin = texts.get((skill.scope, content_key(skill.skill_text)))
                reason = _why_unchanged(skill, before, twin)
                if reason is not None:
                    unchanged.append((skill.id, reason))
                    continue
                lines = unsafe_lines(skill)
                if lines:
                    unsafe[skill.id] = tuple(lines)
                ready = replace(_with_sources(_next_version(skill, before), store), embedding=vectors.get(each.id))
                if before is None:
                    change.add_nodes([ready])
                    added.append(skill.id)
                else:
                    change.replace(ready, reason="imported")
                    updated.append(skill.id)
                linked = {edge.source_id for edge in store.edges(target_ids=[skill.id], kinds=("distill",))}
                change.add_edges(
                    [
                        DistillEdge(source_id=id, target_id=skill.id)
                        for id in ready.source_episode_ids
                        if id not in linked
                    ]
                )
    except (InvalidInputError, NotFoundError) as error:
        raise ImportFormatError(f"a skill cannot be stored: {error}; nothing was imported") from None
    return SkillsImport(added=tuple(added), updated=tuple(updated), unchanged=tuple(unchanged), unsafe=unsafe)


def _own(skill: ProceduralNode, known: Mapping[str, ProceduralNode]) -> ProceduralNode:
    """Give a skill an id of its own where somebody else's has its id: nobody's skill becomes another's."""
    there = known.get(skill.id)
    if there is None or there.scope == skill.scope:
        return skill
    id = hashlib.sha256(f"skill\n{scope_key(skill.scope)}\n{skill.id}".encode()).hexdigest()[:32]
    return replace(skill, id=id, variant_of=None)


def _why_unchanged(skill: ProceduralNode, before: ProceduralNode | None, twin: str | None) -> str | None:
    if before is None:
        return None if twin is None else f"its text is that of the skill {twin}"
    if skill.version < before.version:
        return f"version {before.version} is here already"
    if skill.skill_text == before.skill_text and skill.version == before.version:
        return "it is here already"
    return None


def _next_version(skill: ProceduralNode, before: ProceduralNode | None) -> ProceduralNode:
    """Let an edited text be the version after the one that is here; a later version comes as it is."""
    if before is None or skill.version > before.version:
        return skill
    number = max([before.version, *(past.version for past in before.version_history)]) + 1
    ended = SkillVersion(
        version=before.version,
        skill_text=before.skill_text,
        pems_score=before.pems_score,
        created_at=before.created_at,
        ended_because=f"replaced by version {number}: an edited text was imported",
    )
    # Nobody has measured the edited text, and so it is not mature.
    metadata = {name: value for name, value in skill.metadata.items() if name not in ("converged", "evidence")}
    history = (*before.version_history, ended)
    return replace(skill, version=number, version_history=history, pems_score=None, metadata=metadata)


def _with_sources(skill: ProceduralNode, store: MemoryStore) -> ProceduralNode:
    sources = skill.source_episode_ids
    nodes = store.get_many(sorted(store.present(sources)))
    here = {node.id for node in nodes if isinstance(node, EpisodicNode) and node.scope == skill.scope}
    if len(here) == len(set(sources)):
        return skill
    return replace(
        skill,
        source_episode_ids=tuple(id for id in sources if id in here),
        metadata={**skill.metadata, ELSEWHERE: list(sources)},
    )
