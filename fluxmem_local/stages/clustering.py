"""Clusters of episodes: K-Means on their embeddings, apart for each scope (spec section 5)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fluxmem_local.errors import DimensionError, InvalidInputError
from fluxmem_local.graph import EpisodicNode
from fluxmem_local.text import tokenize
from fluxmem_local.types import FloatArray, Scope

__all__ = [
    "ALIKE_COSINE",
    "cluster_episodes",
    "cluster_rows",
    "clustering_digest",
    "clusters_of",
    "labels_of",
    "word_vectors",
]

_Labels: TypeAlias = npt.NDArray[np.int64]

# Mean cosine of pairs below which episodes have nothing to do with each other. Tasks of one kind with other names in
# them have about 0.45 to 0.9 with the default embedder, unrelated ones less than 0.2.
ALIKE_COSINE = 0.4
# Mean cosine of pairs from which a difference is one of names only.
SAME_COSINE = 0.8
# A best silhouette under this one is no structure.
_LEAST_SILHOUETTE = 0.05
# The number of clusters is chosen on a sample; silhouettes cost its square.
_SAMPLE = 1000
_MOST_CLUSTERS = 128
_EACH_UP_TO = 24
_STEP_BEYOND = 1.25
_WORD_VECTOR_SIZE = 512
# Vectors of equal texts differ in the last bits when they were made in other batches.
_DECIMALS = 5


def cluster_episodes(
    episodes: Sequence[EpisodicNode], vectors: FloatArray, *, num_clusters: int | None, seed: int, min_size: int = 1
) -> list[tuple[EpisodicNode, ...]]:
    """Group episodes; those of different scopes are never in one cluster.

    Args:
        episodes: n episodes, in any order: the clusters don't depend on it.
        vectors: their embeddings, shape ``(n, d)``.
        num_clusters: clusters a scope at most; None: chosen by silhouette.
        seed: of K-Means.
        min_size: a smaller cluster is of no use, so it joins one that is alike; only when the number is chosen.

    Returns:
        The clusters; episodes within one are sorted by age.

    Raises:
        DimensionError: not one vector an episode.
    """
    if len(episodes) != len(vectors):
        raise DimensionError(f"{len(episodes)} episodes came with {len(vectors)} vectors; give one vector an episode")
    by_scope: dict[Scope, list[int]] = {}
    for position, episode in enumerate(episodes):
        by_scope.setdefault(episode.scope, []).append(position)
    clusters: list[tuple[EpisodicNode, ...]] = []
    for positions in by_scope.values():
        labels = cluster_rows(vectors[positions], num_clusters=num_clusters, seed=seed, min_size=min_size)
        for label in range(int(labels.max()) + 1):
            members = [episodes[positions[row]] for row in np.flatnonzero(labels == label)]
            clusters.append(tuple(sorted(members, key=_age)))
    return sorted(clusters, key=lambda members: _age(members[0]))


def clustering_digest(episodes: Sequence[EpisodicNode], vectors: FloatArray, settings: Sequence[Any]) -> str:
    """Return a SHA-256 (hex) of all that the clusters of episodes depend on, whatever the episodes' order."""
    order = sorted(range(len(episodes)), key=lambda position: episodes[position].id)
    known = [[episodes[position].id, str(episodes[position].scope)] for position in order]
    digest = hashlib.sha256(json.dumps([known, list(settings)]).encode())
    digest.update(np.ascontiguousarray(vectors[order].round(_DECIMALS)).tobytes())
    return digest.hexdigest()


def labels_of(clusters: Sequence[Sequence[EpisodicNode]]) -> list[int]:
    """Return the number of each episode's cluster, in the order of the episodes' ids."""
    numbers = {episode.id: number for number, cluster in enumerate(clusters) for episode in cluster}
    return [numbers[id] for id in sorted(numbers)]


def clusters_of(episodes: Sequence[EpisodicNode], labels: Sequence[int]) -> list[tuple[EpisodicNode, ...]]:
    """Return the clusters that ``labels_of`` gave the labels of."""
    groups: dict[int, list[EpisodicNode]] = {}
    for episode, label in zip(sorted(episodes, key=lambda episode: episode.id), labels, strict=True):
        groups.setdefault(label, []).append(episode)
    return [tuple(sorted(groups[label], key=_age)) for label in sorted(groups)]


