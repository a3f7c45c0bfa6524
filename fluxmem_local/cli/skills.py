"""`fluxmem skills`: what the episodes were distilled to."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from fluxmem_local.agent.skills import is_approved, skill_seen
from fluxmem_local.graph import ProceduralNode
from fluxmem_local.stages.unsafe import unsafe_lines
from fluxmem_local.types import Layer, NodeState, Scope

from .output import FAILED, note, print_json, print_table, shortened, visible
from .session import NamedPath, Session, Verb, VerbGroup, scope_options

__all__ = ["COMMANDS"]


@click.group(cls=VerbGroup)
def skills() -> None:
    """List, show, approve, compare, export and import skills.

    \b
    Example:
      fluxmem skills list
    """


@skills.command("list", cls=Verb)
@click.option("--all", "all_states", is_flag=True, help="With skills that were demoted.")
@scope_options
@click.pass_obj
def list_(session: Session, all_states: bool, scope: Scope | None) -> None:
    """List the skills with their PEMS, best first.

    v is a skill's version, with a star when it is approved; runs is the number of episodes that it rests on.

    \b
    Example:
      fluxmem skills list --all
    """
    states = (NodeState.ACTIVE, NodeState.DEMOTED) if all_states else (NodeState.ACTIVE,)
    with session.open() as agent:
        found = agent.store.select(layers=(Layer.PROCEDURAL,), scope=scope, states=states)
    ranked = sorted((node for node in found if isinstance(node, ProceduralNode)), key=_pems, reverse=True)
    if session.as_json:
        print_json(ranked)
        return
    if not ranked:
        note("no skills yet; `fluxmem consolidate` distils them from episodes that succeeded")
        return
    rows = []
    for skill in ranked:
        state = [skill.state] if all_states else []
        text = shortened(skill.skill_text)
        version = f"{skill.version}{'*' if is_approved(skill) else ''}"
        rows.append([_written(skill.pems_score), skill.id, version, len(skill.source_episode_ids), *state, text])
    print_table(["PEMS", "id", "v", "runs", *(["state"] if all_states else []), "skill"], rows)


@skills.command(cls=Verb)
@click.argument("id")
@scope_options
@click.pass_obj
def show(session: Session, id: str, scope: Scope | None) -> None:
    """Show the skill ID with its earlier versions, and what of it was never seen to succeed.

    \b
    Example:
      fluxmem skills show 3f0c9d2b5e6a4c1d8b7f0a9e2d4c6b81
    """
    with session.open() as agent:
        skill = skill_seen(agent.store, id, scope)
    if session.as_json:
        print_json(skill)
        return
    click.echo(visible(skill.skill_text))
    click.echo()
    rows = [
        [past.version, _written(past.pems_score), past.ended_because, shortened(past.skill_text)]
        for past in skill.version_history
    ]
    present = str(skill.metadata.get("ended_because") or ("present, approved" if is_approved(skill) else "present"))
    rows.append([skill.version, _written(skill.pems_score), present, shortened(skill.skill_text)])
    print_table(["version", "PEMS", "ended because", "text"], rows)
    _note_unsafe({skill.id: unsafe_lines(skill)})


@skills.command(cls=Verb)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--revoke", is_flag=True, help="Take the approval back.")
@scope_options
@click.pass_obj
def approve(session: Session, ids: tuple[str, ...], revoke: bool, scope: Scope | None) -> None:
    """Approve the present version of the skill ID for export; a later version needs approval of its own.

    \b
    Example:
      fluxmem skills approve 3f0c9d2b5e6a4c1d8b7f0a9e2d4c6b81
    """
    with session.open() as agent:
        done = [agent.approve_skill(id, approved=not revoke, scope=scope) for id in ids]
    if session.as_json:
        print_json(done)
        return
    for skill in done:
        click.echo(f"{skill.id}: version {skill.version} {'is no longer approved' if revoke else 'is approved'}")


@skills.command(cls=Verb)
@click.argument("folder", type=NamedPath(path_type=Path, file_okay=False))
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--force", is_flag=True, help="Also skills that nobody approved.")
@scope_options
@click.pass_obj
def export(session: Session, folder: Path, ids: tuple[str, ...], force: bool, scope: Scope | None) -> None:
    """Write approved skills as Agent Skills into FOLDER, each a folder with a SKILL.md; without ID all of them.

    What was never seen to succeed is marked in them. Ends with 1 when a skill was left out for lack of approval.

    \b
    Example:
      fluxmem skills export ./skills
    """
    with session.open() as agent:
        done = agent.export_skills(folder, list(ids) or None, scope=scope, force=force)
    if session.as_json:
        print_json(done)
    else:
        for id, path in done.written:
            click.echo(f"{id}\t{path}")
        for id, reason in done.left_out:
            note(f"left out {id}: {reason}")
        _note_unsafe(done.unsafe)
    if done.left_out:
        sys.exit(FAILED)


@skills.command("import", cls=Verb)
@click.argument("folder", type=NamedPath(path_type=Path))
@scope_options
@click.pass_obj
def import_(session: Session, folder: Path, scope: Scope | None) -> None:
    """Take in the SKILL.md in FOLDER, or of all folders in it, all or nothing.

    Skills keep their ids and versions; one that is there already is not doubled, and an edited text becomes its next
    version. What comes in is not approved. With --user and the like it is theirs, else the one's that the files name.

    \b
    Example:
      fluxmem skills import ./skills
    """
    with session.open(embedder=True, create=True) as agent:
        done = asyncio.run(agent.import_skills(folder, scope=scope))
    if session.as_json:
        print_json(done)
        return
    click.echo(f"added: {len(done.added)}, updated: {len(done.updated)}, unchanged: {len(done.unchanged)}")
    for id, reason in done.unchanged:
        note(f"{id}: {reason}")
    _note_unsafe(done.unsafe)


@skills.command(cls=Verb)
@click.argument("id")
@click.argument("other", required=False)
@scope_options
@click.pass_obj
def diff(session: Session, id: str, other: str | None, scope: Scope | None) -> None:
    """Compare the text of the skill ID with OTHER: a version's number, or a folder with a SKILL.md.

    Without OTHER it is the version before. Nothing is printed when they are equal.

    \b
    Example:
      fluxmem skills diff 3f0c9d2b5e6a4c1d8b7f0a9e2d4c6b81 1
    """
    with session.open() as agent:
        text = agent.diff_skill(id, int(other) if other is not None and other.isdecimal() else other, scope=scope)
    if session.as_json:
        print_json({"diff": text})
    elif text:
        click.echo(visible(text))


def _note_unsafe(unsafe: Mapping[str, Sequence[str]]) -> None:
    for id, lines in unsafe.items():
        for line in lines:
            note(f"unsafe in {id}, never seen to succeed: {shortened(line)}")


def _pems(skill: ProceduralNode) -> float:
    return -1.0 if skill.pems_score is None else skill.pems_score


def _written(pems: float | None) -> str:
    return "" if pems is None else f"{pems:.4f}"


COMMANDS = {"skills": skills}
