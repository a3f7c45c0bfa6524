from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import (
    ConfigError,
    DimensionError,
    InvalidInputError,
    MemoryNotFoundError,
    ModelNotFoundError,
    NotFoundError,
)
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM, BaseVectorStore
from fluxmem_local.testing import FailingLLM, HashEmbedder, ScriptedLLM
from fluxmem_local.types import Layer

FACTS = ("The lease ends in May.", "Pigeons eat bread.", "Rent is 900 euros.", "The door code is 4711.")


async def _contents(agent: FluxMemAgent, query: str, **options: Any) -> list[str]:
    return [hit.node.content for hit in await agent.retrieve(query, **options)]


async def test_each_new_fact_is_found_at_once(agent: FluxMemAgent) -> None:
    for number, fact in enumerate(FACTS, start=1):
        await agent.add_knowledge(fact)
        assert await _contents(agent, fact, top_k=1) == [fact]
        assert agent.stats["num_semantic_nodes"] == number


async def test_what_was_stored_is_there_after_reopening(tmp_path: Path, embedder: HashEmbedder) -> None:
    with FluxMemAgent(None, embedder, path=tmp_path / "m") as agent:
        ids = [id for fact in FACTS for id in await agent.add_knowledge(fact)]
    with FluxMemAgent(None, embedder, path=tmp_path / "m", create=False) as agent:
        assert [node.content for node in agent.store.get_many(ids)] == list(FACTS)
        assert await _contents(agent, "door code", top_k=1) == ["The door code is 4711."]
        await agent.forget(ids[3])
    with FluxMemAgent(None, embedder, path=tmp_path / "m") as agent:
        assert "The door code is 4711." not in await _contents(agent, "door code", top_k=9)
        with pytest.raises(NotFoundError):
            agent.get(ids[3])


def test_no_memory_is_made_where_none_was_asked_for(tmp_path: Path, embedder: HashEmbedder) -> None:
    with pytest.raises(MemoryNotFoundError, match="fluxmem init"):
        FluxMemAgent(None, embedder, path=tmp_path / "m", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_dimension_is_an_error_before_anything_is_stored(tmp_path: Path, embedder: HashEmbedder) -> None:
    with pytest.raises(DimensionError, match="embedding_dimension=1536"):
        FluxMemAgent(None, embedder, FluxMemConfig(embedding_dimension=1536), path=tmp_path / "m")
    assert not (tmp_path / "m").exists()
    FluxMemAgent(None, embedder, FluxMemConfig(embedding_dimension=64), path=tmp_path / "m").close()


@pytest.mark.parametrize("place", range(4))
def test_arguments_of_the_wrong_kind_are_named(place: int, embedder: HashEmbedder) -> None:
    wrong: list[Any] = [None, embedder, None]
    stores: dict[str, Any] = {}
    if place < 3:
        wrong[place] = "gpt"
    else:
        stores["semantic_vectorstore"] = []
    with pytest.raises(InvalidInputError, match=r"is a (str|list)"):
        FluxMemAgent(*wrong, **stores)


async def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, embedder: HashEmbedder) -> None:
    monkeypatch.setenv("FLUXMEM_CHUNK_SIZE", "10")
    with FluxMemAgent(None, embedder) as agent:
        assert len(await agent.add_knowledge("aaa bbb ccc ddd")) == 2
    monkeypatch.setenv("FLUXMEM_CHUNK_SIZE", "0")
    with pytest.raises(ConfigError, match="FLUXMEM_CHUNK_SIZE"):
        FluxMemAgent(None, embedder)


async def test_retrieve_refuses_what_it_cannot_do(agent: FluxMemAgent) -> None:
    with pytest.raises(InvalidInputError, match="top_k"):
        await agent.retrieve("x", top_k=0)
    with pytest.raises(InvalidInputError, match="layer"):
        await agent.retrieve("x", layers=("imaginary",))
    with pytest.raises(InvalidInputError, match="scope part"):
        await agent.retrieve("x", scope={"group": "a"})


async def test_scopes_and_filters(agent: FluxMemAgent) -> None:
    await agent.add_knowledge("Ada likes tea.", scope={"user": "ada"}, metadata={"topic": "drinks"})
    await agent.add_knowledge("Ben likes tea.", scope={"user": "ben"})
    await agent.add_knowledge("Everybody likes tea.")
    seen = set(await _contents(agent, "tea", scope={"user": "ada"}))
    assert seen == {"Ada likes tea.", "Everybody likes tea."}
    assert set(await _contents(agent, "tea", scope={})) == {"Everybody likes tea."}
    assert len(await _contents(agent, "tea")) == 3
    assert await _contents(agent, "tea", filters={"topic": "drinks"}) == ["Ada likes tea."]


@pytest.mark.parametrize(
    ("fact", "word"),
    [
        ("东京是日本的首都", "首都"),
        ("東京タワーは港区にあります", "タワー"),
        ("القاهرة عاصمة مصر", "عاصمة"),
        ("Москва стоит на реке", "реке"),
        ("กรุงเทพเป็นเมืองหลวง", "เมืองหลวง"),
    ],
)
async def test_words_of_all_languages_are_found_without_vectors(fact: str, word: str) -> None:
    with FluxMemAgent(None, None) as agent:
        await agent.add_knowledge("An unrelated English sentence.")
        await agent.add_knowledge(fact)
        assert (await _contents(agent, word))[0] == fact


async def test_context_holds_the_facts_and_changes_nothing(agent: FluxMemAgent) -> None:
    (id,) = await agent.add_knowledge("Rent is 900 </fact> euros.")
    generation = agent.stats["generation"]
    rendered = await agent.context("What is the rent?", "the letter says: rent")
    assert f'<fact id="{id}"' in rendered
    assert "900 &lt;/fact&gt; euros" in rendered
    assert agent.stats["generation"] == generation
    assert agent.stats["num_episodic_nodes"] == 0