def cluster_rows(vectors: FloatArray, *, num_clusters: int | None, seed: int, min_size: int = 1) -> _Labels:
    """Label the rows of ``vectors``, shape ``(n, d)``, with their cluster from 0 on.

    The same rows in another order get the same clusters. Automatic (``num_clusters`` None): one cluster when the rows
    are the same but for names; else the number, among those tried, with the best mean silhouette by cosine, the
    smaller at a tie. Clusters of fewer than ``min_size`` rows then join the nearest one that is alike: silhouette
    likes to tell near repeats of one task apart.

    Raises:
        InvalidInputError: ``num_clusters`` under 1.
    """
    if num_clusters is not None and num_clusters < 1:
        raise InvalidInputError(f"num_clusters={num_clusters} is none; give 1 or more, or None to choose it")
    rows: npt.NDArray[np.float64] = np.asarray(vectors, dtype=np.float64).round(_DECIMALS)
    # Equal rows are one point with a weight, sorted by value: this is what makes the order of no account.
    points, inverse, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    if not len(rows):
        return np.zeros(0, np.int64)
    number = (
        _choose_number(rows, points, counts, seed, min_size) if num_clusters is None else min(num_clusters, len(points))
    )
    if number == 1:
        return np.zeros(len(rows), np.int64)
    labels = _fit(points, counts, number, seed)[inverse]
    return _join_alike(rows, labels, min_size) if num_clusters is None else labels


def word_vectors(texts: Sequence[str]) -> FloatArray:
    """Make vectors of unit length from the words of n texts, for memories without an embedder: shape ``(n, 512)``."""
    vectors = np.zeros((len(texts), _WORD_VECTOR_SIZE), np.float32)
    for row, text in enumerate(texts):
        for token in tokenize(text):
            number = int.from_bytes(hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()[:8], "big")
            vectors[row, (number >> 1) % _WORD_VECTOR_SIZE] += 1.0 if number & 1 else -1.0
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: FloatArray = (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return unit


def _age(episode: EpisodicNode) -> tuple[float, str]:
    return episode.created_at, episode.id


def _choose_number(rows: npt.NDArray[np.float64], points: Any, counts: Any, seed: int, min_size: int) -> int:
    cosine = _mean_cosine(rows)
    if len(points) < 3:
        return len(points) if cosine < ALIKE_COSINE else 1
    if cosine >= SAME_COSINE or (cosine >= ALIKE_COSINE and len(rows) < 2 * min_size):
        return 1
    from sklearn.metrics import silhouette_score

    chosen = np.arange(len(points))
    if len(points) > _SAMPLE:
        chosen = np.sort(np.random.default_rng(seed).choice(len(points), _SAMPLE, replace=False))
    sample, weights = points[chosen], counts[chosen]
    # Repeated points count in the silhouette as often as they occur, as long as the sample stays small.
    repeats = np.repeat(np.arange(len(sample)), weights if weights.sum() <= 2 * _SAMPLE else 1)
    best_number, best_score = 1, _LEAST_SILHOUETTE
    for number in _numbers(len(sample)):
        labels = _fit(sample, weights, number, seed)[repeats]
        score = float(silhouette_score(sample[repeats], labels, metric="cosine"))
        if score > best_score + 1e-9:
            best_number, best_score = number, score
    return best_number


def _mean_cosine(rows: npt.NDArray[np.float64]) -> float:
    """Mean cosine of all pairs of different rows."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(lengths > 0, lengths, 1.0)
    count = len(unit)
    return 1.0 if count < 2 else float((np.square(unit.sum(axis=0)).sum() - count) / (count * (count - 1)))


def _numbers(num_points: int) -> list[int]:
    most = min(num_points - 1, _MOST_CLUSTERS)
    numbers = list(range(2, min(most, _EACH_UP_TO) + 1))
    while numbers and numbers[-1] < most:
        numbers.append(min(most, int(numbers[-1] * _STEP_BEYOND) + 1))
    return numbers


def _join_alike(rows: npt.NDArray[np.float64], labels: _Labels, min_size: int) -> _Labels:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(lengths > 0, lengths, 1.0)
    while labels.max() > 0:
        sizes = np.bincount(labels)
        means = np.stack([unit[labels == label].mean(axis=0) for label in range(len(sizes))])
        # The dot product of two mean vectors is the mean cosine of the pairs across.
        across = means @ means.T
        small = sizes < min_size
        across -= np.where(small[:, None] | small[None, :], ALIKE_COSINE, SAME_COSINE)
        across[np.tril_indices(len(sizes))] = -np.inf
        into, joined = np.unravel_index(int(across.argmax()), across.shape)
        if across[into, joined] < 0:
            break
        labels = np.where(labels == joined, into, labels)
        labels = np.where(labels > joined, labels - 1, labels)
    return labels


def _fit(points: Any, counts: Any, number: int, seed: int) -> _Labels:
    from sklearn.cluster import KMeans

    fitted = KMeans(n_clusters=number, n_init=4, random_state=seed).fit(points, sample_weight=counts)
    # Numbered by the first point of each, and without gaps.
    _, first, labels = np.unique(fitted.labels_, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    ordered: _Labels = rank[labels.reshape(-1)].astype(np.int64)
    return ordered
