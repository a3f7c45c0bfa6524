"""An agent that is closed leaves none of its models' threads; models that it was given go on."""

from __future__ import annotations

import threading

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.models.embedder import SentenceTransformerEmbedder
from fluxmem_local.models.llm import TransformersLLM

CONFIG = FluxMemConfig(llm_model="tiny-llm", embedding_model="tiny-embedder", device="cpu")


def _model_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    return {thread for thread in set(threading.enumerate()) - before if thread.name.startswith("fluxmem-")}


async def _use(agent: FluxMemAgent) -> None:
    await agent.add_knowledge("The valve closes at noon.")
    assert agent.llm is not None
    await agent.llm.generate("When?", temperature=0.0)


async def test_a_closed_agent_leaves_no_thread_of_the_models_it_made() -> None:
    before = set(threading.enumerate())
    agents = []
    for _ in range(3):
        agent = FluxMemAgent.open(None, config=CONFIG)
        await _use(agent)
        threads = _model_threads(before)
        assert sorted(thread.name for thread in threads) == ["fluxmem-embedder_0", "fluxmem-llm_0"]
        agent.close()
        agent.close()
        for thread in threads:
            thread.join(10)
        # Kept, so that it is the closing that ends them and not the garbage collection.
        agents.append(agent)
    assert _model_threads(before) == set()


async def test_models_that_were_given_go_on_after_the_agent_is_closed() -> None:
    before = set(threading.enumerate())
    llm, embedder = TransformersLLM("tiny-llm", device="cpu"), SentenceTransformerEmbedder("tiny-embedder")
    async with FluxMemAgent.open(None, config=CONFIG, llm=llm, embedder=embedder) as agent:
        await _use(agent)
    threads = _model_threads(before)
    assert len(threads) == 2
    assert (await embedder.embed_text("valve")).shape == (embedder.dimension,)
    assert _model_threads(before) == threads
    llm.close()
    embedder.close()
    for thread in threads:
        thread.join(10)
    assert _model_threads(before) == set()
    # A model that was closed starts anew when it is asked again.
    assert (await embedder.embed_text("pump")).shape == (embedder.dimension,)
    embedder.close()
