from __future__ import annotations

from pathlib import Path

import pytest

from fluxmem_local.models.embedder import SentenceTransformerEmbedder
from fluxmem_local.models.llm import TransformersLLM


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
