"""Folders of skills: where each goes, and reading what others hand over."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fluxmem_local.errors import ImportFormatError
from fluxmem_local.graph import ProceduralNode
from fluxmem_local.storage.codec import scope_key
from fluxmem_local.storage.records import ELSEWHERE
from fluxmem_local.storage.skill_md import MOST_BYTES, read_skill, skill_slug
from fluxmem_local.text import is_blank
from fluxmem_local.types import NodeState, Origin, Scope

__all__ = ["APPROVED", "folder_of", "known_folders", "read_skill_in", "read_skills", "write_skill_file"]

# The metadata key of an approval, which no file can bring along.
APPROVED = "approved"
_FILE = "SKILL.md"
_MOST_FOLDERS = 10_000


def known_folders(folder: Path) -> dict[Path, str]:
    """List the folders with a SKILL.md in a folder, each with the id of its skill; "" for one that is not ours."""
    known = {}
    for file in sorted(folder.glob(f"*/{_FILE}")):
        try:
            there = read_skill(_text_of(file), str(file))
        except ImportFormatError:
            there = ("", "")
        known[file.parent] = there.id if isinstance(there, ProceduralNode) else ""
    return known


def folder_of(folder: Path, skill: ProceduralNode, known: Mapping[Path, str]) -> Path:
    """Choose a skill's folder: the one that it has, or by its name, and with its id where another has that one.

    A skill that got another name keeps its folder; else an import would find it twice.
    """
    own = next((place for place, id in known.items() if id == skill.id), None)
    if own is not None:
        return own
    slug = skill_slug(skill)
    if folder / slug in known:
        return folder / f"{slug[:40].strip('-')}-{hashlib.sha256(skill.id.encode()).hexdigest()[:12]}"
    return folder / slug


def write_skill_file(folder: Path, text: str) -> None:
    """Write a folder's SKILL.md, which appears whole or not at all."""
    path = folder / _FILE
    half = path.with_name(f".{path.name}.half")
    try:
        half.unlink(missing_ok=True)
        # Skills tell what was lived: they are the owner's, who may hand them on.
        number = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(half, path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def read_skills(folder: Path, scope: Scope | None) -> list[ProceduralNode]:
    """Read the SKILL.md of a folder, or of all folders in it; ``scope`` None: for whom the files say.

    Raises:
        ImportFormatError: there is none, or one that cannot be read.
    """
    try:
        is_folder = folder.is_dir()
    except OSError:
        # No folder can have so long a name.
        is_folder = False
    if not is_folder:
        raise ImportFormatError(
            f"{str(folder)!r:.200} is no folder; name one with a SKILL.md in it, or with such folders"
        )
    files = [folder / _FILE] if (folder / _FILE).exists() else sorted(folder.glob(f"*/{_FILE}"))
    if len(files) > _MOST_FOLDERS:
        raise ImportFormatError(f"{folder} has more than {_MOST_FOLDERS} skills; import its folders in parts")
    if not files:
        raise ImportFormatError(f"{folder}: there is no SKILL.md in it, nor in its folders")
    found: dict[str, ProceduralNode] = {}
    for file in files:
        skill = _read(file, folder, scope)
        if skill.id in found:
            raise ImportFormatError(f"{file}: its id {skill.id!r} is that of another skill in {folder}")
        found[skill.id] = skill
    return list(found.values())


def read_skill_in(folder: Path) -> ProceduralNode:
    """Read the SKILL.md of a folder.

    Raises:
        ImportFormatError: there is none, or it cannot be read.
    """
    return _read(folder / _FILE, folder, None)


def _read(file: Path, folder: Path, scope: Scope | None) -> ProceduralNode:
    inside = file.resolve()
    if folder.resolve() not in inside.parents:
        raise ImportFormatError(f"{file} leads out of {folder}; copy it there")
    read = read_skill(_text_of(file), str(file))
    if isinstance(read, ProceduralNode):
        if is_blank(read.skill_text):
            raise ImportFormatError(f"{file}: its instructions are blank")
        metadata = {name: value for name, value in read.metadata.items() if name != APPROVED}
        state = NodeState.ACTIVE if read.state is NodeState.TRIAL else read.state
        return replace(read, metadata=metadata, state=state, scope=read.scope if scope is None else scope)
    name, text = read
    whose = scope if scope is not None else Scope()
    id = hashlib.sha256(f"skill\n{scope_key(whose)}\n{name}".encode()).hexdigest()[:32]
    return ProceduralNode(
        id=id, skill_text=text, scope=whose, metadata={"name": name, ELSEWHERE: []}, added_by=Origin.IMPORT
    )


def _text_of(file: Path) -> str:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise ImportFormatError(f"{file} has more than {MOST_BYTES // 1024**2} MiB; no skill is as long as that")
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ImportFormatError(f"{file}: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise ImportFormatError(f"{file} cannot be read: {error.strerror or error}") from None
