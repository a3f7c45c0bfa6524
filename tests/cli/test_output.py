from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence

import pytest

from fluxmem_local.cli.output import count_of, print_table

ID = "0123456789abcdef0123456789abcdef"
PATH = "/a/long/way/" + "to/a/folder/of/some/models/" * 4 + "model.gguf"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def lines_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return what prints a table on a terminal of 80 columns and gives its lines back."""

    def lines(columns: Sequence[str], *rows: Sequence[str]) -> list[str]:
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            patch.setenv("COLUMNS", "80")
            patch.setenv("TERM", "dumb")
            print_table(columns, rows)
        return terminal.getvalue().splitlines()

    return lines


def cells(lines: list[str]) -> list[str]:
    """Return a one-row table's cells with the lines of each joined and blanks taken out."""
    rows = [line.strip("│").split("│") for line in lines if line.startswith("│")]
    return ["".join(parts).replace(" ", "") for parts in zip(*rows, strict=True)]


def test_a_narrow_table_keeps_ids_in_one_line_and_cuts_nothing_off(
    lines_of: Callable[..., list[str]],
) -> None:
    lines = lines_of(["score", "id", "layer", "path"], ["0.974", ID, "semantic", PATH])
    assert {len(line) for line in lines} == {80}
    assert sum(ID in line for line in lines) == 1
    assert cells(lines) == ["0.974", ID, "semantic", PATH]


def test_a_second_column_of_ids_goes_on_in_the_next_line(
    lines_of: Callable[..., list[str]],
) -> None:
    other = ID[::-1]
    lines = lines_of(["from", "to", "weight", "failed"], [ID, other, "1.00", "0"])
    assert {len(line) for line in lines} == {80}
    assert any(ID in line for line in lines)
    assert cells(lines) == [ID, other, "1.00", "0"]


def test_a_column_of_ids_in_which_some_cells_are_blank_is_one_too(
    lines_of: Callable[..., list[str]],
) -> None:
    rows = [["2031-05-01T10:00:00+00:00", "added", PATH, ""], ["2031-05-01T10:00:00+00:00", "expanded", PATH, ID]]
    lines = lines_of(["when", "what", "content", "edit"], *rows)
    assert {len(line) for line in lines} == {80}
    assert sum(ID in line for line in lines) == 1


def test_counts_agree_with_their_nouns() -> None:
    assert count_of(1, "memory", "memories") == "1 memory"
    assert count_of(0, "memory", "memories") == "0 memories"
    assert count_of(2, "link") == "2 links"
