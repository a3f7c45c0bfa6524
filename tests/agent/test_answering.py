from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.agent.answering import _SYSTEM_PROMPT, NOT_SAID, _own_answer
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import BlankTextError, ModelError
from fluxmem_local.graph import EpisodicNode
from fluxmem_local.testing import HashEmbedder, ScriptedLLM
from fluxmem_local.types import Layer, NodeState

FACTS = (
    "The lease of the office ends in May 2031.",
    "Pigeons eat bread in the park.",
    "The rent of the office is 900 euros.",
)
QUESTION = "When does the lease of the office end?"


async def _agent(llm: ScriptedLLM | None, *, rounds: int = 2) -> tuple[FluxMemAgent, list[str]]:
    agent = FluxMemAgent(llm, HashEmbedder(64), FluxMemConfig(max_refinement_rounds=rounds))
    return agent, [id for fact in FACTS for id in await agent.add_knowledge(fact)]


async def test_a_supported_answer_cites_the_fact_it_used() -> None:
    llm = ScriptedLLM({"generate": ["It ends in May 2031."], "verify": lambda **_: 0.9})
    agent, ids = await _agent(llm)
    with agent:
        answer = await agent.ask(QUESTION)
        assert (answer.text, answer.supported, answer.rounds) == ("It ends in May 2031.", True, 1)
        assert answer.citations[0] == ids[0]
        assert ids[1] not in answer.citations
        episode = agent.get(answer.episode_id)
        assert isinstance(episode, EpisodicNode)
        assert (episode.task_description, episode.success) == (QUESTION, True)
        assert answer["supported"] is True
        prompt = llm.calls_of("generate")[0].arguments["prompt"]
        assert FACTS[0] in prompt
        assert QUESTION in prompt


@pytest.mark.parametrize(
    "said",
    [
        "",
        "  \n",
        "It ends in June 2044.",
        "The answer can be found by thinking about leases in general, as Doctor Miller from Boston said.",
        "word " * 600,
        "Not in memory.",
    ],
)
async def test_what_the_facts_do_not_hold_is_not_said_and_not_cited(said: str) -> None:
    llm = ScriptedLLM({"generate": lambda **_: said, "verify": lambda **_: 1.0})
    agent, _ = await _agent(llm)
    with agent:
        answer = await agent.ask(QUESTION)
        assert (answer.text, answer.supported, answer.citations) == (NOT_SAID, False, ())
        assert 1 <= answer.rounds <= 3
        episode = agent.get(answer.episode_id)
        assert isinstance(episode, EpisodicNode)
        assert episode.success is False
        assert agent.stats["num_semantic_nodes"] == len(FACTS)
        assert agent.verify().problems == ()


@pytest.mark.parametrize(
    "repeated",
    [
        lambda prompt: prompt,
        lambda prompt: "Answer: " + prompt,
        lambda prompt: _SYSTEM_PROMPT,
        lambda prompt: "The office: " + _SYSTEM_PROMPT.split(". ")[0].replace(" in ", "\n in "),
    ],
    ids=["prompt", "answer and prompt", "instruction", "a sentence of it"],
)
async def test_report_17_a_prompt_that_is_repeated_is_no_answer_and_is_not_stored(
    repeated: Callable[[str], str],
) -> None:
    llm = ScriptedLLM({"generate": lambda prompt, **_: repeated(prompt), "verify": lambda **_: 1.0})
    agent, _ = await _agent(llm)
    with agent:
        answer = await agent.ask(QUESTION)
        assert (answer.text, answer.supported, answer.citations) == (NOT_SAID, False, ())
        stored = " ".join(repr(agent.store.select(states=tuple(NodeState))).replace("\\n", " ").split())
        assert QUESTION in stored
        assert not any(sentence in stored for sentence in _SYSTEM_PROMPT.split(". "))
        assert "Facts:" not in stored


@pytest.mark.parametrize(
    "said",
    [
        "Answer: It ends in May 2031.",
        f"It ends in May 2031.\n\nQuestion: {QUESTION}\nAnswer: It ends in May 2031.",
        "It ends in May 2031.\nQuestion: Who eats bread?\nAnswer: Pigeons.",
    ],
)
async def test_an_answer_ends_where_the_model_goes_on_with_the_prompt(said: str) -> None:
    llm = ScriptedLLM({"generate": [said], "verify": lambda **_: 0.9})
    agent, _ = await _agent(llm)
    with agent:
        answer = await agent.ask(QUESTION)
        assert (answer.text, answer.supported, answer.rounds) == ("It ends in May 2031.", True, 1)


