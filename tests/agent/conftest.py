from __future__ import annotations

from collections.abc import Iterator

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.testing import HashEmbedder, ScriptedLLM


@pytest.fixture
def agent(embedder: HashEmbedder, llm: ScriptedLLM) -> Iterator[FluxMemAgent]:
    with FluxMemAgent(llm, embedder) as opened:
        yield opened
