from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.errors import BlankTextError, DimensionError, InvalidInputError, NotFoundError
from fluxmem_local.graph import EpisodicNode, GroundEdge, Node, ProceduralNode, SemanticNode
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.memory_store import replaced_since
from fluxmem_local.testing import HashEmbedder, ScriptedLLM
from fluxmem_local.types import Layer, Scope


class Planned(BaseEmbedder):
    """Gives the vectors that a test plans."""

    def __init__(self, dimension: Any, row: Sequence[float]) -> None:
        self.dimension = dimension
        self.row = row

    async def embed_text(self, text: str) -> Any:
        return np.array(self.row)

    async def embed_batch(self, texts: Sequence[str]) -> Any:
        return np.array([self.row] * len(texts))


async def test_ids_come_in_the_order_of_the_chunks(agent: FluxMemAgent, llm: ScriptedLLM) -> None:
    text = "Alpha is first. Beta is second. Gamma is third."
    ids = await agent.add_knowledge(text, source="greek", chunk_size=16, metadata={"set": "letters"})
    nodes = agent.store.get_many(ids)
    assert [node.content for node in nodes] == ["Alpha is first.", "Beta is second.", "Gamma is third."]
    assert [(node.chunk_index, node.source) for node in nodes] == [(0, "greek"), (1, "greek"), (2, "greek")]
    assert nodes[0].metadata == {"set": "letters"}
    assert llm.calls == []


@pytest.mark.parametrize("text", ["", " \n\t", "​"])
async def test_blank_text_is_refused_without_a_call(agent: FluxMemAgent, llm: ScriptedLLM, text: str) -> None:
    with pytest.raises(BlankTextError):
        await agent.add_knowledge(text)
    with pytest.raises(ValueError, match="blank"):
        await agent.retrieve(text)
    assert await agent.add_knowledge_nodes([]) == []
    assert agent.stats["num_semantic_nodes"] == 0
    assert llm.calls == []


@pytest.mark.parametrize("chunk_size", [0, -1, 1.5, True])
async def test_chunk_size_under_one_is_refused(agent: FluxMemAgent, chunk_size: Any) -> None:
    with pytest.raises(InvalidInputError, match="chunk_size"):
        await agent.add_knowledge("something", chunk_size=chunk_size)
    assert agent.stats["num_semantic_nodes"] == 0


async def test_the_same_text_twice_is_one_node_with_count_two(agent: FluxMemAgent) -> None:
    first = await agent.add_knowledge("The lease ends in May.")
    second = await agent.add_knowledge("The lease ends in May.")
    assert first == second
    node = agent.get(first[0])
    assert isinstance(node, SemanticNode)
    assert node.count == 2
    # User report 6: the second adding must not delete the first.
    assert [entry.action for entry in agent.history(first[0])] == ["added"]
    other = await agent.add_knowledge("The lease ends in May.", scope={"user": "ada"})
    assert other != first


class Noise(BaseEmbedder):
    dimension = 8

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    async def embed_text(self, text: str) -> Any:
        return self._random.normal(size=8)

    async def embed_batch(self, texts: Sequence[str]) -> Any:
        return self._random.normal(size=(len(texts), 8))


async def test_equal_names_are_one_node_whatever_their_vectors() -> None:
    with FluxMemAgent(None, Noise()) as agent:
        ids = [await agent.add_knowledge(text) for text in ("DGIÁ", "DGIÁ", "dgiá", "DGIÁ")]
        assert len({id for (id,) in ids}) == 1
        node = agent.get(ids[0][0])
        assert isinstance(node, SemanticNode)
        assert node.count == 4
        assert np.linalg.norm(node.embedding) == pytest.approx(1, abs=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dimension", "row"),
    [
        (4, [1.0, 0.0]),
        (2, [1.0, float("nan")]),
        (2, [float("inf"), 0.0]),
        (2, [0.0, 0.0]),
        (1, [[1.0]]),
    ],
)
async def test_wrong_vectors_store_nothing(dimension: int, row: list[float]) -> None:
    with FluxMemAgent(None, Planned(dimension, row)) as agent:
        with pytest.raises(DimensionError):
            await agent.add_knowledge("some fact")
        assert agent.stats["num_semantic_nodes"] == 0
        assert agent.verify().ok


