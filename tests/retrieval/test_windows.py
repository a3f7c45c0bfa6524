from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from fluxmem_local.graph import SemanticNode
from fluxmem_local.index import LexicalIndex, TermStatistics
from fluxmem_local.retrieval.windows import lexical_trust, window_bm25, window_weights
from fluxmem_local.types import Scope

from .conftest import Shelf


def test_a_neighbour_weighs_by_its_distance_in_tokens() -> None:
    places = {"a": 0, "b": 1, "c": 2}
    beside = {"b": {-1: "a", 1: "c"}, "a": {1: "b", 2: "c"}, "c": {}}
    weights = window_weights(["b", "a", "c"], beside, places, np.array([10.0, 20.0, 60.0]), reach=20.0)
    # Middles: a to b 15 tokens, b to c 40, a to c 55.
    expected = [[exp(-15 / 20), 1, exp(-40 / 20)], [1, exp(-15 / 20), exp(-55 / 20)], [0, 0, 1]]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_bm25_of_a_window_alone_is_bm25_of_the_chunk() -> None:
    """Without neighbours, and with the mean length of the corpus, both are the same formula."""
    index = LexicalIndex()
    texts = {"a": "red fox", "b": "blue fish", "c": "grey owls", "d": "pale moon", "e": "warm rain"}
    for id, text in texts.items():
        index.add(id, text.split())
    statistics = index.statistics(["red", "moon", "none"], list(texts))
    assert statistics.terms == ("red", "moon")
    np.testing.assert_allclose(
        window_bm25(statistics, np.eye(5, dtype=np.float32)), index.scores(["red", "moon"], list(texts)), rtol=1e-6
    )


def test_a_match_in_the_neighbour_counts_in_part() -> None:
    statistics = TermStatistics(
        terms=("fox",), idf=np.array([2.0]), counts=np.array([[0.0], [1.0]]), lengths=np.array([4.0, 4.0]),
        corpus_size=9, mean_length=4.0,
    )  # fmt: skip
    weights = np.float32([[1, 0.5], [0.5, 1]])
    # By hand: tf 0.5 and 1, both windows of mean length, so 2 * tf * 2.5 / (tf + 1.5).
    np.testing.assert_allclose(window_bm25(statistics, weights), [2 * 0.5 * 2.5 / 2.0, 2 * 2.5 / 2.5], rtol=1e-6)


def test_headings_are_read_as_a_part_of_the_chunk() -> None:
    statistics = TermStatistics(
        terms=("linux",), idf=np.array([2.0]), counts=np.array([[0.0], [0.0]]), lengths=np.array([3.0, 4.0]),
        corpus_size=9, mean_length=4.0,
    )  # fmt: skip
    # One heading of one word (its stem is the second token): tf 1, length 5 of a mean of 4.5.
    norm = 1.5 * (0.25 + 0.75 * 5 / 4.5)
    scores = window_bm25(statistics, np.eye(2, dtype=np.float32), ["Linux", ""])
    np.testing.assert_allclose(scores, [2 * 2.5 / (1 + norm), 0.0], rtol=1e-6)


def test_a_stray_match_is_trusted_by_its_share_of_the_question() -> None:
    statistics = TermStatistics(
        terms=("fox",),
        idf=np.array([1.0]),
        counts=np.array([[1.0]]),
        lengths=np.array([3.0]),
        corpus_size=50,
        mean_length=4.0,
    )
    unseen = log(101)
    assert lexical_trust([["fox"], ["zebra"], ["gnu"]], statistics) == pytest.approx(1 / (1 + 2 * unseen) / 0.3)
    assert lexical_trust([["fox"]], statistics) == 1.0


def turn(id: str, place: int, content: str, **fields: object) -> SemanticNode:
    return SemanticNode(id=id, source="chat", chunk_index=place, content=content, **fields)  # type: ignore[arg-type]


async def test_an_answer_is_found_by_the_words_of_the_question_before_it(wordy_shelf: Shelf) -> None:
    await wordy_shelf.put(
        turn("t0", 0, "Ben: the weather was fine all week"),
        turn("t1", 1, "Ben: which instrument did your grandfather build in his workshop?"),
        turn("t2", 2, "Ana: a cello, it took him nine long winters and it still sounds wonderful"),
        *[SemanticNode(id=f"x{n}", content=f"unrelated remark number {n} on trains and tea") for n in range(8)],
    )
    hits = await wordy_shelf.retriever().retrieve("What instrument did Ana's grandfather build?", top_k=2)
    assert [hit.node.id for hit in hits] == ["t1", "t2"]


async def test_what_another_scope_said_is_no_context(wordy_shelf: Shelf) -> None:
    await wordy_shelf.put(
        turn("t1", 1, "which instrument did your grandfather build?", scope=Scope(user="ben")),
        turn("t2", 2, "a cello, it took him nine long winters", scope=Scope(user="ana")),
    )
    asked = "What instrument did grandfather build?"
    assert await wordy_shelf.retriever().retrieve(asked, scope=Scope(user="ana")) == []
    assert len(await wordy_shelf.retriever().retrieve(asked)) == 2
