from __future__ import annotations

import numpy as np

from fluxmem_local.retrieval.fusion import fuse, rank

WEIGHTS = {"dense": 1.0, "bm25": 0.5, "llm": 0.3, "graph": 0.5}


def test_score_is_the_weighted_sum_over_the_weights() -> None:
    signals = {
        "dense": np.float32([0.9, 0.2]),
        "bm25": np.float32([0.0, 1.0]),
        "llm": np.float32([0.5, 1.0]),
    }
    # By hand, words on the scale of the best cosine, 0.9: (0.9 + 0 + 0.15) / 1.8 and (0.2 + 0.9 * 0.5 + 0.3) / 1.8.
    np.testing.assert_allclose(fuse(signals, WEIGHTS), [1.05 / 1.8, 0.95 / 1.8], rtol=1e-6)


def test_a_missing_signal_leaves_the_scale() -> None:
    np.testing.assert_allclose(fuse({"dense": np.float32([1]), "bm25": np.float32([1])}, WEIGHTS), [1.0])
    np.testing.assert_allclose(fuse({"bm25": np.float32([0.4])}, WEIGHTS), [0.4], rtol=1e-6)


def test_learned_connectivity_moves_only_what_it_knows() -> None:
    content = {"dense": np.float32([0.6, 0.3])}
    learned = {**content, "graph": np.float32([0.0, 0.8])}
    np.testing.assert_allclose(fuse(content, WEIGHTS), [0.6, 0.3], rtol=1e-6)
    np.testing.assert_allclose(fuse(learned, WEIGHTS), [0.6, 0.7], rtol=1e-6)


def test_no_weight_is_no_score() -> None:
    np.testing.assert_array_equal(fuse({"dense": np.float32([0.5])}, dict.fromkeys(WEIGHTS, 0.0)), [0.0])


def test_equal_scores_rank_by_id() -> None:
    assert rank(["b", "c", "a"], np.float32([0.5, 0.9, 0.5])) == [1, 2, 0]
    assert rank([], np.float32([])) == []
