"""What a verb prints, and the exit code it ends with."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from fluxmem_local.errors import (
    FluxMemError,
    MemoryDamagedError,
    MemoryLockedError,
    ModelError,
    ModelOutputError,
    StorageError,
)
from fluxmem_local.results import to_json

__all__ = [
    "EXIT_CODES",
    "count_of",
    "exit_code",
    "note",
    "print_json",
    "print_table",
    "shortened",
    "to_data",
    "visible",
]

_ID = re.compile(r"[0-9a-f]{32}")

OK, FAILED, BAD_INPUT, MODEL_TROUBLE, STORAGE_TROUBLE, INTERRUPTED = 0, 1, 2, 3, 4, 130

EXIT_CODES: Mapping[int, str] = {
    OK: "done",
    FAILED: "the task or check failed: a run that never succeeded, problems found, consolidation not finished",
    BAD_INPUT: "bad input or usage; nothing was stored (for add: of the files named in the errors)",
    MODEL_TROUBLE: "a local model could not do its work",
    STORAGE_TROUBLE: "the memory could not be read or written: disk full, no permission, damage, another writer",
    INTERRUPTED: "interrupted",
}


def exit_code(error: BaseException) -> int:
    """Map an error to the exit code that ``fluxmem --help`` documents."""
    if isinstance(error, ModelOutputError) or type(error) is ModelError:
        return MODEL_TROUBLE
    if type(error) is StorageError or isinstance(error, (MemoryDamagedError, MemoryLockedError)):
        return STORAGE_TROUBLE
    if isinstance(error, OSError) and not isinstance(error, FluxMemError):
        return STORAGE_TROUBLE
    # All else says that what was named, a file, model, memory, id or setting, cannot be used as it is.
    return BAD_INPUT


def to_data(value: Any) -> Any:
    """Turn results into what JSON can hold; embeddings are left out, they are no reading matter."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): to_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_data(item) for item in value]
    data = to_json(value)
    if hasattr(value, "layer") and isinstance(data, dict):
        data.pop("embedding", None)
        return {"layer": str(value.layer), **data}
    return data


def print_json(value: Any) -> None:
    """Print a result as one JSON value."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    click.echo(json.dumps(to_data(value), ensure_ascii=not unicode, indent=2, default=str))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Print rows for people: a table as wide as the terminal, or tab-separated lines where none is."""
    rows = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(" ".join(cell.split()) for cell in row))
        return
    # Here, because a verb that prints one line should not pay for it.
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    # What does not fit goes on in the next line: an id or a path with its end cut off is of no use.
    headers = [Column(name, overflow="fold") for name in columns]
    # The first column of ids stays in one line, to be copied; a narrow terminal has no room for two.
    for header, cells in zip(headers, zip(*rows, strict=True), strict=False):
        if any(cells) and all(_ID.fullmatch(cell) for cell in cells if cell):
            header.no_wrap = True
            break
    table = Table(*headers, title=title, header_style="bold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Write a number with its noun: "1 memory", "2 memories"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def note(message: str) -> None:
    """Say something on stderr that is no result."""
    click.echo(message, err=True)


def visible(text: str) -> str:
    """Return a text with its control characters replaced, so that what memory holds cannot steer a terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def shortened(text: str, width: int = 100) -> str:
    """Return a text as one line of at most ``width`` characters."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"
