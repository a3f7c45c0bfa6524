from __future__ import annotations

from datetime import date
from math import exp

import numpy as np
import pytest

from fluxmem_local.graph import SemanticNode
from fluxmem_local.retrieval import cues


def facts(*contents: str) -> list[SemanticNode]:
    return [SemanticNode(content=content) for content in contents]


def test_a_scrap_states_little_and_a_question_less() -> None:
    nodes = facts("Sure!", "a long report", "Are you sure?", "本当ですか？")
    values = cues.statement(nodes, np.array([10.0, 80.0, 10.0, 40.0]))
    np.testing.assert_allclose(values, [0.25, 1.0, 0.0625, 0.25])


@pytest.mark.parametrize(
    ("node", "question", "expected"),
    [
        (SemanticNode(content="Ana: I moved to Porto"), "Where did Ana move?", 1.0),
        (SemanticNode(content="Ana Silva: I moved"), "What are Ana's plans?", 1.0),
        (SemanticNode(content="I moved", metadata={"speaker": "Ana"}), "where does ana live", 1.0),
        (SemanticNode(content="Ana: I moved"), "Where did Ben move?", 0.0),
        (SemanticNode(content="Ben: Hi Ana"), "Where did Ana move?", 0.0),
        (SemanticNode(content="I moved to Porto"), "Who moved to Porto?", 0.0),
        (SemanticNode(content="see http://host: it is down"), "which host", 0.0),
    ],
)
def test_who_spoke(node: SemanticNode, question: str, expected: float) -> None:
    assert cues.spoken_by([node], question).tolist() == [expected]


TODAY = date(2023, 5, 10)


def test_a_question_without_a_date_has_no_date_signal() -> None:
    node = SemanticNode(content="we met", metadata={"date": "2023-05-08"})
    assert cues.dated([node], "when did we meet?", TODAY) is None
    near = cues.dated([node], "what happened on 8 May 2023?", TODAY)
    assert near is not None
    assert near.tolist() == [1.0]


def test_a_question_is_about_days_seen_from_the_one_it_is_asked_on() -> None:
    nodes = [SemanticNode(content="we met", metadata={"date": day}) for day in ("2023-05-09", "2023-04-20")]
    near = cues.dated(nodes, "what happened yesterday?", TODAY)
    assert near is not None
    assert near.tolist() == pytest.approx([1.0, exp(-19 / 3)])


def test_a_chunk_is_about_the_days_that_it_names_from_its_own() -> None:
    told = [("we moved last year", 1.0), ("we moved last month", 0.0), ("we moved", 0.0)]
    nodes = [SemanticNode(content=content, metadata={"date": "2023-05-08"}) for content, _ in told]
    near = cues.dated(nodes, "what happened in 2022?", TODAY)
    assert near is not None
    # A day in 2023 is 127 days after the asked year.
    assert near.tolist() == pytest.approx([max(value, exp(-128 / 14)) for _, value in told])