@pytest.mark.parametrize("dimension", [0, -3, None, "64", True])
def test_a_dimension_that_is_none_is_refused(dimension: Any) -> None:
    with pytest.raises(DimensionError, match="dimension"):
        FluxMemAgent(None, Planned(dimension, [1.0]))


async def test_text_that_is_no_text_is_refused(agent: FluxMemAgent) -> None:
    for wrong in (None, b"bytes", 7, "half \ud800 pair"):
        with pytest.raises(InvalidInputError):
            await agent.add_knowledge(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        await agent.add_knowledge("fine", metadata={"bad": object()})
    assert agent.stats["num_semantic_nodes"] == 0


async def test_nodes_of_all_layers_keep_their_ids(agent: FluxMemAgent) -> None:
    ids = await agent.add_knowledge_nodes(
        [
            SemanticNode(id="fact", content="Paris is in France."),
            EpisodicNode(id="episode", task_description="find Paris", success=True),
            ProceduralNode(id="skill", skill_text="Look at a map."),
        ]
    )
    assert ids == ["fact", "episode", "skill"]
    assert [agent.get(id).layer for id in ids] == [Layer.SEMANTIC, Layer.EPISODIC, Layer.PROCEDURAL]
    with pytest.raises(InvalidInputError, match="no node"):
        await agent.add_knowledge_nodes([SemanticNode(content="new"), "text"])  # type: ignore[list-item]
    with pytest.raises(BlankTextError):
        await agent.add_knowledge_nodes([SemanticNode(content="new"), SemanticNode(content=" ")])
    with pytest.raises(InvalidInputError, match="taken"):
        await agent.add_knowledge_nodes([SemanticNode(content="new"), SemanticNode(id="fact", content="Other.")])
    assert agent.stats["num_semantic_nodes"] == 1


async def test_a_node_may_bring_its_vector(agent: FluxMemAgent) -> None:
    vector = np.zeros(64, np.float32)
    vector[3] = 2.0
    await agent.add_knowledge_nodes([SemanticNode(id="fact", content="Paris", embedding=vector)])
    stored = agent.get("fact").embedding
    assert stored is not None
    assert stored[3] == 1.0
    with pytest.raises(DimensionError):
        await agent.add_knowledge_nodes([SemanticNode(content="Rome", embedding=np.ones(3, np.float32))])


async def test_update_keeps_metadata_and_finds_only_the_new_text(agent: FluxMemAgent) -> None:
    (id,) = await agent.add_knowledge("The lease ends in May.", metadata={"k": "v"})
    await agent.add_knowledge("Pigeons eat bread.")
    node = await agent.update(id, "Rent is due monthly.")
    assert (node.id, node.content, node.metadata) == (id, "Rent is due monthly.", {"k": "v"})
    hits = await agent.retrieve("rent is due monthly", filters={"k": "v"})
    assert [hit.node.id for hit in hits] == [id]
    assert hits[0].signals["dense"] == pytest.approx(1, abs=1e-5)
    (old, *_) = await agent.retrieve("lease May", top_k=1)
    assert old.signals["bm25"] == 0
    entries = agent.history(id)
    assert [(entry.action, entry.content) for entry in entries] == [
        ("added", "The lease ends in May."),
        ("updated", "Rent is due monthly."),
    ]
    with pytest.raises(BlankTextError):
        await agent.update(id, " ")
    with pytest.raises(NotFoundError):
        await agent.update("nobody", "text")
    assert agent.get(id).content == "Rent is due monthly."


async def test_update_of_a_skill_makes_a_version(agent: FluxMemAgent) -> None:
    await agent.add_knowledge_nodes([ProceduralNode(id="skill", skill_text="Sort.", pems_score=0.2)])
    skill = await agent.update("skill", "Sort by date.")
    assert isinstance(skill, ProceduralNode)
    assert (skill.skill_text, skill.version, skill.pems_score) == ("Sort by date.", 2, None)
    assert [(past.version, past.skill_text, past.pems_score) for past in skill.version_history] == [(1, "Sort.", 0.2)]


async def test_forget_leaves_nothing_dangling(agent: FluxMemAgent) -> None:
    (fact,) = await agent.add_knowledge("The lease ends in May.", source="deed")
    await agent.add_knowledge_nodes(
        [EpisodicNode(id=f"e{number}", task_description=f"task {number}", success=True) for number in range(2)]
    )
    with agent.store.transaction() as change:
        change.add_edges([GroundEdge(source_id=fact, target_id=f"e{number}") for number in range(2)])
    planned = await agent.forget(fact, dry_run=True)
    assert (planned.removed, planned.num_edges) == ((fact,), 2)
    assert agent.get(fact).content == "The lease ends in May."
    receipt = await agent.forget([fact])
    assert (receipt.removed, receipt.num_edges) == ((fact,), 2)
    assert agent.verify().problems == ()
    assert agent.stats["num_ground_edges"] == 0
    assert await agent.retrieve("lease May") == []


async def test_forget_by_source_and_scope(agent: FluxMemAgent) -> None:
    await agent.add_knowledge("one", source="a")
    await agent.add_knowledge("two", source="b", scope=Scope(user="ada"))
    with pytest.raises(InvalidInputError):
        await agent.forget()
    with pytest.raises(InvalidInputError):
        await agent.forget("x", source="a")
    with pytest.raises(NotFoundError):
        await agent.forget(source="c")
    with pytest.raises(NotFoundError):
        await agent.forget(scope={"user": "ben"})
    with pytest.raises(InvalidInputError, match="unknown scope part"):
        await agent.forget(scope={"team": "x"})
    assert len((await agent.forget(source="a")).removed) == 1
    assert len((await agent.forget(scope={"user": "ada"})).removed) == 1
    assert agent.stats["num_semantic_nodes"] == 0


def _facts(*contents: str) -> list[SemanticNode]:
    return [SemanticNode(content=content, source="notes", chunk_index=i) for i, content in enumerate(contents)]


async def test_ingest_is_idempotent_and_follows_the_source(agent: FluxMemAgent) -> None:
    first = await agent.ingest("notes", _facts("Berlin is the seat.", "Rent is 900."), "digest-1")
    assert (first.num_new, len(first.ids), first.unchanged) == (2, 2, False)
    again = await agent.ingest("notes", _facts("Berlin is the seat.", "Rent is 900."), "digest-1")
    assert again.unchanged
    changed = await agent.ingest("notes", _facts("Paris is the seat.", "Rent is 900."), "digest-2")
    assert changed.num_new == 1
    assert changed.removed == (first.ids[0],)
    assert changed.ids[1] == first.ids[1]
    kept = agent.get(first.ids[1])
    assert isinstance(kept, SemanticNode)
    assert kept.count == 1
    assert [hit.node.content for hit in await agent.retrieve("seat", top_k=1)] == ["Paris is the seat."]
    assert agent.verify().problems == ()


async def test_ingest_keeps_a_fact_that_another_source_states(agent: FluxMemAgent) -> None:
    first = await agent.ingest("notes", _facts("Berlin is the seat."), "digest-1")
    await agent.add_knowledge("Berlin is the seat.", source="deed")
    changed = await agent.ingest("notes", _facts("Paris is the seat."), "digest-2")
    assert changed.removed == ()
    assert agent.get(first.ids[0]).content == "Berlin is the seat."


async def test_a_nameless_fact_told_again_has_the_later_values_and_the_same_past(agent: FluxMemAgent) -> None:
    (id,) = await agent.add_knowledge("Rent is 900.", metadata={"team": "ops", "tags": ("a", "b")})
    before = time.time()
    assert await agent.add_knowledge("Rent is 900.", metadata={"tags": ["a", "b"]}) == [id]
    assert len(agent.history(id)) == 1
    assert await agent.add_knowledge("Rent is 900.", metadata={"team": "law", "by": "ada"}) == [id]
    assert agent.get(id).metadata == {"team": "law", "tags": ["a", "b"], "by": "ada"}
    assert [(entry.reason, entry.metadata["team"]) for entry in agent.history(id)] == [
        ("", "ops"),
        ("new metadata: team, by", "law"),
    ]
    await agent.update(id, "Rent is 950.")
    await agent.add_knowledge("Rent is 950.", metadata={"by": "bo"})
    await agent.update(id, "Rent is 900.")
    assert [entry.action for entry in agent.history(id)] == ["added", *["updated"] * 3, "reverted"]
    assert replaced_since(agent.store, before) == {}


async def test_ingest_reports_progress(agent: FluxMemAgent) -> None:
    done: list[int] = []
    facts = [SemanticNode(content=f"fact number {number}", source="big") for number in range(600)]
    report = await agent.ingest("big", facts, "d", on_progress=done.append)
    assert (sum(done), len(done) > 1, report.num_new) == (600, True, 600)


async def test_a_big_text_is_embedded_in_bounded_batches() -> None:
    sizes: list[int] = []

    class Counting(HashEmbedder):
        async def embed_batch(self, texts: Sequence[str]) -> Any:
            sizes.append(len(texts))
            return await super().embed_batch(texts)

    with FluxMemAgent(None, Counting(8)) as agent:
        ids = await agent.add_knowledge("\n\n".join(f"Entry {n}." for n in range(1500)), chunk_size=12)
        assert len(ids) == 1500
    assert sizes == [1024, 476]


class Vocabulary(BaseEmbedder):
    """Counts the words it knows; of others it makes zeros."""

    dimension = 2

    async def embed_text(self, text: str) -> Any:
        return [text.count("lease"), text.count("rent")]

    async def embed_batch(self, texts: Sequence[str]) -> Any:
        return [await self.embed_text(text) for text in texts]


async def test_a_question_that_the_embedder_knows_no_word_of_is_searched_by_words() -> None:
    with FluxMemAgent(None, Vocabulary()) as agent:
        await agent.add_knowledge("The lease is with Anna.")
        await agent.add_knowledge("The rent is due.")
        hits = await agent.retrieve("Anna", top_k=1)
        assert [hit.node.content for hit in hits] == ["The lease is with Anna."]
        with pytest.raises(DimensionError, match="length zero"):
            await agent.add_knowledge("Pigeons eat bread.")
        assert agent.stats["num_semantic_nodes"] == 2


@pytest.mark.parametrize(
    ("node", "what"),
    [
        (SemanticNode(content="x", state="lost"), "state"),  # type: ignore[arg-type]
        (SemanticNode(content="x", scope="ada"), "scope"),  # type: ignore[arg-type]
        (SemanticNode(content="x", metadata=["a"]), "metadata"),  # type: ignore[arg-type]
        (EpisodicNode(task_description="x", status="lost"), "status"),
        (EpisodicNode(task_description="x", feedback=None), "feedback"),  # type: ignore[arg-type]
        (ProceduralNode(skill_text="x", pems_score=float("nan")), "pems_score"),
    ],
)
async def test_a_node_that_could_not_be_read_back_is_refused(agent: FluxMemAgent, node: Node, what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        await agent.add_knowledge_nodes([node])
    assert agent.store.select() == []
    assert agent.verify().ok


async def test_arguments_of_another_type_are_refused_by_name(agent: FluxMemAgent) -> None:
    with pytest.raises(InvalidInputError, match="metadata"):
        await agent.add_knowledge("something", metadata=["a"])  # type: ignore[arg-type]
    for scope in ("ada", ["user"], 5):
        with pytest.raises(InvalidInputError, match="scope"):
            await agent.add_knowledge("something", scope=scope)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="replay_fn"):
        await agent.consolidate(replay_fn="always")  # type: ignore[arg-type]
    half = "\ud800"
    with pytest.raises(InvalidInputError, match="half a surrogate pair"):
        await agent.retrieve("something", filters={"team": half})
    with pytest.raises(InvalidInputError, match="half a surrogate pair"):
        await agent.forget(source=half)
    with pytest.raises(InvalidInputError, match="half a surrogate pair"):
        agent.history(half)
    assert agent.stats["num_semantic_nodes"] == 0
