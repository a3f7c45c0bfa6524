from __future__ import annotations

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


def test_a_question_without_a_date_has_no_date_signal() -> None:
    node = SemanticNode(content="we met", metadata={"date": "2023-05-08"})
    assert cues.dated([node], "when did we meet?") is None
    near = cues.dated([node], "what happened on 8 May 2023?")
    assert near is not None
    assert near.tolist() == [1.0]
