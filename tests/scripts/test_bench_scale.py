"""The data of the scale benchmark: seeded, of unit length, in clusters; and its comparison without peers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import evaluation.scale as module

    return module


def test_facts_and_queries_are_of_the_same_clusters(scale: ModuleType) -> None:
    corpus = scale.make_corpus(2000, 50)
    again = scale.make_corpus(2000, 50)
    assert len(set(corpus.texts)) == 2000
    assert corpus.texts == again.texts
    assert np.array_equal(corpus.vectors, again.vectors)
    np.testing.assert_allclose(np.linalg.norm(corpus.vectors, axis=1), 1.0, atol=1e-5)
    similar = corpus.query_vectors @ corpus.vectors.T
    # As with embeddings of sentences: a query's nearest are like it, and most facts are not.
    assert 0.6 < np.mean(np.sort(similar, axis=1)[:, -10]) < 0.9
    assert abs(np.median(similar)) < 0.25


def test_a_small_memory_is_loaded_opened_and_found_right(
    scale: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "_NUM_QUERIES", 20)
    monkeypatch.setattr(scale, "_NUM_ADDS", 10)
    data, memory = tmp_path / "data", tmp_path / "memory"
    data.mkdir()
    scale.make(2100, data)
    loaded = scale.load(data, memory)
    assert loaded["bulk_per_s"] > 0
    served = scale.serve(data, memory)
    assert served["recall"] >= 0.97
    assert {"open_s", "search_ms", "scoped_ms", "adds_per_s", "busy_search_p99_ms"} <= set(served)


def test_without_an_environment_of_peers_only_ours_is_in_the_table(
    scale: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from evaluation import scale_peers

    names = ("bulk_per_s", "open_s", "nearest_ms", "nearest_p99_ms", "recall", "rss_mib", "rss_ratio", "disk_ratio")
    (ours,) = scale_peers.compare(None, tmp_path, dict.fromkeys(names, 2.0))
    assert (ours["name"], ours["disk_mib"]) == ("fluxmem-local", 2.0)
    assert "no peers: name the Python" in capsys.readouterr().out
    assert "chromadb" not in sys.modules
