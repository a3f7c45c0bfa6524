"""Progress with its rate, on a terminal's stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show how many of ``total`` items are done; gives the function to call with each further number of them.

    Where stderr is no terminal, nothing is shown.
    """
    if not sys.stderr.isatty():
        yield lambda number: None
        return
    # Here, because most calls have no terminal or nothing long to show.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed or 0:.0f}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(description, total=total)
        yield lambda number: bars.advance(bar, number)
