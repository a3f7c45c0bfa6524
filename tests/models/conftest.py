from __future__ import annotations

from pathlib import Path

import pytest

from fluxmem_local.models.embedder import SentenceTransformerEmbedder
from fluxmem_local.models.llm import TransformersLLM


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model-cache")


@pytest.fixture(autouse=True)
def no_writes_at_home(
    request: pytest.FixtureRequest, session_cache: Path, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep the user's model cache out of it, but for the real models, whose conversion takes half a minute."""
    if request.node.get_closest_marker("real_model") is None:
        monkeypatch.setenv("FLUXMEM_MODELS", str(session_cache))


@pytest.fixture
def model_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty model cache of the test's own."""
    monkeypatch.setenv("FLUXMEM_MODELS", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def tiny_llm() -> TransformersLLM:
    return TransformersLLM("tiny-llm", max_new_tokens=24)


@pytest.fixture(scope="session")
def tiny_embedder() -> SentenceTransformerEmbedder:
    return SentenceTransformerEmbedder("tiny-embedder", batch_size=4)


@pytest.fixture(scope="session")
def real_llm() -> TransformersLLM:
    return TransformersLLM("smollm2-135m-instruct", max_new_tokens=24)
