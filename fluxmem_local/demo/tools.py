"""The two tools of the case study. Both really work on the file, and the viewer really refuses a large one."""

from __future__ import annotations

import csv
import html
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["OPERATIONS", "TOOLS", "RenderLimitError", "aggregate_rows", "read_header", "view_spreadsheet"]

VIEWER_ROW_LIMIT = 2_000

# What each tool and each operation says of itself; the agent compares its instructions with these.
TOOLS = {
    "spreadsheet_viewer": "Open the table in the spreadsheet viewer, which renders all cells as a grid to look at.",
    "python_aggregation": "Run a Python data-analysis script that reads the file and aggregates its rows by group.",
}
OPERATIONS = {
    "total": "Add up the column for each group and rank the groups by the total.",
    "average": "Compute the average for each group: divide the total by the number of members.",
    "maximum": "Take the largest single value of each group.",
    "count": "Count the rows of each group.",
}

_REDUCE: dict[str, Callable[[Sequence[float]], float]] = {
    "total": sum,
    "average": lambda values: sum(values) / len(values),
    "maximum": max,
    "count": len,
}


class RenderLimitError(Exception):
    """The viewer's own refusal of a table that it cannot draw."""


def read_header(path: Path, num_samples: int = 50) -> tuple[list[str], list[list[str]]]:
    """Read the column names and the first rows."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        header = next(reader)
        return header, [row for _, row in zip(range(num_samples), reader, strict=False)]


def view_spreadsheet(path: Path) -> str:
    """Render a table as an HTML grid.

    Raises:
        RenderLimitError: the table has more rows than the grid can draw.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if len(rows) - 1 > VIEWER_ROW_LIMIT:
        raise RenderLimitError(
            f"spreadsheet viewer cannot render {path.name}: {len(rows) - 1} rows, the grid draws "
            f"{VIEWER_ROW_LIMIT} at most; rendering was given up"
        )
    return (
        "<table>" + "".join(f"<tr><td>{'</td><td>'.join(map(html.escape, row))}</td></tr>" for row in rows) + "</table>"
    )


def aggregate_rows(path: Path, group_column: str, value_column: str, operation: str) -> list[tuple[str, float]]:
    """Reduce the values of each group; the best group comes first."""
    groups: dict[str, list[float]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            groups[row[group_column]].append(float(row[value_column]))
    reduce = _REDUCE[operation]
    return sorted(((name, float(reduce(values))) for name, values in groups.items()), key=lambda pair: -pair[1])
