from __future__ import annotations

import json

import pytest

from .conftest import Fluxmem

FACTS = [
    {"content": "The rent was 800 euros.", "metadata": {"year": 2019, "team": "ops", "valid_to": "2019-12-31"}},
    {"content": "The rent is 900 euros.", "metadata": {"year": 2020, "team": "ops", "tags": ["new", "flat"]}},
    {"content": "The rent of the shop is 950 euros.", "metadata": {"year": 2024, "team": "a=b", "big": True}},
]


@pytest.fixture
def filled(fluxmem: Fluxmem) -> Fluxmem:
    fluxmem("add", "-", "--jsonl", stdin="\n".join(json.dumps(fact) for fact in FACTS))
    return fluxmem


def years(fluxmem: Fluxmem, *options: str) -> list[int]:
    return sorted(hit["metadata"]["year"] for hit in fluxmem.data("search", "rent in euros", *options))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [2020, 2024]),
        (("--filter", "year>=2020"), [2020, 2024]),
        (("--filter", " year > 2020 "), [2024]),
        (("--filter", "year!=2020"), [2024]),
        (("--filter", "year<2024", "--filter", "team=ops"), [2020]),
        (("--filter", "year<=2019", "--as-of", "any"), [2019]),
        (("--filter", 'year="2020"'), []),
        (("--filter", "team=a=b"), [2024]),
        (("--filter", "big=true"), [2024]),
        (("--filter", 'tags=["new","flat"]'), [2020]),
        (("--filter", '{"tags": {"contains": "new"}}'), [2020]),
        (("--filter", '{"or": [{"year": 2020}, {"big": {"exists": true}}]}'), [2020, 2024]),
        (("--filter", '{"not": {"team": "ops"}}'), [2024]),
        (("--filter", '{"year": {"in": [2019, 2024]}}'), [2024]),
        (("--as-of", "any"), [2019, 2020, 2024]),
        (("--as-of", "2018"), []),
        (("--as-of", "2999-01-01"), [2020, 2024]),
    ],
)
def test_search_by_metadata_and_time(filled: Fluxmem, options: tuple[str, ...], expected: list[int]) -> None:
    assert years(filled, *options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--filter", "year"), "must be KEY=VALUE"),
        (("--filter", "=3"), "must be KEY=VALUE"),
        (("--filter", "year=>3"), "year"),
        (("--filter", "{year: 3}"), "is not JSON"),
        (("--filter", '{"year": {"near": 3}}'), "unknown operator 'near'; known are in, ne, gt, gte, lt, lte, exists"),
        (("--filter", "year>true"), "takes a number or a text, not True"),
        (("--as-of", "soon"), "as_of='soon' is no time; give ISO 8601 as 2026-05-31"),
    ],
)
def test_conditions_that_cannot_be_read(filled: Fluxmem, options: tuple[str, ...], message: str) -> None:
    if message == "year":
        assert years(filled, *options) == []
    else:
        assert message in filled("search", "rent", *options, code=2).stderr


def test_a_context_takes_the_same_conditions_and_a_budget(filled: Fluxmem) -> None:
    filled("record", "-", stdin='{"task": "pay the rent in euros", "success": true}')
    whole = filled("context", "pay the rent in euros").stdout
    assert ("800" in whole, "900" in whole, "950" in whole, "<episode" in whole) == (False, True, True, True)
    narrow = filled("context", "pay the rent in euros", "--filter", "year=2020").stdout
    assert ("900" in narrow, "950" in narrow, "<episode" in narrow) == (True, False, True)
    assert "800" in filled("context", "pay the rent in euros", "--as-of", "any").stdout
    assert len(filled("context", "pay the rent in euros", "--tokens", "90").stdout) < len(whole)
    assert "token_budget=0" in filled("context", "x", "--tokens", "0", code=2).stderr


def test_forget_by_filter(filled: Fluxmem) -> None:
    assert len(filled.data("forget", "--filter", "year<2024", "--dry-run")["removed"]) == 2
    assert len(filled.data("forget", "--filter", "year<2024", "--filter", "team=ops", "--yes")["removed"]) == 2
    assert years(filled, "--as-of", "any") == [2024]
    assert "no memory meets the filters" in filled("forget", "--filter", "year<2024", "--yes", code=2).stderr
    assert "names no condition" in filled("forget", "--filter", "{}", "--yes", code=2).stderr
    assert "together" in filled("forget", "--filter", "year=1", "--source", "x", "--yes", code=2).stderr
    assert years(filled) == [2024]


def test_explain_names_signals_weights_and_what_brought_a_hit(filled: Fluxmem) -> None:
    (first, *_) = filled.data("search", "rent of the shop", "-k", "1")
    assert "explanation" not in first
    episode = filled.data(
        "record", "-", stdin=json.dumps({"task": "rent of the shop", "success": True, "used_ids": [first["id"]]})
    )["id"]
    (hit,) = filled.data("search", "rent of the shop", "-k", "1", "--explain")
    assert set(hit["explanation"]["weights"]) == set(hit["signals"])
    assert [edge["target_id"] for edge in hit["explanation"]["edges"]] == [episode]
    cells = filled("search", "rent of the shop", "-k", "1", "--explain").stdout.rstrip("\n").split("\t")
    assert "dense" in cells[4]
    assert "×1" in cells[4]
    assert f"ground edge {hit['explanation']['edges'][0]['id']} with task {episode} (similar by 1.00)" in cells[5]
