"""`fluxmem skills`: what the episodes were distilled to."""

from __future__ import annotations

import click

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import ProceduralNode
from fluxmem_local.types import Layer, NodeState, Scope

from .output import note, print_json, print_table, shortened, visible
from .session import Session, Verb, VerbGroup, scope_options

__all__ = ["COMMANDS"]


@click.group(cls=VerbGroup)
def skills() -> None:
    """List skills, or show one with its versions.

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

    v is a skill's version, runs is the number of episodes that it rests on.

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
        rows.append([_written(skill.pems_score), skill.id, skill.version, len(skill.source_episode_ids), *state, text])
    print_table(["PEMS", "id", "v", "runs", *(["state"] if all_states else []), "skill"], rows)


@skills.command(cls=Verb)
@click.argument("id")
@scope_options
@click.pass_obj
def show(session: Session, id: str, scope: Scope | None) -> None:
    """Show the skill ID with its earlier versions.

    \b
    Example:
      fluxmem skills show 3f0c9d2b5e6a4c1d8b7f0a9e2d4c6b81
    """
    with session.open() as agent:
        skill = agent.get(id, scope=scope)
    if not isinstance(skill, ProceduralNode):
        raise InvalidInputError(f"{id} is {skill.layer} memory and no skill; run: fluxmem show {id}")
    if session.as_json:
        print_json(skill)
        return
    click.echo(visible(skill.skill_text))
    click.echo()
    rows = [
        [past.version, _written(past.pems_score), past.ended_because, shortened(past.skill_text)]
        for past in skill.version_history
    ]
    rows.append([skill.version, _written(skill.pems_score), "present", shortened(skill.skill_text)])
    print_table(["version", "PEMS", "ended because", "text"], rows)


def _pems(skill: ProceduralNode) -> float:
    return -1.0 if skill.pems_score is None else skill.pems_score


def _written(pems: float | None) -> str:
    return "" if pems is None else f"{pems:.4f}"


COMMANDS = {"skills": skills}
