from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fluxmem_local.errors import BlankTextError, DimensionError, InvalidInputError
from fluxmem_local.graph import EpisodicNode, SemanticNode
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.retrieval import Hit, verification
from fluxmem_local.testing import FailingLLM, HashEmbedder, ScriptedLLM
from fluxmem_local.types import FloatArray, Layer, NodeState, Scope

from .conftest import Shelf


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.node.id for hit in hits]


class NoiseEmbedder(BaseEmbedder):
    """Gives another random vector at each call, as a broken model does."""

    dimension = 16

    def __init__(self) -> None:
        self._generator = np.random.default_rng(7)

    async def embed_text(self, text: str) -> FloatArray:
        return self._generator.normal(size=16).astype(np.float32)

    async def embed_batch(self, texts: Sequence[str]) -> FloatArray:
        return self._generator.normal(size=(len(texts), 16)).astype(np.float32)


class RaisingLLM(ScriptedLLM):
    """Fails with an error that is none of this package's, as a user's backend does."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def verify(self, claim: str, evidence: str) -> float:
        raise self._error

    async def verify_batch(self, claims: Sequence[str], evidences: Sequence[str]) -> FloatArray:
        raise self._error


async def test_the_newest_of_four_facts_is_found_at_k_1(shelf: Shelf) -> None:
    """Spec section 10: after four single adds the newest fact was not found at k=1."""
    facts = {
        "a": "the harbour opens at dawn",
        "b": "bread needs flour and yeast",
        "c": "violins have four strings",
        "d": "the comet returns in 2061",
    }
    for id, content in facts.items():
        await shelf.facts(**{id: content})
        assert ids(await shelf.retriever().retrieve(content, top_k=1)) == [id]


async def test_bm25_brings_what_the_embedding_misses() -> None:
    """Spec section 10: BM25 only re-ordered dense hits."""
    shelf = Shelf(NoiseEmbedder())
    await shelf.facts(**{f"n{number:03}": f"note {number} on the weather" for number in range(100)})
    await shelf.facts(right="the spare key hangs behind the quetzal picture")
    hits = await shelf.retriever(dense_weight=0.1).retrieve("quetzal", top_k=1)
    assert ids(hits) == ["right"]
    assert hits[0].signals["bm25"] == 1.0
    shelf.store.close()


@pytest.mark.parametrize(
    ("query", "right"),
    [("首都", "zh"), ("東京", "ja"), ("القاهرة", "ar"), ("Москва", "ru"), ("กรุงเทพ", "th")],
)
async def test_words_of_many_languages_are_found_without_embeddings(shelf: Shelf, query: str, right: str) -> None:
    """Report 4, and spec section 10: Chinese text was one BM25 token."""
    await shelf.facts(
        zh="北京是中国的首都，人口很多",
        ja="日本で一番大きい都市は東京です",
        ar="القاهرة مدينة كبيرة في مصر",
        ru="Москва стоит на реке",
        th="กรุงเทพเป็นเมืองหลวงของไทย",
    )
    assert ids(await shelf.retriever(dense_weight=0).retrieve(query, top_k=1)) == [right]


async def test_two_facts_rank_although_bm25_weighs_nothing(wordy_shelf: Shelf) -> None:
    """In a memory of two, BM25Okapi gives a word that one fact holds a weight of exactly zero."""
    await wordy_shelf.facts(a="violins have strings", b="the comet returns")
    assert ids(await wordy_shelf.retriever().retrieve("comet", top_k=2))[0] == "b"


async def test_words_that_all_facts_share_do_not_turn_the_order_round(wordy_shelf: Shelf) -> None:
    """Such words have a negative weight in BM25Okapi, so that the best match would score lowest."""
    await wordy_shelf.facts(a="the comet and the star and the moon", b="the comet, the star", c="the comet")
    hits = await wordy_shelf.retriever().retrieve("the comet, the star and the moon", top_k=3)
    assert ids(hits) == ["a", "b", "c"]


async def test_without_an_embedder_words_alone_rank(wordy_shelf: Shelf) -> None:
    await wordy_shelf.facts(a="violins have strings", b="the comet returns", c="bread needs yeast")
    hits = await wordy_shelf.retriever().retrieve("when does the comet return?")
    assert ids(hits)[0] == "b"
    assert set(hits[0].signals) == {"bm25", "context", "statement", "speaker"}


async def test_signals_and_score_by_hand(shelf: Shelf) -> None:
    await shelf.facts(a="red apples", b="green pears", c="blue plums")
    llm = ScriptedLLM({"verify": lambda claim, evidence: 0.8 if "apples" in evidence else 0.1})
    best = (await shelf.retriever(llm).retrieve("red apples", top_k=1))[0]
    assert best.node.id == "a"
    # Two words and their stems are 4 of the 40 tokens from which on a text is no scrap.
    expected = {"dense": 1.0, "bm25": 1.0, "context": 1.0, "llm": 1.0, "statement": 4 / 40, "speaker": 0.0}
    assert best.signals == pytest.approx(expected, abs=1e-6)
    # The best of what the model read, however sure it was.
    content = 1.0 * 1 + 0.5 * 1 + 0.5 * 1 + 0.3 * 1
    assert best.score == pytest.approx((content + 0.4 * 4 / 40) / 2.3, abs=1e-6)
    assert best.to_dict() == {
        "id": "a",
        "layer": "semantic",
        "content": "red apples",
        "source": "",
        "metadata": {},
        "added_by": "user",
        "trusted": True,
        "score": best.score,
        "signals": best.signals,
    }


async def test_what_says_the_same_twice_takes_one_place(shelf: Shelf) -> None:
    await shelf.facts(
        a="The comet returns in 2061.",
        b="the comet returns in 2061",
        c="The comet returns late.",
        d="Bread needs yeast.",
    )
    hits = await shelf.retriever().retrieve("the comet returns in 2061", top_k=4)
    assert ids(hits)[1] == "c"
    assert {ids(hits)[0], ids(hits)[3]} == {"a", "b"}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_verification_is_one_batch_over_the_best(shelf: Shelf) -> None:
    await shelf.facts(**{f"f{number}": f"apple number {number}" for number in range(30)})
    llm = ScriptedLLM({"verify": lambda claim, evidence: float(evidence == "apple number 7")})
    hits = await shelf.retriever(llm, candidate_factor=10, llm_weight=50).retrieve("apple 7", top_k=5)
    assert hits[0].node.id == "f7"
    assert len(hits) == 5
    batches = llm.calls_of("verify_batch")
    assert [len(batch.arguments["claims"]) for batch in batches] == [10]
    assert set(batches[0].arguments["claims"]) == {"apple 7"}


@pytest.mark.parametrize("settings", [{"llm_weight": 0}, {}])
async def test_verification_can_be_off(shelf: Shelf, settings: dict[str, Any]) -> None:
    await shelf.facts(a="red apples")
    llm = ScriptedLLM()
    await shelf.retriever(llm, **settings).retrieve("apples", verify=bool(settings))
    assert llm.calls == []


async def test_a_model_without_a_signal_is_not_asked(shelf: Shelf) -> None:
    await shelf.facts(a="red apples", b="green pears")
    llm = ScriptedLLM({"verify": lambda claim, evidence: float(evidence == "green pears")})
    llm.verifies_claims = False
    hits = await shelf.retriever(llm, llm_weight=50).retrieve("red apples")
    assert llm.calls == []
    assert hits[0].node.id == "a"
    assert "llm" not in hits[0].signals


@pytest.mark.parametrize(
    "llm",
    [
        FailingLLM(),
        RaisingLLM(TimeoutError("its server did not answer")),
        RaisingLLM(RuntimeError("device lost " * 10_000)),
        *[ScriptedLLM({"verify": lambda claim, evidence, said=said: said}) for said in (np.nan, 80, -0.8, "prose")],
    ],
)
async def test_a_broken_language_model_is_left_out(shelf: Shelf, llm: Any, caplog: pytest.LogCaptureFixture) -> None:
    await shelf.facts(a="red apples", b="green pears")
    with caplog.at_level(logging.WARNING):
        hits = await shelf.retriever(llm).retrieve("red apples")
    without = await shelf.retriever(None).retrieve("red apples")
    assert [(hit.node.id, hit.score) for hit in hits] == [(hit.node.id, hit.score) for hit in without]
    assert "llm" not in hits[0].signals
    assert "without the language model" in caplog.text
    assert len(caplog.text) < 1000


class HangingLLM(ScriptedLLM):
    """Never answers, as a server that is overrun."""

    async def verify(self, claim: str, evidence: str) -> float:
        await asyncio.Event().wait()
        return 0.0


async def test_a_language_model_that_hangs_is_left_out(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(verification, "LLM_TIMEOUT_S", 0.01)
    await shelf.facts(a="red apples", b="green pears")
    hits = await asyncio.wait_for(shelf.retriever(HangingLLM()).retrieve("red apples"), 10)
    without = await shelf.retriever(None).retrieve("red apples")
    assert [(hit.node.id, hit.score) for hit in hits] == [(hit.node.id, hit.score) for hit in without]
    assert "without the language model" in caplog.text


async def test_a_stale_id_does_not_shift_scores(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids and scores travel together: an id that is gone when it is looked up takes only its own score with it."""
    await shelf.facts(a="red apples", b="green pears", c="blue plums")
    before = {
        hit.node.id: hit.score for hit in await shelf.retriever(dense_weight=1, bm25_weight=0).retrieve("red apples")
    }
    search = shelf.store.nearest
    monkeypatch.setattr(shelf.store, "nearest", lambda *given, **options: [("gone", 1.0), *search(*given, **options)])
    hits = await shelf.retriever(dense_weight=1, bm25_weight=0).retrieve("red apples")
    assert {hit.node.id: hit.score for hit in hits} == before
    assert hits[0].node.id == "a"


