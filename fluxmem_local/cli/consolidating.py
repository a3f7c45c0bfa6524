"""`fluxmem consolidate`."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fluxmem_local.graph import ProceduralNode
from fluxmem_local.types import Layer, NodeState

from .files import written_whole
from .output import FAILED, count_of, note, print_json, print_table, shortened
from .session import NamedPath, Session, Verb
from .sources import readable_name

if TYPE_CHECKING:
    from fluxmem_local.stages.consolidation import ConsolidationReport

__all__ = ["COMMANDS"]

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
# More digits are no amount, and more than Python reads.
_BUDGET = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(s|m|h|calls?|)")
# What --json calls each list, and what it is for people; it is shown when something is in it.
_CHANGES = {
    "learned_facts": "facts on which places lead where",
    "updated_skills": "skills with news",
    "split_skills": "skills split from others",
    "merged_skills": "skills merged into others",
    "skipped": "not written",
    "demoted": "put aside",
    "kept": "kept",
    "merged": "merged",
    "dropped": "removed",
    "forgotten": "forgotten by the rules of retention",
    "pruned_edges": "links removed",
}
_SHOWN = (NodeState.ACTIVE, NodeState.DEMOTED)


@click.command(cls=Verb)
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="AMOUNT",
    help="Begin no further skill after this: a time (90s, 10m, 2h), or calls of the language model (40calls).",
)
@click.option(
    "--report",
    type=NamedPath(path_type=Path, dir_okay=False),
    help="An HTML page to write, with PEMS by round.",
)
@click.pass_obj
def consolidate(session: Session, dry_run: bool, budgets: tuple[str, ...], report: Path | None) -> None:
    """Distil skills from episodes, let them mature, and tidy the graph; ends with 1 when it could not finish.

    Only episodes with news are worked on. What is done is stored at once, so that a run that was stopped, or whose
    budget was spent, goes on where it was.

    \b
    Example:
      fluxmem consolidate --budget 10m --budget 100calls --report pems.html
    """
    bounds = _bounds(budgets)
    with session.open(embedder=True, llm=True) as agent:
        done = asyncio.run(agent.consolidate(dry_run=dry_run, **bounds))
        min_support = agent.config.min_support
        if report is not None:
            _write_page(session, report, done, agent.store.select(layers=(Layer.PROCEDURAL,), states=_SHOWN))
    if session.as_json:
        print_json(done)
    else:
        print_table(["what", "value"], [[what, shortened(value, 300)] for what, value in _told(done).items()])
        if not done.pems_history and done.status == "ok":
            note(f"no skill yet: one takes {min_support} similar episodes that succeeded (the setting min_support)")
    if done.status != "ok":
        sys.exit(FAILED)


def _bounds(budgets: Sequence[str]) -> dict[str, Any]:
    bounds: dict[str, Any] = {}
    for budget in budgets:
        found = _BUDGET.fullmatch(budget.strip().casefold())
        calls = found is not None and found[2].startswith("call")
        name = "max_llm_calls" if calls else "max_seconds"
        if found is None or name in bounds or (calls and "." in found[1]):
            raise click.BadParameter(
                f"{budget!r} is no budget; give a time as 90s, 10m or 2h, or calls as 40calls, each once",
                param_hint="--budget",
            )
        bounds[name] = int(found[1]) if calls else float(found[1]) * _SECONDS[found[2]]
    return bounds


def _write_page(session: Session, path: Path, done: ConsolidationReport, nodes: Sequence[Any]) -> None:
    # Here, because most runs draw nothing.
    from fluxmem_local.viewer.report import render_report_page

    page = render_report_page(
        title=f"Consolidation of {readable_name(session.directory)}",
        told=_told(done),
        pems_history=done.pems_history,
        skills=[node for node in nodes if isinstance(node, ProceduralNode)],
    )
    with written_whole(path) as file:
        file.write(page)


def _told(report: ConsolidationReport) -> dict[str, str]:
    told = {"groups of similar episodes": str(report.clusters), "new skills": _listed(report.induced_skills)}
    told |= {what: _listed(report[name]) for name, what in _CHANGES.items() if report[name]}
    # Their scores by version are for --json.
    if report.pems_history:
        told["mean score of the skills (PEMS)"] = f"{report.graph_pems:.2f}"
        told["all skills settled"] = "yes" if report.converged else "not yet; new episodes can still change them"
    saved = report.tokens_saved.values()
    if saved:
        told["context tokens saved by a settled skill"] = f"{sum(saved) / len(saved):.0f}, in place of its episodes"
    if report.llm_calls:
        told["language model asked"] = (
            f"{count_of(report.llm_calls, 'time')}, {report.llm_failures} without a usable answer"
        )
    if report.bad_answers:
        told["answers of no use"] = "; ".join(f"{what}: {number}" for what, number in report.bad_answers.items())
    if report.status == "failed":
        told["result"] = "failed: no answer of the language model could be used, so nothing was changed"
    elif report.status == "partial":
        left = count_of(report.num_left, "kind of task", "kinds of tasks")
        told["result"] = f"the budget was spent, {left} left; run it again to go on"
    else:
        told["result"] = "a dry run: nothing was changed" if report.dry_run else "done"
    return told


def _listed(value: Sequence[Any]) -> str:
    return "; ".join(item if isinstance(item, str) else ": ".join(map(str, item)) for item in value) or "none"


COMMANDS = {"consolidate": consolidate}
