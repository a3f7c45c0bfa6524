"""`fluxmem run` and `record`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import click

from fluxmem_local.agent.results import (
    FailureAttributed,
    GraphEdited,
    RoundStarted,
    StepExecuted,
    TaskEvent,
    TaskFinished,
)
from fluxmem_local.errors import ImportFormatError
from fluxmem_local.types import Origin, Scope

from .output import FAILED, count_of, note, print_json, shortened
from .program import Program
from .session import Session, Verb, read_file, read_text, scope_options

__all__ = ["COMMANDS"]

_RECORD_KEYS = frozenset({"task", "trajectory", "success", "feedback", "used_ids", "scope", "added_by"})


@click.command(cls=Verb)
@click.argument("task")
@click.argument("command", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--observation", "observations", multiple=True, help="What is seen at a step; once a step.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), help="Seconds a start may take.")
@scope_options
@click.pass_obj
def run(
    session: Session,
    task: str,
    command: tuple[str, ...],
    observations: tuple[str, ...],
    timeout_s: float | None,
    scope: Scope | None,
) -> None:
    """Run the program CMD on TASK (- for stdin), and repair the memory when it fails.

    CMD gets the memory context on stdin, and the path of a file with the same in FLUXMEM_CONTEXT_FILE. Exit status 0 is
    success, stdout the result, stderr the feedback. After a failure the memory is repaired and CMD started again, at
    most max_refinement_rounds times more. The result is printed; ends with 1 when CMD never succeeded.

    \b
    Example:
      fluxmem run "deploy the web service" --timeout 60 -- python agent.py --fast
    """
    text = read_text(task)
    program = Program(command, timeout_s)
    with session.open(embedder=True, llm=True) as agent:
        outcome = asyncio.run(
            agent.run_task(text, program, observations or None, scope, on_event=None if session.as_json else _tell)
        )
    if session.as_json:
        print_json(outcome)
    elif outcome.result:
        click.echo(outcome.result)
    if not outcome.success:
        sys.exit(FAILED)


def _tell(event: TaskEvent) -> None:
    if isinstance(event, RoundStarted):
        memories = count_of(len(event.context_ids), "memory", "memories")
        note(f"round {event.round}: {memories}, {count_of(event.num_tokens, 'token')}")
    elif isinstance(event, StepExecuted):
        how = "succeeded" if event.success else f"failed: {shortened(event.feedback, 300)}"
        note(f"  {how} ({event.seconds:.1f} s)")
    elif isinstance(event, FailureAttributed):
        cause = event.attribution
        note(f"  cause: {cause.type}, {cause.action} ({cause.source}: {shortened(cause.reason, 300)})")
    elif isinstance(event, GraphEdited):
        for edit in event.edits:
            note(f"  {edit.kind} {', '.join(edit.targets)}: {shortened(edit.reason, 300)} [edit {edit.id}]")
        for id in event.rolled_back:
            note(f"  taken back: edit {id}")
    elif isinstance(event, TaskFinished):
        note(f"{event.status} after {count_of(event.rounds, 'round')}, recorded as episode {event.episode_id}")


@click.command(cls=Verb)
@click.argument("file")
@scope_options
@click.pass_obj
def record(session: Session, file: str, scope: Scope | None) -> None:
    """Record an episode that was lived elsewhere, from the JSON in FILE (- for stdin).

    The JSON is {"task": ..., "success": true, "trajectory": [["observation", "action"], ...], "feedback": ...,
    "used_ids": [...], "scope": {"user": ...}, "added_by": "agent"}; task and success must be there. used_ids are the
    memories it used, added_by is agent or user.

    \b
    Example:
      echo '{"task": "restart nginx", "success": true, "trajectory": [["", "systemctl restart"]]}' | fluxmem record -
    """
    given = _episode(file, read_file(file))
    asked = scope if scope is not None else given.pop("scope", None)
    given.pop("scope", None)
    with session.open(embedder=True, create=True) as agent:
        id = asyncio.run(agent.record_episode(**given, scope=asked))
    if session.as_json:
        print_json({"id": id})
    else:
        click.echo(f"recorded episode {id}")


def _episode(file: str, text: str) -> dict[str, Any]:
    name = "stdin" if file == "-" else file
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImportFormatError(f"{name}: not JSON ({error}); see: fluxmem record --help") from None
    if not isinstance(given, dict):
        raise ImportFormatError(f"{name}: a JSON object is needed; see: fluxmem record --help")
    unknown = sorted(set(given) - _RECORD_KEYS)
    if unknown:
        raise ImportFormatError(f"{name}: unknown key {unknown[0]!r}; known are {', '.join(sorted(_RECORD_KEYS))}")
    kinds: dict[str, type] = {
        "task": str,
        "success": bool,
        "trajectory": list,
        "feedback": str,
        "used_ids": list,
        "scope": dict,
        "added_by": str,
    }
    for key in ("task", "success"):
        if key not in given:
            raise ImportFormatError(f"{name}: the key {key!r} is missing; see: fluxmem record --help")
    for key, value in given.items():
        if not isinstance(value, kinds[key]):
            raise ImportFormatError(f"{name}: {key!r} must be {kinds[key].__name__}, not {type(value).__name__}")
    if given.get("added_by", Origin.AGENT) not in (Origin.AGENT, Origin.USER):
        raise ImportFormatError(f"{name}: 'added_by' must be agent or user, not {given['added_by']!r:.100}")
    steps = []
    for step in given.get("trajectory", []):
        pair = [step.get("observation", ""), step.get("action", "")] if isinstance(step, dict) else step
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise ImportFormatError(f"{name}: the step {step!r:.100} must be [observation, action], both texts")
        steps.append((pair[0], pair[1]))
    return {**given, "trajectory": steps}


COMMANDS = {"run": run, "record": record}