async def test_what_is_forgotten_while_it_is_ranked_does_no_harm(shelf: Shelf) -> None:
    await shelf.facts(a="red apples", b="red pears", c="red plums")

    def forget(claim: str, evidence: str) -> float:
        shelf.store.forget(ids=["b"]) if evidence == "red apples" else None
        return 0.5

    hits = await shelf.retriever(ScriptedLLM({"verify": forget})).retrieve("red apples")
    assert hits[0].node.id == "a"
    assert ids(await shelf.retriever().retrieve("red apples")) == ["a", "c"]


async def test_scopes_and_filters_hold(shelf: Shelf) -> None:
    ada, ben = Scope(user="ada"), Scope(user="ben")
    await shelf.put(
        SemanticNode(id="ada", content="red apples for ada", scope=ada, metadata={"kind": "fruit"}),
        SemanticNode(id="ben", content="red apples for ben", scope=ben, metadata={"kind": "fruit"}),
        SemanticNode(id="all", content="red apples for all"),
    )
    retriever = shelf.retriever()
    assert set(ids(await retriever.retrieve("red apples", scope=ada))) == {"ada", "all"}
    assert set(ids(await retriever.retrieve("red apples"))) == {"ada", "ben", "all"}
    assert ids(await retriever.retrieve("red apples", scope=ada, filters={"kind": "fruit"})) == ["ada"]
    assert set(ids(await retriever.retrieve("red apples", exclude=["all"]))) == {"ada", "ben"}


