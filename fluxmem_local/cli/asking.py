"""`fluxmem search`, `context` and `ask`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.types import Layer, Scope

from .output import count_of, note, print_json, print_table, shortened, visible
from .session import Session, Verb, read_text, scope_options

__all__ = ["COMMANDS"]


@click.command(cls=Verb)
@click.argument("query")
@click.option("-k", "top_k", type=int, default=5, show_default=True, help="Hits at most.")
@click.option(
    "--layer",
    "layers",
    multiple=True,
    type=click.Choice([layer.value for layer in Layer]),
    help="Where to look; may be given several times.  [default: semantic]",
)
@click.option("--filter", "filters", metavar="KEY=VALUE", multiple=True, help="Metadata that must be equal.")
@click.option("--explain", is_flag=True, help="Show the value of each signal.")
@click.option("--verify/--no-verify", default=False, help="Let the language model read the candidates.  [default: no]")
@scope_options
@click.pass_obj
def search(
    session: Session,
    query: str,
    top_k: int,
    layers: tuple[str, ...],
    filters: tuple[str, ...],
    explain: bool,
    verify: bool,
    scope: Scope | None,
) -> None:
    """Find the memories nearest to QUERY (- reads it from stdin).

    A filter's value is read as JSON where it is JSON (7, true, "7"), else as text.

    \b
    Examples:
      fluxmem search "when does the lease end" -k 3 --explain
      fluxmem search rollback --layer procedural --filter team=ops
    """
    text = read_text(query)
    wanted = dict(_filter(part) for part in filters)
    with session.open(embedder=True, llm=verify) as agent:
        hits = asyncio.run(
            agent.retrieve(
                text,
                top_k=top_k,
                layers=layers or (Layer.SEMANTIC,),
                scope=scope,
                filters=wanted or None,
                verify=verify,
            )
        )
    if session.as_json:
        print_json(hits)
        return
    if not hits:
        note("nothing found")
        return
    columns = ["score", "id", "layer", "content", *(["signals"] if explain else [])]
    rows: list[list[Any]] = []
    for hit in hits:
        rows.append([f"{hit.score:.3f}", hit.node.id, hit.node.layer, shortened(hit.node.content)])
        if explain:
            rows[-1].append("\n".join(f"{name} {value:.3f}" for name, value in hit.signals.items()))
    print_table(columns, rows)


@click.command(cls=Verb)
@click.argument("task")
@click.option("--observation", default="", help="What the agent sees at this step.")
@scope_options
@click.pass_obj
def context(session: Session, task: str, observation: str, scope: Scope | None) -> None:
    """Print the context that TASK (- for stdin) would be given, without running anything.

    \b
    Example:
      fluxmem context "roll back the web service" --observation "deploy failed" > context.xml
    """
    text = read_text(task)
    with session.open(embedder=True, llm=session.config().llm_weight > 0) as agent:
        rendered = asyncio.run(agent.context(text, observation, scope))
    if session.as_json:
        print_json({"task": text, "observation": observation, "context": rendered})
    else:
        click.echo(rendered)


@click.command(cls=Verb)
@click.argument("question")
@scope_options
@click.pass_obj
def ask(session: Session, question: str, scope: Scope | None) -> None:
    """Answer QUESTION (- for stdin) with the local language model, from memory alone.

    The answer is checked against the facts it was made from; one that they do not support is tried again with a
    repaired memory, and if it never is supported, the answer is that the memory does not say. Ends with 0 either way.

    \b
    Example:
      fluxmem ask "When does the lease end?"
    """
    text = read_text(question)
    with session.open(embedder=True, llm=True) as agent:
        answer = asyncio.run(agent.ask(text, scope=scope))
        cited = agent.store.get_many(answer.citations)
    if session.as_json:
        print_json({**answer.to_dict(), "facts": [{"id": fact.id, "content": fact.content} for fact in cited]})
        return
    click.echo(visible(answer.text))
    if cited:
        click.echo()
        print_table(["fact", "content"], [[fact.id, shortened(fact.content)] for fact in cited])
    tries = count_of(answer.rounds, "try", "tries")
    note(f"{tries}, {count_of(len(answer.edits), 'repair')}, recorded as episode {answer.episode_id}")


def _filter(part: str) -> tuple[str, Any]:
    key, equals, value = part.partition("=")
    if not key or not equals:
        raise InvalidInputError(f"--filter {part!r} must be KEY=VALUE, such as team=ops")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


COMMANDS = {"search": search, "context": context, "ask": ask}
