"""A skill as a SKILL.md file: front matter, what people and agents read, and YAML blocks that lose nothing.

The form is that of Agent Skills: a folder a skill, named like it, with SKILL.md in it. The instructions are the skill's
text; parameters, steps, pitfalls, evidence and PEMS history follow, each a block that a program reads back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import yaml

from fluxmem_local.errors import FluxMemError, ImportFormatError, InvalidInputError
from fluxmem_local.graph import ProceduralNode, Skill, SkillVersion
from fluxmem_local.types import JsonObject, NodeState, Origin, Scope

from .checks import check_text
from .records import ELSEWHERE

__all__ = ["MOST_BYTES", "read_skill", "skill_slug", "write_skill"]

MOST_BYTES = 4 * 1024 * 1024
_FORM = "1"
_LONGEST_NAME = 64
# Later versions must have a number, too.
_MOST_VERSIONS = 10**9
_LONGEST_DESCRIPTION = 1024
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^(`{3,})(text|yaml) ([a-z]+)[ \t]*$", re.MULTILINE)
# What fenced lines give back as they are.
_PLAIN = re.compile(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]*")
_PARTS = ("slots", "steps", "pitfalls")
_BLOCKS = {
    "parameters": "The slots of the steps, and the values that they had.",
    "steps": "Each with the episodes that succeeded and failed with it; what others did in its place; what followed.",
    "pitfalls": "What ended failed episodes.",
    "evidence": "The episodes that it was distilled from, and what else is known of it.",
    "history": "Its earlier versions, their PEMS, and why each ended.",
}


def skill_slug(node: ProceduralNode) -> str:
    """Name a skill as Agent Skills want it: small letters, digits and single hyphens, 64 at most."""
    name = str(node.metadata.get("name", "")) or node.skill_text.splitlines()[0]
    slug = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:_LONGEST_NAME].strip("-")
    return slug or f"skill-{_short(node.id)}"


def write_skill(node: ProceduralNode, *, folder: str, unsafe: Sequence[str] = ()) -> str:
    """Write a skill as the text of its SKILL.md.

    Args:
        node: the skill.
        folder: the name of its folder, which is its name in the front matter.
        unsafe: what of it was never seen to succeed; it is marked as that.
    """
    structure = _structure(node)
    use = (structure and _shown(structure.use, _LONGEST_DESCRIPTION)) or _shown(node.skill_text, _LONGEST_DESCRIPTION)
    front = {
        "name": folder,
        # Readers of Agent Skills take angle brackets for markup, and refuse a description with one.
        "description": (use or folder).replace("<", "[").replace(">", "]"),
        "metadata": {"fluxmem-form": _FORM, "fluxmem-id": node.id, "fluxmem-version": str(node.version)},
    }
    data = _data(node, structure)
    lines = [f"---\n{_yaml(front)}---\n", f"# {folder}\n", "## Instructions\n", _instructions(node.skill_text)]
    if unsafe:
        lines += ["## Unsafe\n", "Never seen to succeed; do not run it unchecked:\n"]
        lines += [f"- {_shown(line, _LONGEST_DESCRIPTION)}" for line in unsafe] + [""]
    for name, told in _BLOCKS.items():
        title = "PEMS history" if name == "history" else name.capitalize()
        lines += [f"## {title}\n", f"{told}\n", _fenced("yaml", name, _yaml(data[name]))]
    return "\n".join(lines)


def read_skill(text: str, where: str) -> ProceduralNode | tuple[str, str]:
    """Read a SKILL.md: the skill that ``write_skill`` wrote, or name and text of one that another program wrote.

    Raises:
        ImportFormatError: it is none, or damaged; the message begins with ``where``.
    """
    text = text.replace("\r\n", "\n")
    found = _FRONT.match(text)
    if found is None:
        raise ImportFormatError(f"{where}: no front matter; a SKILL.md begins with --- and its name and description")
    front = _parsed(found[1], f"{where}: front matter")
    name, description = (front.get(key) for key in ("name", "description")) if isinstance(front, dict) else (None, None)
    if not (isinstance(name, str) and name.strip() and isinstance(description, str) and description.strip()):
        raise ImportFormatError(f"{where}: name and description are needed in the front matter, both texts")
    try:
        check_text(name + description, f"{where}: name or description")
    except InvalidInputError as error:
        raise ImportFormatError(str(error)) from None
    known = front.get("metadata")
    known = known if isinstance(known, dict) else {}
    body = text[found.end() :]
    if "fluxmem-form" not in known:
        return name.strip(), f"{description.strip()}\n\n{body.strip()}".strip()
    if known["fluxmem-form"] != _FORM:
        raise ImportFormatError(f"{where}: form {known['fluxmem-form']!r:.20} is unknown; upgrade fluxmem-local")
    blocks = _read_blocks(body, where)
    try:
        return _node(known["fluxmem-id"], int(str(known["fluxmem-version"])), blocks)
    except FluxMemError as error:
        raise ImportFormatError(f"{where}: {error}") from None
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise ImportFormatError(f"{where}: no skill as fluxmem writes it ({error!r:.120}); export it again") from None


def _structure(node: ProceduralNode) -> Skill | None:
    try:
        return Skill.from_dict(node.metadata["structure"]) if "structure" in node.metadata else None
    except InvalidInputError:
        return None


def _data(node: ProceduralNode, structure: Skill | None) -> dict[str, Any]:
    """Spread all of a skill over the blocks."""
    metadata = dict(node.metadata)
    sources = metadata.pop(ELSEWHERE, None)
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        sources = list(node.source_episode_ids)
    parts: JsonObject = {}
    if structure is not None:
        whole = metadata["structure"]
        parts = {name: whole[name] for name in _PARTS if name in whole}
        metadata["structure"] = {name: whole[name] for name in whole if name not in parts}
    scope = node.scope
    return {
        "parameters": parts.get("slots"),
        "steps": parts.get("steps"),
        "pitfalls": parts.get("pitfalls"),
        "evidence": {
            "source_episode_ids": sources,
            "pems": node.pems_score,
            "created_at": node.created_at,
            "state": str(node.state),
            "added_by": str(node.added_by),
            "confirmed_at": node.confirmed_at,
            "scope": {name: value for name, value in asdict(scope).items() if value is not None},
            "variant_of": node.variant_of,
            "metadata": metadata,
        },
        "history": [asdict(version) for version in node.version_history],
    }


def _node(id: Any, version: int, blocks: Mapping[str, Any]) -> ProceduralNode:
    if not isinstance(id, str):
        raise ValueError("its fluxmem-id is no text")
    if not 1 <= version <= _MOST_VERSIONS:
        raise ValueError(f"version {version!r:.20} is none that a skill comes to")
    evidence = blocks["evidence"]
    metadata = dict(evidence["metadata"])
    if blocks["steps"] is not None:
        given = {"slots": blocks["parameters"], "steps": blocks["steps"], "pitfalls": blocks["pitfalls"]}
        parts = {name: value for name, value in given.items() if value is not None}
        metadata["structure"] = {**metadata.get("structure", {}), **parts}
        Skill.from_dict(metadata["structure"])
    sources = evidence["source_episode_ids"]
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        raise ValueError("source_episode_ids must list ids")
    if not isinstance(evidence["scope"], dict):
        raise ValueError("scope must be a mapping")
    known = {each.name for each in fields(SkillVersion)}
    history = [SkillVersion(**{name: past[name] for name in past if name in known}) for past in blocks["history"]]
    for past in history:
        _check_number("pems_score", past.pems_score, needed=False)
        _check_number("created_at", past.created_at)
        if type(past.version) is not int or not isinstance(past.skill_text, str):
            raise ValueError("a version of the history needs its number and its text")
    _check_number("pems", evidence["pems"], needed=False)
    _check_number("created_at", evidence["created_at"])
    _check_number("confirmed_at", evidence.get("confirmed_at"), needed=False)
    return ProceduralNode(
        id=id,
        skill_text=blocks["instructions"],
        version=version,
        version_history=tuple(history),
        source_episode_ids=tuple(sources),
        pems_score=evidence["pems"],
        created_at=evidence["created_at"],
        state=NodeState(evidence["state"]),
        scope=Scope(**evidence["scope"]),
        variant_of=evidence["variant_of"],
        # Files of an early version do not say it.
        added_by=Origin(evidence.get("added_by", Origin.IMPORT)),
        confirmed_at=evidence.get("confirmed_at"),
        metadata=metadata,
    )


def _check_number(name: str, value: Any, *, needed: bool = True) -> None:
    if (value is None and not needed) or (type(value) in (int, float) and math.isfinite(value)):
        return
    raise ValueError(f"{name} is {value!r:.40} and no number")


def _read_blocks(body: str, where: str) -> dict[str, Any]:
    blocks: dict[str, Any] = {}
    place = 0
    while (opening := _FENCE.search(body, place)) is not None:
        closing = body.find(f"\n{opening[1]}\n", opening.end())
        if closing < 0 and body.endswith(f"\n{opening[1]}"):
            closing = len(body) - len(opening[1]) - 1
        if closing < 0:
            raise ImportFormatError(f"{where}: the block {opening[3]!r} has no end")
        inside = body[opening.end() + 1 : closing + 1]
        is_text = opening[2] == "text"
        blocks[opening[3]] = inside[:-1] if is_text else _parsed(inside, f"{where}: {opening[3]}")
        place = closing + 1 + len(opening[1])
    if isinstance(blocks.get("instructions"), dict):
        blocks["instructions"] = blocks["instructions"].get("text")
    missing = [name for name in ("instructions", *_BLOCKS) if name not in blocks]
    if missing:
        raise ImportFormatError(f"{where}: the block {missing[0]!r} is missing; export the skill again")
    if not isinstance(blocks["instructions"], str):
        raise ImportFormatError(f"{where}: the instructions are no text")
    return blocks


def _instructions(text: str) -> str:
    if _PLAIN.fullmatch(text.replace("\n", "")) and "\r" not in text:
        return _fenced("text", "instructions", text + "\n")
    return _fenced("yaml", "instructions", _yaml({"text": text}))


def _fenced(kind: str, name: str, text: str) -> str:
    """Fence a text that ends with a newline, with more backticks than it has in a row."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind} {name}\n{text}{fence}\n"


def _yaml(data: Any) -> str:
    dumped: str = yaml.dump(data, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=_LONGEST_DESCRIPTION)
    return dumped


def _parsed(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        told = " ".join(str(error).split())
        raise ImportFormatError(f"{where} is no YAML as it must be here ({told:.160})") from None


def _shown(text: str, most: int) -> str:
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _short(id: str) -> str:
    return re.sub(r"[^a-z0-9]", "", id.casefold())[:8] or "unnamed"


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes each value where it stands: no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Say that nothing is written as an alias."""
        return True


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads plain data: no aliases, which could stand for more than memory holds, and no dates."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for sign, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _represent_text(dumper: Any, text: str) -> Any:
    # Quoted, signs that end a line are escaped; else they come back as spaces.
    quoted = None if _PLAIN.fullmatch(text.replace("\n", "")) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=quoted)


_Dumper.add_representer(tuple, lambda dumper, data: dumper.represent_list(list(data)))
_Dumper.add_representer(str, _represent_text)
