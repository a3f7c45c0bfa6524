"""Shows the case study to people: each round as it happens, then what changed."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fluxmem_local.agent.results import FailureAttributed, GraphEdited, RoundStarted, StepExecuted, TaskEvent
from fluxmem_local.graph import Node
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.retrieval.markup import shorten

from .case_study import QuestionReport, StudyReport

__all__ = ["Narrator", "tell"]

_WIDTH = 110


class Narrator:
    """Prints the events of a running task."""

    def __init__(self, console: Console, store: MemoryStore) -> None:
        self._console = console
        self._store = store
        self._cause = ""

    def announce(self, question: str) -> None:
        """Say which question comes next."""
        self._console.print(f"\n[bold]{escape(question)}[/]")

    def __call__(self, event: TaskEvent) -> None:
        """Print one event."""
        if isinstance(event, RoundStarted):
            self._console.print(f"  try {event.round}: {len(event.context_ids)} memories, {event.num_tokens} tokens")
        elif isinstance(event, StepExecuted):
            mark = "[green]solved[/]" if event.success else "[red]failed[/]"
            self._console.print(f"    {mark}: {escape(event.result if event.success else event.feedback)}")
        elif isinstance(event, FailureAttributed):
            found = event.attribution
            self._cause = found.reason
            self._console.print(f"    cause: {found.type} -> [bold]{found.action}[/] ({escape(found.reason)})")
        elif isinstance(event, GraphEdited):
            for edit in event.edits:
                why = "" if edit.reason == self._cause else f" ({escape(edit.reason)})"
                self._console.print(f"    [yellow]{edit.kind}[/]{why}")
                for node in self._store.get_many(edit.targets):
                    self._console.print(f"      {node.layer}: {escape(_line(node))}")


def _line(node: Node) -> str:
    return shorten(node.content, _WIDTH)


def tell(console: Console, report: StudyReport, page: Path) -> None:
    """Print what changed, what was learned, and where the graph can be seen."""
    first, second, *_ = report.questions
    console.print()
    console.print(_context_table(first))
    console.print(_question_table(report))
    console.print(_skill_table(report))
    if not report.success:
        console.print("[red]The study did not end as it should: the rounds above show where.[/]")
    elif first.result.rounds != 3:
        console.print(
            f"An attribution went astray on the way, and the loop recovered: {first.result.rounds} executions in place "
            "of the 3 that the repairs need."
        )
    console.print(
        f"The first question took {first.result.rounds} executions; the same question on {second.file_name}, with "
        f"other columns in another language, took {second.result.rounds}."
    )
    console.print(f"The memory's graph as a page: {page}", soft_wrap=True)


def _context_table(question: QuestionReport) -> Table:
    table = Table(title="The context of the first question, before and after its repair", show_lines=False)
    for title in ("", "kind", "memory"):
        table.add_column(title)
    before, after = set(question.context_before), set(question.context_after)
    for item in (*question.context_before, *(item for item in question.context_after if item not in before)):
        mark = "[green]added[/]" if item not in before else "kept" if item in after else "[red]cut[/]"
        table.add_row(mark, item[0], escape(shorten(item[1], _WIDTH)))
    return table


def _question_table(report: StudyReport) -> Table:
    table = Table(title="Questions")
    for title in ("file", "rows", "executions", "solved", "edits kept"):
        table.add_column(title)
    for question in report.questions:
        kept = ", ".join(edit.kind for edit in question.result.edits if edit.kept) or "none needed"
        table.add_row(
            question.file_name,
            f"{question.num_rows:,}",
            str(question.result.rounds),
            "yes" if question.result.success else "no",
            kept,
        )
    return table


def _skill_table(report: StudyReport) -> Table:
    table = Table(title="Skills after consolidation, with PEMS by version")
    for title in ("skill", "version", "PEMS", "why it ended"):
        table.add_column(title)
    for skill in report.skills:
        name = escape(shorten(skill.skill_text, _WIDTH // 2))
        for old in skill.version_history:
            table.add_row(name, str(old.version), _score(old.pems_score), escape(old.ended_because))
        table.add_row(name, str(skill.version), _score(skill.pems_score), "present")
    return table


def _score(pems: float | None) -> str:
    return "not scored" if pems is None else f"{pems:.3f}"
