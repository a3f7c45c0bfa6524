from __future__ import annotations

from pathlib import Path

import pytest

from fluxmem_local.demo.contexts import context_items, with_only_skill
from fluxmem_local.demo.tables import MedalTable, write_table
from fluxmem_local.demo.tools import RenderLimitError, aggregate_rows, read_header, view_spreadsheet

CONTEXT = (
    "<context><task>t</task><semantic_memory><fact id='a'>one &lt;fact&gt;</fact></semantic_memory>"
    "<episodic_memory><episode id='b'><task>ep</task><step>done</step></episode></episodic_memory>"
    "<procedural_memory><skill id='c'>old skill</skill></procedural_memory></context>"
)


@pytest.fixture
def small_table(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    path.write_text("athlete,country,medals\nann,Norway,3\nbob,Norway,1\ncy,Kenya,5\ndi,Kenya,0\ned,Kenya,1\n")
    return path


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("total", [("Kenya", 6.0), ("Norway", 4.0)]),
        ("average", [("Kenya", 2.0), ("Norway", 2.0)]),
        ("maximum", [("Kenya", 5.0), ("Norway", 3.0)]),
        ("count", [("Kenya", 3.0), ("Norway", 2.0)]),
    ],
)
def test_aggregate_rows_reduces_each_group(
    small_table: Path, operation: str, expected: list[tuple[str, float]]
) -> None:
    assert sorted(aggregate_rows(small_table, "country", "medals", operation)) == sorted(expected)


def test_the_viewer_draws_a_small_table(small_table: Path) -> None:
    page = view_spreadsheet(small_table)
    assert page.count("<tr>") == 6
    assert "<td>Norway</td>" in page


def test_the_viewer_refuses_a_large_table_with_its_own_error(tmp_path: Path) -> None:
    table = MedalTable(
        file_name="big.csv", header=("a", "c", "s", "age", "m"), countries={"X": (2001, 1.0)}, sports=("judo",), seed=0
    )
    path, _ = write_table(table, tmp_path)
    with pytest.raises(RenderLimitError, match="2001 rows, the grid draws 2000"):
        view_spreadsheet(path)


def test_a_table_is_the_same_for_the_same_seed_and_knows_its_averages(tmp_path: Path) -> None:
    table = MedalTable(
        file_name="t.csv",
        header=("athlete", "country", "sport", "age", "medals"),
        countries={"A": (40, 1.0), "B": (10, 3.0)},
        sports=("judo", "fencing"),
        seed=7,
    )
    path, averages = write_table(table, tmp_path)
    first = path.read_bytes()
    assert write_table(table, tmp_path)[0].read_bytes() == first
    assert table.num_rows == 50
    assert dict(aggregate_rows(path, "country", "medals", "average")) == pytest.approx(averages)
    header, rows = read_header(path, 3)
    assert header == ["athlete", "country", "sport", "age", "medals"]
    assert len(rows) == 3


def test_context_items_lists_kinds_and_unescaped_texts() -> None:
    assert context_items(CONTEXT) == [("fact", "one <fact>"), ("episode", "ep done"), ("skill", "old skill")]


def test_with_only_skill_replaces_episodes_and_skills() -> None:
    assert context_items(with_only_skill(CONTEXT, "a <new> skill")) == [
        ("fact", "one <fact>"),
        ("skill", "a <new> skill"),
    ]
