"""What a model says becomes a typed value or None (user reports 15 and 16, spec section 10)."""

from __future__ import annotations

import pytest

from fluxmem_local.answers import Attribution, parse_attribution, parse_json_object, parse_score, usable_text

SCHEMA_ECHO = '{"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]}'


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"action": "prune"}', {"action": "prune"}),
        ('<think>Is it {"action": "expand"}? No.</think>{"action": "prune"}', {"action": "prune"}),
        ('Sure!\n```json\n{"action": "prune"}\n```\nHope this helps.', {"action": "prune"}),
        ('{"action": "prune", "targets": ["a", "b",],}', {"action": "prune", "targets": ["a", "b"]}),
        (SCHEMA_ECHO + '\n{"action": "prune"}', {"action": "prune"}),
        ('{"action": "prune"} {"action": "prune"}', {"action": "prune"}),
        ('{"details": "a } in, ] text,}", "n": {"m": 1}}', {"details": "a } in, ] text,}", "n": {"m": 1}}),
        ('{"details": "line\nbreak"}', {"details": "line\nbreak"}),
        ("set {x} then " + '{"action": "none"}', {"action": "none"}),
        (SCHEMA_ECHO, None),
        ('{"action": "prune"} or {"action": "expand"}', None),
        ("I think one should prune the second fact.", None),
        ("", None),
        ("<think>" + '{"action": "prune"}', None),
        ('{"action": "prune", "details": "it was cut', None),
        ('["prune"]', None),
        ('{"score": NaN}', None),
        ("{" * 100_000, None),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, None),
    ],
)
def test_parse_json_object(answer, value):
    assert parse_json_object(answer) == value


def test_parse_json_object_takes_the_one_with_the_required_names():
    answer = '{"thought": "hm"} {"action": "prune", "targets": []}'
    assert parse_json_object(answer, required=("action",)) == {"action": "prune", "targets": []}
    assert parse_json_object(answer, required=("granularity",)) is None


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("0.8", 0.8),
        ("Score: 0.8", 0.8),
        ("0,8", 0.8),
        (".5", 0.5),
        ("80%", 0.8),
        ("80 %", 0.8),
        ("4/5", 0.8),
        ("4 out of 5", 0.8),
        ("Out of 5 points I give 0.1", 0.1),
        ("On a scale from 0 to 1: 0.3.", 0.3),
        ('{"score": 0.25}', 0.25),
        ('```json\n{"score": 1}\n```', 1.0),
        ("1", 1.0),
        ("Score: 0", 0.0),
        ("<think>maybe 0.2</think>0.9", 0.9),
        ("-0.8", None),
        ("−0.8", None),
        ("score - 0.8 is negative", None),
        ("150%", None),
        ("7", None),
        ("1.5", None),
        ("6/5", None),
        ("1/0", None),
        ("Fact 1 supports the claim", None),
        ("0.2 or 0.7", None),
        ("no idea", None),
        ("", None),
        ('{"score": 3}', None),
        ('{"score": true}', None),
        ('{"low": 0.1, "high": 0.9}', None),
        ("version 0.8.1", None),
    ],
)
def test_parse_score(answer, value):
    assert parse_score(answer) == (None if value is None else pytest.approx(value))


def test_parse_attribution_checks_what_an_action_needs():
    assert parse_attribution(
        {"action": "Prune", "type": "connection-level", "targets": ["a", "a", " b "]}
    ) == Attribution("connection", "prune", targets=("a", "b"))
    assert parse_attribution({"action": "reshape", "type": "unit", "granularity": "fine", "details": "too coarse"}) == (
        Attribution("unit", "reshape", "too coarse", (), "fine")
    )
    assert parse_attribution({"action": "none", "targets": "x", "granularity": "fine"}) == Attribution(
        "none", "none", targets=("x",)
    )


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"action": "delete"},
        {"action": ["prune"]},
        {"action": "prune", "type": "unit"},
        {"action": "reshape"},
        {"action": "reshape", "granularity": "medium"},
        {"action": "prune", "targets": [1, 2]},
        {"action": "prune", "targets": 3},
        {"type": "connection"},
    ],
)
def test_an_attribution_that_cannot_be_used_is_none(value):
    assert parse_attribution(value) is None


@pytest.mark.parametrize(
    "answer",
    [
        "",
        " \n\t ",
        "...!?",
        "<think>only a thought</think>",
        "word " * 58_279,
        "the the the the the the the the the the",
        "so it goes on and so it goes on and " * 12,
        "哈" * 400,
        "x" * 101,
        "half a sign \ud83d",
    ],
)
def test_text_that_is_blank_too_long_repeats_itself_or_is_none_is_not_usable(answer):
    limit = 100 if answer.startswith("x") else 1_000_000
    assert usable_text(answer, limit) is None


@pytest.mark.parametrize(
    "answer",
    [
        "1. Read the file with Python.\n2. Group the rows by country.\n3. Divide the sum by the count.",
        "very very good",
        "先读取文件，然后按国家分组，最后求平均值。",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |",
    ],
)
def test_honest_text_is_usable(answer):
    assert usable_text(f"<think>hm</think>\n {answer} \n", 1000) == answer
