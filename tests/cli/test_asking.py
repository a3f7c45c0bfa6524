from __future__ import annotations

import pytest

from fluxmem_local.agent import agent as agent_module
from fluxmem_local.testing import ScriptedLLM

from .conftest import Fluxmem

FACTS = "The lease of the office ends in May 2031.\n\nPigeons eat bread.\n\nThe rent is 900 euros.\n"


@pytest.fixture
def filled(fluxmem: Fluxmem) -> Fluxmem:
    fluxmem("add", "-", "--chunk-size", "45", stdin=FACTS)
    fluxmem("add", "-", "--user", "ada", "--metadata", '{"n": 7, "team": "ops"}', stdin="Ada likes tea.")
    return fluxmem


def test_search_finds_without_asking_the_language_model(filled: Fluxmem) -> None:
    hits = filled.data("search", "when does the lease end", "-k", "1")
    assert [hit["content"] for hit in hits] == ["The lease of the office ends in May 2031."]
    assert "llm" not in hits[0]["signals"]
    assert filled.llm is not None
    assert filled.llm.calls == []
    row = filled("search", "lease", "-k", "1", "--explain").stdout.rstrip("\n").split("\t")
    assert row[1:4] == [hits[0]["id"], "semantic", "The lease of the office ends in May 2031."]
    assert "bm25 1.000" in row[4]


def test_search_can_verify_filter_and_read_stdin(filled: Fluxmem) -> None:
    (hit,) = filled.data("search", "-", "--verify", "--filter", "n=7", "--filter", "team=ops", stdin="tea")
    # The only one that the model read is no better supported than others.
    assert (hit["content"], hit["signals"]["llm"]) == ("Ada likes tea.", 0.0)
    assert filled.data("search", "tea", "--filter", 'n="7"') == []
    assert "nothing found" in filled("search", "tea", "--filter", "n=8").stderr
    seen = {hit["content"] for hit in filled.data("search", "tea", "-k", "9", "--user", "ben")}
    assert "Ada likes tea." not in seen
    assert filled.data("search", "tea", "--layer", "episodic", "--layer", "procedural") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("  ",), "blank"),
        (("x", "-k", "0"), "top_k=0"),
        (("x", "--filter", "n"), "KEY=VALUE"),
        (("x", "--layer", "imaginary"), "imaginary"),
        (("x", "--unknown"), "--unknown"),
    ],
)
def test_bad_searches(filled: Fluxmem, arguments: tuple[str, ...], message: str) -> None:
    assert message in filled("search", *arguments, code=2).stderr


def test_search_needs_a_memory(fluxmem: Fluxmem) -> None:
    assert "fluxmem init" in fluxmem("search", "x", code=2).stderr
    assert not fluxmem.memory.exists()


def test_context_is_printed(filled: Fluxmem) -> None:
    printed = filled("context", "When does the lease end?", "--observation", "a letter").stdout
    assert printed.startswith("<context>")
    assert "ends in May 2031" in printed
    assert "<observation>a letter</observation>" in printed
    data = filled.data("context", "-", stdin="When does the lease end?")
    assert data["task"] == "When does the lease end?"
    assert filled.data("stats")["num_episodic_nodes"] == 0


def test_ask_answers_and_cites(filled: Fluxmem) -> None:
    filled.llm = ScriptedLLM({"generate": lambda **_: "It ends in May 2031.", "verify": lambda **_: 0.9})
    answer = filled.data("ask", "When does the lease of the office end?")
    assert (answer["text"], answer["supported"], answer["rounds"]) == ("It ends in May 2031.", True, 1)
    assert answer["facts"][0]["content"] == "The lease of the office ends in May 2031."
    assert [fact["id"] for fact in answer["facts"]] == answer["citations"]
    result = filled("ask", "-", stdin="When does the lease of the office end?")
    assert result.stdout.startswith("It ends in May 2031.\n")
    assert "1 try, 0 repairs" in result.stderr


def test_ask_says_when_the_memory_does_not(filled: Fluxmem) -> None:
    filled.llm = ScriptedLLM({"generate": lambda **_: "Napoleon signed it in 1803."})
    answer = filled.data("ask", "Who signed the lease of the office?")
    assert (answer["text"], answer["supported"], answer["citations"]) == ("The memory does not say.", False, [])
    episode = filled.data("show", answer["episode_id"])
    assert "failed" in str(episode)
    assert "1803" not in filled("ask", "Who signed the lease of the office?").stdout


def test_ask_gives_the_fact_where_the_model_says_something_else(filled: Fluxmem) -> None:
    filled.llm = ScriptedLLM({"generate": lambda **_: "Napoleon sold it to Alaska in 1803."})
    answer = filled.data("ask", "When does the lease of the office end?")
    assert (answer["text"], answer["supported"]) == ("The lease of the office ends in May 2031.", True)
    assert [fact["content"] for fact in answer["facts"]] == ["The lease of the office ends in May 2031."]


def test_a_model_that_is_switched_off_where_one_is_needed_is_bad_usage(
    filled: Fluxmem, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.llm = None
    assert "set llm_model" in filled("ask", "When does the lease end?", code=2).stderr
    monkeypatch.setattr(agent_module, "build_embedder", lambda config: None)
    assert "set embedding_model" in filled("reindex", code=2).stderr
    assert filled.data("stats")["num_episodic_nodes"] == 0


def test_what_has_no_vector_yet_is_told_until_reindex(fluxmem: Fluxmem, monkeypatch: pytest.MonkeyPatch) -> None:
    build = agent_module.build_embedder
    monkeypatch.setattr(agent_module, "build_embedder", lambda config: None)
    fluxmem("add", "-", stdin="The lease ends in May.")
    assert fluxmem("search", "lease").stderr == ""
    monkeypatch.setattr(agent_module, "build_embedder", build)
    for verb in ("search", "context"):
        told = fluxmem(verb, "lease").stderr
        assert told == "1 memory has no vector yet, found by words only: fluxmem reindex\n"
    fluxmem("reindex")
    assert fluxmem("search", "lease").stderr == ""
