"""`fluxmem search`, `context` and `ask`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from fluxmem_local.types import Layer, Scope

from .conditions import as_of_option, filter_option
from .output import count_of, note, print_json, print_table, shortened, visible
from .session import Session, Verb, note_unembedded, read_text, scope_options

if TYPE_CHECKING:
    from fluxmem_local.retrieval import Explanation

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
@filter_option
@as_of_option
@click.option("--explain", is_flag=True, help="Show for each hit its signals with their weights, and what brought it.")
@click.option("--verify/--no-verify", default=False, help="Let the language model read the candidates.  [default: no]")
@scope_options
@click.pass_obj
def search(
    session: Session,
    query: str,
    top_k: int,
    layers: tuple[str, ...],
    filters: dict[str, Any] | None,
    as_of: str | None,
    explain: bool,
    verify: bool,
    scope: Scope | None,
) -> None:
    """Find the memories nearest to QUERY (- reads it from stdin).

    What by its metadata no longer holds, or not yet (valid_from, valid_to), is left out, unless --as-of says otherwise.

    \b
    Examples:
      fluxmem search "when does the lease end" -k 3 --explain
      fluxmem search rollback --layer procedural --filter team=ops
      fluxmem search rent --filter "year>=2020" --as-of 2024-12-31
    """
    text = read_text(query)
    with session.open(embedder=True, llm=verify) as agent:
        note_unembedded(agent)
        hits = asyncio.run(
            agent.retrieve(
                text,
                top_k=top_k,
                layers=layers or (Layer.SEMANTIC,),
                scope=scope,
                filters=filters,
                as_of=as_of,
                verify=verify,
                explain=explain,
            )
        )
    if session.as_json:
        print_json(hits)
        return
    if not hits:
        note("nothing found")
        return
    columns = ["score", "id", "layer", "content", *(["signals", "from"] if explain else [])]
    rows: list[list[Any]] = []
    for hit in hits:
        rows.append([f"{hit.score:.3f}", hit.node.id, hit.node.layer, shortened(hit.node.content)])
        if hit.explanation is not None:
            weights = hit.explanation.weights
            rows[-1].append(
                "\n".join(f"{name} {value:.3f} ×{weights.get(name, 0):g}" for name, value in hit.signals.items())
            )
            rows[-1].append("\n".join(_origins(hit.explanation)))
    print_table(columns, rows)


def _origins(explanation: Explanation) -> list[str]:
    """Say what connects a hit with similar past tasks."""
    lines = []
    for edge in explanation.edges:
        task = edge.target_id if edge.target_id in explanation.tasks else edge.source_id
        lines.append(f"{edge.kind} edge {edge.id} with task {task} (similar by {explanation.tasks[task]:.2f})")
    return [*lines, *(f"{edit.kind} {edit.id}: {shortened(edit.reason)}" for edit in explanation.edits)]


@click.command(cls=Verb)
@click.argument("task")
@click.option("--observation", default="", help="What the agent sees at this step.")
@click.option("--tokens", type=int, help="Tokens at most, by the language model's own count; else the setting.")
@filter_option
@as_of_option
@scope_options
@click.pass_obj
def context(
    session: Session,
    task: str,
    observation: str,
    tokens: int | None,
    filters: dict[str, Any] | None,
    as_of: str | None,
    scope: Scope | None,
) -> None:
    """Print the context that TASK (- for stdin) would be given, without running anything.

    Filters are about the facts in it; episodes and skills are the agent's own.

    \b
    Examples:
      fluxmem context "roll back the web service" --observation "deploy failed" > context.xml
      fluxmem context "pay the rent" --tokens 500 --as-of 2024-12-31
    """
    text = read_text(task)
    # Its tokenizer counts the tokens even where it does not verify.
    with session.open(embedder=True, llm=True) as agent:
        note_unembedded(agent)
        rendered = asyncio.run(
            agent.context(text, observation, scope, filters=filters, as_of=as_of, token_budget=tokens)
        )
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

    The answer is what one sentence of one fact says: the model's words where they say the same, else that sentence. If
    none answers, it is tried again with a repaired memory; if none ever does, the answer is that the memory does not
    say, and the episode is a failed one. Ends with 0 either way.

    \b
    Example:
      fluxmem ask "When does the lease end?"
    """
    text = read_text(question)
    with session.open(embedder=True, llm=True) as agent:
        note_unembedded(agent)
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


COMMANDS = {"search": search, "context": context, "ask": ask}