async def test_demoted_nodes_are_never_returned(shelf: Shelf) -> None:
    await shelf.facts(a="red apples", b="red cherries")
    await shelf.episode("e", "pick red apples")
    shelf.outcome("e", helped=["a"])
    shelf.edit("expand", "e", "a")
    with shelf.store.transaction() as transaction:
        transaction.set_state(["a"], NodeState.DEMOTED)
    assert ids(await shelf.retriever().retrieve("pick red apples")) == ["b"]


async def test_trial_versions_are_visible_to_their_task_only(shelf: Shelf) -> None:
    await shelf.facts(a="red apples")
    await shelf.episode("run", "pick fruit", success=None)
    await shelf.put(
        SemanticNode(id="v", content="red apples, one by one", variant_of="a", state=NodeState.TRIAL), trial_of="run"
    )
    assert ids(await shelf.retriever().retrieve("red apples")) == ["a"]
    assert ids(await shelf.retriever().retrieve("red apples", trial_of="run")) == ["v"]


async def test_layers_are_merged_by_score(shelf: Shelf) -> None:
    await shelf.facts(f="bread needs yeast")
    await shelf.episode("e", "bake bread")
    await shelf.skill("s", "bake bread slowly")
    hits = await shelf.retriever().retrieve("bake bread", layers=("semantic", Layer.EPISODIC, "procedural"))
    assert ids(hits) == ["e", "s", "f"]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(await shelf.retriever().retrieve("bake bread", layers=tuple(Layer), top_k=2)) == 2