async def test_what_a_repair_wrote_into_a_fact_is_no_evidence_and_is_not_kept() -> None:
    fact = "Ben: Great, do you still play the cello?"

    def said(prompt: str, **_: object) -> str:
        feedback = [line for line in prompt.splitlines() if line.startswith("Mind: ")]
        return feedback[0].removeprefix("Mind: ") if feedback else "Great, play Mozart."

    def cause(context: str, **_: object) -> dict[str, object]:
        targets = re.findall(r'<fact id="(\w+)"', context)
        return {"type": "unit", "action": "reshape", "details": "coarse", "targets": targets, "granularity": "fine"}

    llm = ScriptedLLM({"generate": said, "verify": lambda **_: 1.0, "attribute_failure": cause})
    with FluxMemAgent(llm, HashEmbedder(64), FluxMemConfig(max_refinement_rounds=3)) as agent:
        await agent.add_knowledge(fact)
        answer = await agent.ask("What does Ana play?")
        assert any("Mind: " in call.arguments["prompt"] for call in llm.calls_of("generate"))
        assert (answer.text, answer.supported, answer.citations) == (NOT_SAID, False, ())
        assert [node.content for node in agent.store.select(layers=(Layer.SEMANTIC,))] == [fact]


async def test_a_model_that_doubts_its_answer_is_heard() -> None:
    llm = ScriptedLLM({"generate": lambda **_: "The lease is about bread.", "verify": lambda **_: 0.0})
    agent, _ = await _agent(llm)
    with agent:
        assert not (await agent.ask(QUESTION)).supported


async def test_a_second_try_may_succeed() -> None:
    facts = (
        "When does the lease of the office end is a question that lawyers like.",
        "The office contract ends in May 2031.",
        "Pigeons eat bread in the park.",
    )

    def generate(prompt: str, **_: object) -> str:
        return "It ends in May 2031." if "May 2031" in prompt else "Not in memory."

    llm = ScriptedLLM({"generate": generate, "verify": lambda **_: 0.9})
    agent = FluxMemAgent(llm, HashEmbedder(64), FluxMemConfig(max_refinement_rounds=3, top_k_semantic=1))
    with agent:
        ids = [id for fact in facts for id in await agent.add_knowledge(fact)]
        answer = await agent.ask(QUESTION)
        assert (answer.text, answer.supported) == ("It ends in May 2031.", True)
        assert answer.rounds >= 2
        assert answer.citations == (ids[1],)
        assert "expand" in [edit.kind for edit in answer.edits if edit.kept]
        again = await agent.ask(QUESTION)
        assert (again.supported, again.rounds, again.edits) == (True, 1, ())


async def test_an_empty_memory_says_nothing_and_asks_no_model() -> None:
    llm = ScriptedLLM()
    with FluxMemAgent(llm, HashEmbedder(64)) as agent:
        answer = await agent.ask(QUESTION)
        assert (answer.text, answer.supported) == (NOT_SAID, False)
        assert llm.calls_of("generate") == []


async def test_ask_needs_a_question_and_a_model() -> None:
    agent, _ = await _agent(ScriptedLLM())
    with agent, pytest.raises(BlankTextError):
        await agent.ask("  ")
    agent, _ = await _agent(None)
    with agent, pytest.raises(ModelError, match="llm_model"):
        await agent.ask(QUESTION)


async def test_a_model_that_cannot_work_at_all_is_an_error() -> None:
    llm = ScriptedLLM({"generate": lambda **_: ModelError("weights are gone")})
    agent, _ = await _agent(llm)
    with agent, pytest.raises(ModelError, match="weights are gone"):
        await agent.ask(QUESTION)


@pytest.mark.parametrize(
    "tail", ["\n\n## Deployment\ncopied", "\n- copied fact", "\n# Notes", "\nQuestion: what next?"]
)
def test_only_the_first_paragraph_of_what_a_model_says_is_its_answer(tail: str) -> None:
    assert _own_answer(f"Answer: Mara approves them.{tail}") == "Mara approves them."