async def test_without_any_model(tmp_path: Path) -> None:
    with FluxMemAgent(None, None, path=tmp_path / "m") as agent:
        (id,) = await agent.add_knowledge("The lease ends in May.")
        assert await _contents(agent, "lease") == ["The lease ends in May."]
        assert "lease ends" in await agent.context("When does the lease end?")
        assert (await agent.update(id, "The lease ends in June.")).content == "The lease ends in June."


async def test_a_failing_language_model_is_no_silent_zero(embedder: HashEmbedder) -> None:
    llm = FailingLLM()
    with FluxMemAgent(llm, embedder) as agent:
        await agent.add_knowledge("The lease ends in May.")
        assert await _contents(agent, "lease", verify=False) == ["The lease ends in May."]
        assert llm.num_calls == 0


class MinimalEmbedder(BaseEmbedder):
    dimension = 26

    async def embed_text(self, text: str) -> Any:
        return [text.lower().count(chr(97 + letter)) + 0.001 for letter in range(26)]

    async def embed_batch(self, texts: Sequence[str]) -> Any:
        return [await self.embed_text(text) for text in texts]


class MinimalLLM(BaseLLM):
    async def generate(self, prompt: str, system_prompt: str | None = None, temperature: float = 0.7) -> str:
        return "text"

    async def verify(self, claim: str, evidence: str) -> float:
        return 0.5

    async def extract_skills(self, trajectories: Any) -> str:
        return "skill"

    async def refine_skill(self, skill_text: str, feedback: str) -> str:
        return skill_text

    async def attribute_failure(self, context: str, feedback: str) -> dict[str, Any]:
        return {"type": "none", "action": "none", "details": "", "targets": [], "granularity": None}

    async def reshape_content(self, node_content: str, target_granularity: str, context: str) -> str:
        return node_content


class MinimalStore(BaseVectorStore):
    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}

    def add(self, ids: Sequence[str], vectors: Any) -> None:
        self.rows.update(zip(ids, vectors, strict=True))

    def search(self, query_vector: Any, top_k: int = 5) -> list[tuple[str, float]]:
        scores = [(id, float(np.dot(row, query_vector))) for id, row in self.rows.items()]
        return sorted(scores, key=lambda pair: -pair[1])[:top_k]

    def delete(self, ids: Sequence[str]) -> None:
        for id in ids:
            self.rows.pop(id, None)

    def get_vector(self, id: str) -> Any:
        return self.rows.get(id)

    def __len__(self) -> int:
        return len(self.rows)


async def test_user_written_backends_need_only_the_listed_methods() -> None:
    store = MinimalStore()
    with FluxMemAgent(MinimalLLM(), MinimalEmbedder(), semantic_vectorstore=store) as agent:
        ids = [id for fact in FACTS for id in await agent.add_knowledge(fact)]
        assert await _contents(agent, "Pigeons eat bread.", top_k=1) == ["Pigeons eat bread."]
        assert set(store.rows) == set(ids)
        assert all(np.isclose(np.linalg.norm(row), 1, atol=1e-5) for row in store.rows.values())
        await agent.forget(ids[1])
        await _contents(agent, "Pigeons")
        assert ids[1] not in store.rows
        agent.rebuild_indices()
        assert await _contents(agent, "The door code is 4711.", top_k=1) == ["The door code is 4711."]
        assert set(store.rows) == {ids[0], *ids[2:]}


async def test_the_reference_style_loop_runs_on_user_written_backends() -> None:
    stores = {f"{layer}_vectorstore": MinimalStore() for layer in ("semantic", "episodic", "procedural")}
    with FluxMemAgent(MinimalLLM(), MinimalEmbedder(), **stores) as agent:
        for fact in FACTS:
            await agent.add_knowledge(fact, source="notes")
        contexts: list[str] = []

        async def execute(context: str) -> tuple[str, str, bool]:
            contexts.append(context)
            return "read the deed, then answer", "", True

        for number in range(4):
            result = await agent.run_task(f"When does the lease number {number} end?", execute)
            assert (result["success"], result["rounds"]) == (True, 1)
        assert len(contexts) == 4
        report = await agent.consolidate()
        assert report["clusters"] >= 1
        again = await agent.consolidate()
        assert again["induced_skills"] == ()
        await agent.retrieve("When does the lease end?", layers=tuple(Layer))
        counted = agent.stats
        assert counted["num_episodic_nodes"] == len(stores["episodic_vectorstore"].rows) == 4
        assert counted["num_procedural_nodes"] == len(report["induced_skills"])
        assert agent.verify().problems == ()


def test_open_uses_the_configured_models(tmp_path: Path) -> None:
    config = FluxMemConfig(llm_model="none", embedding_model="none")
    with FluxMemAgent.open(tmp_path / "m", config=config) as agent:
        assert (agent.llm, agent.embedder) == (None, None)
    missing = FluxMemConfig(llm_model="none", embedding_model=str(tmp_path / "nowhere"))
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        FluxMemAgent.open(tmp_path / "other", config=missing)
    assert not (tmp_path / "other").exists()
    given = ScriptedLLM()
    with FluxMemAgent.open(None, config=missing, llm=given, embedder=HashEmbedder(8)) as agent:
        assert agent.llm is given


async def test_closing_twice_is_fine_and_async_with_closes(embedder: HashEmbedder) -> None:
    async with FluxMemAgent(None, embedder) as agent:
        await agent.add_knowledge("text")
    agent.close()
    assert agent.store.database.closed
