from __future__ import annotations

import numpy as np
import pytest

from fluxmem_local.retrieval import signals


def test_dense_is_the_clipped_cosine() -> None:
    embeddings = np.float32([[1, 0], [0.6, 0.8], [-1, 0], [0, 0]])
    np.testing.assert_allclose(signals.dense(embeddings, np.float32([1, 0])), [1.0, 0.6, 0.0, 0.0], atol=1e-7)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([4.0, 1.0, 0.0], [1.0, 0.25, 0.0]),
        # A frequent word's negative weight next to a rare word's positive one.
        ([2.0, -1.0], [1.0, 0.0]),
        ([-0.3, 0.0], [0.0, 0.0]),
        ([], []),
    ],
)
def test_bm25_is_scaled_by_the_best_candidate(scores: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(signals.bm25(np.float32(scores)), np.float32(expected))


@pytest.mark.parametrize("values", [[0.5, np.nan], [0.5, 1.5], [-0.1, 0.5], [0.5], [[0.5, 0.5]], [np.inf, 0]])
def test_unusable_verification_is_no_signal(values: list[float]) -> None:
    assert signals.llm(np.asarray(values), 2) is None


def test_usable_verification_stays_as_it_is() -> None:
    np.testing.assert_array_equal(signals.llm(np.float64([0, 1]), 2), np.float32([0, 1]))


def test_task_relevance_rises_from_related_tasks_to_the_same_one() -> None:
    relevance = signals.task_relevance(np.float32([0.3, 0.4, 0.5, 0.6, 0.8, 1.0]), 0.4, 0.6)
    np.testing.assert_allclose(relevance, [0.0, 0.0, 0.25, 0.5, 0.75, 1.0], atol=1e-6)
    np.testing.assert_allclose(signals.task_relevance(np.float32([0.75, 1.0]), 0.75, 1.0), [0.0, 0.5], atol=1e-5)


def test_edge_trust_falls_with_failures() -> None:
    trust = signals.edge_trust(np.float32([1, 1, 0.5, 1]), np.float32([0, 0, 0, 3]), np.float32([0, 1, 0, 1]))
    np.testing.assert_allclose(trust, [1.0, 0.5, 0.5, 0.8])


def test_graph_weighs_help_against_harm_by_likeness() -> None:
    relevance = np.float32([1.0, 0.5])
    helped = np.float32([[1, 0, 0, 0], [0, 1, 0, 1]])
    hurt = np.float32([[0, 1, 0, 0], [0, 0, 0, 1]])
    # By hand: (1-0)/(1+1), (0.5-1)/(1.5+1), nothing known, (0.5-0.5)/(1+1).
    np.testing.assert_allclose(signals.graph(relevance, helped, hurt), [0.5, -0.2, 0.0, 0.0], atol=1e-6)


def test_a_models_words_count_by_their_differences() -> None:
    np.testing.assert_allclose(signals.among_read(np.float32([0.9, 0.5, 0.7])), [1.0, 0.0, 0.5], atol=1e-6)
    # All but equal: 0.03 of a difference is 0.03 / 0.15 of the range, and none is nothing.
    np.testing.assert_allclose(signals.among_read(np.float32([0.53, 0.5])), [0.2, 0.0], atol=1e-6)
    np.testing.assert_allclose(signals.among_read(np.float32([0.98, 0.98])), [0.0, 0.0])
    assert signals.among_read(np.zeros(0, np.float32)).shape == (0,)
