"""Clusters: the number, small and degenerate inputs, scopes, order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxmem_local.errors import DimensionError, InvalidInputError
from fluxmem_local.graph import EpisodicNode
from fluxmem_local.stages.clustering import cluster_episodes, cluster_rows, word_vectors
from fluxmem_local.types import FloatArray, Scope


def blobs(sizes: list[int], *, dimension: int = 16, spread: float = 0.15, seed: int = 0) -> FloatArray:
    """Unit vectors around orthogonal directions, ``sizes[i]`` around the i-th: shape ``(n, dimension)``."""
    noise = np.random.default_rng(seed)
    rows = np.repeat(np.eye(dimension)[: len(sizes)], sizes, axis=0)
    rows = rows + spread * noise.normal(size=rows.shape) / np.sqrt(dimension)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def parts(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}


@pytest.mark.parametrize("sizes", [[4, 4], [3, 5, 2], [10, 1, 6, 3], [6] * 8])
def test_the_number_is_found(sizes: list[int]) -> None:
    labels = cluster_rows(blobs(sizes), num_clusters=None, seed=0)
    expected = np.repeat(np.arange(len(sizes)), sizes)
    assert parts(labels) == parts(expected)


def test_small_numbers() -> None:
    assert cluster_rows(np.zeros((0, 4), np.float32), num_clusters=None, seed=0).tolist() == []
    assert cluster_rows(blobs([1]), num_clusters=None, seed=0).tolist() == [0]
    assert cluster_rows(blobs([2]), num_clusters=None, seed=0).tolist() == [0, 0]
    assert cluster_rows(blobs([1, 1]), num_clusters=None, seed=0).tolist() in ([0, 1], [1, 0])
    assert cluster_rows(blobs([3]), num_clusters=None, seed=0).tolist() == [0, 0, 0]


def test_rows_that_are_all_alike_are_one_cluster() -> None:
    assert set(cluster_rows(blobs([40], spread=0.5), num_clusters=None, seed=0).tolist()) == {0}


@pytest.mark.parametrize("number", [None, 1, 2, 5, 50])
def test_identical_rows_are_one_cluster_whatever_is_asked(number: int | None) -> None:
    rows = np.repeat(blobs([1]), 9, axis=0)
    assert cluster_rows(rows, num_clusters=number, seed=0).tolist() == [0] * 9


def test_a_given_number_is_kept_as_far_as_there_are_points() -> None:
    rows = blobs([4, 4, 4])
    assert set(cluster_rows(rows, num_clusters=2, seed=0).tolist()) == {0, 1}
    assert set(cluster_rows(rows, num_clusters=99, seed=0).tolist()) == set(range(12))


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(15)), st.sampled_from([None, 2, 3, 5]))
def test_the_order_of_rows_does_not_matter(order: list[int], number: int | None) -> None:
    rows = np.concatenate([blobs([3, 4, 5], spread=1.0), blobs([3], spread=0.0)])
    straight = parts(cluster_rows(rows, num_clusters=number, seed=0))
    shuffled = parts(cluster_rows(rows[order], num_clusters=number, seed=0))
    assert {frozenset(order[place] for place in part) for part in shuffled} == straight


def test_more_rows_than_the_sample_are_clustered_too() -> None:
    labels = cluster_rows(blobs([700, 500]), num_clusters=None, seed=0)
    assert parts(labels) == parts(np.repeat([0, 1], [700, 500]))


def test_clusters_too_small_to_be_of_use_join_one_that_is_alike() -> None:
    # Two near repeats, one relative of theirs at a cosine of about 0.6, and three of another kind.
    relative = np.array([[0.6, 0.8] + [0.0] * 14], np.float32)
    other = np.roll(blobs([3]), 5, axis=1)
    rows = np.concatenate([blobs([2]), relative, other])
    joined = {frozenset({0, 1, 2}), frozenset({3, 4, 5})}
    assert parts(cluster_rows(rows, num_clusters=None, seed=0, min_size=3)) == joined
    stranger = np.roll(blobs([1]), 9, axis=1)
    apart = parts(cluster_rows(np.concatenate([rows, stranger]), num_clusters=None, seed=0, min_size=3))
    assert apart == {*joined, frozenset({6})}


def test_three_tasks_of_one_kind_are_not_torn_apart_by_two_near_repeats() -> None:
    rows = np.concatenate([blobs([2]), np.array([[0.6, 0.8] + [0.0] * 14], np.float32)])
    assert cluster_rows(rows, num_clusters=None, seed=0, min_size=3).tolist() == [0, 0, 0]


def test_a_number_below_one_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="num_clusters=0"):
        cluster_rows(blobs([3]), num_clusters=0, seed=0)


def test_episodes_of_different_scopes_are_never_together() -> None:
    scopes = [Scope(user="ada"), Scope(user="ben"), Scope(), Scope(user="ada", agent="x")]
    episodes = [EpisodicNode(task_description="same", success=True, scope=scope) for scope in scopes for _ in range(3)]
    rows = np.repeat(blobs([1]), len(episodes), axis=0)
    for number in (None, 1, 2):
        clusters = cluster_episodes(episodes, rows, num_clusters=number, seed=0)
        assert sorted(map(len, clusters)) == [3, 3, 3, 3]
        assert all(len({episode.scope for episode in cluster}) == 1 for cluster in clusters)


def test_each_episode_is_in_one_cluster_sorted_by_age() -> None:
    episodes = [EpisodicNode(task_description="t", success=True, created_at=9.0 - age) for age in range(9)]
    clusters = cluster_episodes(episodes, blobs([4, 5]), num_clusters=None, seed=0)
    assert [[episode.created_at for episode in cluster] for cluster in clusters] == [[1, 2, 3, 4, 5], [6, 7, 8, 9]]


def test_a_vector_is_needed_for_each_episode() -> None:
    with pytest.raises(DimensionError, match="1 episodes came with 2 vectors"):
        cluster_episodes([EpisodicNode(task_description="t")], blobs([2]), num_clusters=None, seed=0)


def test_word_vectors_are_nearer_for_shared_words() -> None:
    one, two, other = word_vectors(["put the coat away", "put the sock away", "rank athletes by medals"])
    assert one @ two > 0.5 > 0.2 > abs(one @ other)
    assert np.linalg.norm(one) == pytest.approx(1)