async def test_running_episodes_are_not_past_tasks(shelf: Shelf) -> None:
    await shelf.put(*[EpisodicNode(id=f"r{number}", task_description="bake bread") for number in range(40)])
    await shelf.episode("done", "bake the bread rolls", success=False)
    assert ids(await shelf.retriever().retrieve("bake bread", layers=["episodic"], top_k=3)) == ["done"]


@pytest.mark.parametrize("query", ["", "  \n", "\u200b"])
async def test_blank_queries_are_refused(shelf: Shelf, query: str) -> None:
    """Report 17: a blank query returned everything, or crashed."""
    llm = ScriptedLLM()
    with pytest.raises(BlankTextError):
        await shelf.retriever(llm).retrieve(query)
    assert llm.calls == []


@pytest.mark.parametrize(
    "wrong", [{"top_k": 0}, {"top_k": 2.5}, {"top_k": True}, {"layers": ["sematic"]}, {"layers": []}]
)
async def test_wrong_arguments_are_named(shelf: Shelf, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        await shelf.retriever().retrieve("apples", **wrong)


async def test_an_empty_memory_has_no_hits(shelf: Shelf) -> None:
    assert await shelf.retriever(ScriptedLLM()).retrieve("apples", layers=tuple(Layer)) == []


@pytest.mark.parametrize("vector", [np.ones(3), np.full(256, np.nan), "prose", [[1.0], [1.0, 2.0]]])
async def test_a_wrong_query_vector_is_refused(
    shelf: Shelf, vector: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def embed_text(self: HashEmbedder, text: str) -> FloatArray:
        return vector

    monkeypatch.setattr(HashEmbedder, "embed_text", embed_text)
    with pytest.raises(DimensionError):
        await shelf.retriever().retrieve("apples")


async def test_signs_in_a_query_do_no_harm(shelf: Shelf) -> None:
    await shelf.facts(a="path with / and \\ and |")
    for query in ("/", "a|b", "\\", '"', "*", "%", "'; DROP TABLE nodes", "(", "[x", "😀"):
        assert [hit.node.id for hit in await shelf.retriever().retrieve(f"path {query}")] == ["a"]


@pytest.mark.parametrize("query", ["half \udcff a pair", None, 5, ["list"]])
async def test_what_is_no_text_cannot_be_asked(shelf: Shelf, query: Any) -> None:
    with pytest.raises(InvalidInputError, match="the query"):
        await shelf.retriever().retrieve(query)


@pytest.mark.parametrize("layers", [None, 5])
async def test_layers_must_be_a_list(shelf: Shelf, layers: Any) -> None:
    with pytest.raises(InvalidInputError, match="layers="):
        await shelf.retriever().retrieve("tea", layers=layers)
