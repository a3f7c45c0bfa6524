from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fluxmem_local.agent import answering
from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.agent.answering import _SYSTEM_PROMPT, NOT_SAID, Answer, Answerer, _own_answer
from fluxmem_local.agent.builder import build_embedder, build_llm
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import BlankTextError, ModelError, ModelNotFoundError, ModelOutputError
from fluxmem_local.graph import EpisodicNode
from fluxmem_local.testing import HashEmbedder, ScriptedLLM
from fluxmem_local.types import FloatArray, Layer, NodeState

FACTS = (
    "The lease of the office ends in May 2031.",
    "Pigeons eat bread in the park.",
    "The rent of the office is 900 euros.",
)
DUTIES = "Mara approves all deployments; Jonas reviews them."
STAGING = "The staging database is reset every Monday at 06:00 UTC."
ROTA = "Oleg is on call in the first week of a month, Priya in the second."
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
        assert episode.metadata["answered"] is True
        assert answer["supported"] is True
        prompt = llm.calls_of("generate")[0].arguments["prompt"]
        assert FACTS[0] in prompt
        assert QUESTION in prompt


@pytest.mark.parametrize(
    "said",
    [
        "",
        "It ends in June 2044.",
        "The office.",
        "The lease of the office ends.",
        "Not in memory.",
    ],
)
async def test_what_the_facts_do_not_hold_is_not_said_and_not_cited(said: str) -> None:
    llm = ScriptedLLM({"generate": lambda **_: said, "verify": lambda **_: 1.0})
    agent, _ = await _agent(llm)
    with agent:
        answer = await agent.ask("Who signed the lease of the office?")
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
    agent, ids = await _agent(llm)
    with agent:
        answer = await agent.ask(QUESTION)
        assert (answer.text, answer.supported, answer.citations) == (FACTS[0], True, (ids[0],))
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


async def test_what_a_repair_wrote_into_a_fact_is_no_evidence() -> None:
    told = {"rewritten": ("told", "Ben: Great, I play the cello."), "expanded": ("whole", "Ana plays the flute.")}
    llm = ScriptedLLM({"generate": lambda **_: "Ana plays Mozart.", "verify": lambda **_: 1.0})
    answerer = Answerer(llm, "What does Ana play?", told.__getitem__)
    context = "<context><semantic_memory>{}</semantic_memory></context>"
    rewritten = '<fact id="rewritten">Ben: Great, I play the cello. Mind: Ana plays Mozart.</fact>'
    assert (await answerer(context.format(rewritten)))[::2] == ("", False)
    assert answerer.citations == ()
    expanded = '<fact id="expanded">Ana plays the flute. Mind: Ana plays Mozart.</fact>'
    assert (await answerer(context.format(rewritten + expanded)))[::2] == ("Ana plays the flute.", True)
    assert answerer.citations == ("whole",)


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
    with agent, pytest.raises(ModelNotFoundError, match="llm_model"):
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


async def _asked(
    facts: tuple[str, ...], question: str, said: object = "", verdict: object = 0.98
) -> tuple[Answer, EpisodicNode, tuple[str, ...]]:
    """Ask one question of a memory of these facts; returns the answer, its episode, and the facts cited."""
    llm = ScriptedLLM({"generate": lambda **_: said, "verify": lambda **_: verdict})
    with FluxMemAgent(llm, HashEmbedder(64), FluxMemConfig(max_refinement_rounds=2)) as agent:
        for fact in facts:
            await agent.add_knowledge(fact)
        answer = await agent.ask(question)
        episode = agent.get(answer.episode_id)
        assert isinstance(episode, EpisodicNode)
        assert agent.verify().problems == ()
        return answer, episode, tuple(node.content for node in agent.store.get_many(answer.citations))


@pytest.mark.parametrize(
    ("fact", "question", "said", "expected"),
    [
        (DUTIES, "Who approves deployments?", "Jonas", "Mara approves all deployments"),
        (DUTIES, "Who approves deployments?", "Jonas is the one who approves deployments.", DUTIES.split(";")[0]),
        (DUTIES, "Who approves deployments?", "Mara approves all deployments.", "Mara approves all deployments."),
        (DUTIES, "Who reviews deployments?", "Mara", DUTIES),
        (ROTA, "Who is on call in the second week?", "Oleg is on call in the second.", ROTA),
        ("Ana leads Ben.", "Who leads Ben?", "Ben leads Ana.", "Ana leads Ben."),
        ("Rita moved to Oslo in 2019.", "When did Rita move?", "Rita moved to Oslo.", "Rita moved to Oslo in 2019."),
        ("Ben does not eat fish.", "What does Ben eat?", "Ben eats fish.", "Ben does not eat fish."),
        ("The rent is 900 euros.", "How is the rent?", "The rent is 90 euros.", "The rent is 900 euros."),
        ("The office is closed on Friday.", "Is the office closed on Friday?", "No", "The office is closed on Friday."),
        ("Tom leitet Ben.", "Wer leitet Ben?", "Ben leitet Tom.", "Tom leitet Ben."),
        ("李雷负责采购，韩梅梅负责财务。", "谁负责财务？", "李雷", "李雷负责采购，韩梅梅负责财务。"),
        (
            "# Keys\n\nOld text here. The spare key is in drawer 7.",
            "Where is the spare key?",
            "Bonn",
            "The spare key is in drawer 7.",
        ),
    ],
)
async def test_what_a_model_says_beside_the_fact_gives_way_to_the_fact(
    fact: str, question: str, said: str, expected: str
) -> None:
    answer, episode, cited = await _asked((fact, "Pigeons eat bread in the park."), question, said)
    assert (answer.text, answer.supported, cited, episode.success) == (expected, True, (fact,), True)


@pytest.mark.parametrize(
    ("fact", "question", "said"),
    [
        ("Ana plays the cello.", "Where does Ana live?", "Ana plays the cello."),
        ("Ana's sister Rita lives in Oslo.", "Where does Ana live?", "Oslo"),
        ("The VPN needs a hardware token.", "What is the VPN gateway called?", "The VPN gateway is Birch."),
        ("The VPN needs a hardware token.", "What is the VPN gateway called?", "The VPN gateway is called a VPN."),
        (DUTIES, "Who approves holidays?", "Mara approves all holidays."),
        ("Ana leads Ben.", "Who leads Ana?", "Ben leads Ana."),
        ("The sales team leads Ben.", "Who leads the sales team?", "Ben"),
        ("Carla leads Ana.", "Whom does Ana lead?", "Carla"),
        ("Ana leitet Ben.", "Wer leitet Ana?", "Ben leitet Ana."),
        ("卡拉管理本。", "谁管理卡拉？", "本"),
        ("食堂每天十二点开门。", "食堂几点关门？", "十二点"),
        ("Ben: Where does Ana live?", "Where does Ana live?", "Ben"),
        ("Where does Ana live is a secret.", "Where does Ana live?", "a secret"),
        ("Ana lives.", "Where does Ana live?", "Ana lives."),
        ("The production database has the password elm7.", "What is the password of the staging database?", "elm7"),
        ("Freezer A is at minus 20 degrees.", "What is freezer B at?", "minus 20 degrees"),
        ("Die Miete beträgt 900 Euro im Monat.", "Wie viel kostet der Strom im Monat?", "900 Euro"),
        ("The office of Ana has 42 desks.", "How many chairs are in the office of Ben?", "42"),
    ],
)
async def test_what_only_shares_words_with_a_question_does_not_answer_it(fact: str, question: str, said: str) -> None:
    answer, episode, cited = await _asked((fact, "Pigeons eat bread in the park."), question, said)
    assert (answer.text, answer.supported, cited) == (NOT_SAID, False, ())
    assert (episode.success, episode.status) == (False, "failed")


@pytest.mark.parametrize(
    "failure",
    [RuntimeError("out of memory"), TimeoutError("no answer"), ModelOutputError("cut off")],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_model_that_fails_leaves_the_facts_own_words(failure: Exception) -> None:
    answer, _, cited = await _asked((DUTIES,), "Who approves deployments?", failure, failure)
    assert (answer.text, answer.supported, cited) == ("Mara approves all deployments", True, (DUTIES,))
    answer, episode, _ = await _asked((DUTIES,), "Who approves holidays?", failure, failure)
    assert (answer.text, answer.supported, episode.success) == (NOT_SAID, False, False)


@pytest.mark.parametrize("verdict", [float("nan"), -3.0, 7.0])
async def test_a_verdict_that_is_none_is_left_out(verdict: float) -> None:
    answer, _, _ = await _asked((DUTIES,), "Who approves deployments?", "Jonas", verdict)
    assert (answer.text, answer.supported) == ("Mara approves all deployments", True)


class _Hanging(ScriptedLLM):
    async def generate(self, prompt: str, system_prompt: str | None = None, temperature: float = 0.7) -> str:
        await super().generate(prompt, system_prompt, temperature)
        await asyncio.Event().wait()
        return ""


async def test_a_model_that_hangs_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "LLM_TIMEOUT_S", 0.01)
    agent, ids = await _agent(_Hanging())
    with agent:
        answer = await agent.ask(QUESTION)
        assert (answer.text, answer.supported, answer.citations) == (FACTS[0], True, (ids[0],))


async def test_a_model_that_hangs_is_waited_for_once_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(_Hanging):
        async def verify_batch(self, claims: Sequence[str], evidences: Sequence[str]) -> FloatArray:
            await super().verify_batch(claims, evidences)
            await asyncio.Event().wait()
            return np.zeros(0, np.float32)

    monkeypatch.setattr(answering, "LLM_TIMEOUT_S", 0.01)
    llm = Mute()
    answerer = Answerer(llm, QUESTION, lambda id: (id, FACTS[0]))
    context = f'<context><semantic_memory><fact id="a">{FACTS[0]}</fact></semantic_memory></context>'
    for _ in range(2):
        assert await answerer(context) == (FACTS[0], "", True)
    assert [call.kind for call in llm.calls if call.kind != "verify"] == ["verify_batch"]


async def test_a_question_that_is_cancelled_ends_its_episode() -> None:
    llm = _Hanging()
    agent, _ = await _agent(llm)
    with agent:
        asking = asyncio.create_task(agent.ask(QUESTION))
        while not llm.calls_of("generate"):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        _is_interrupted(agent)


def test_ctrl_c_ends_the_episode_and_leaves_the_memory_as_it_was(tmp_path: Path) -> None:
    # A process of its own: the signal would reach the tests as well.
    program = f"""
import asyncio, os, signal
# A test run in the background of a shell ignores interrupts, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
from fluxmem_local import FluxMemAgent
from fluxmem_local.testing import HashEmbedder, ScriptedLLM

class Interrupted(ScriptedLLM):
    async def generate(self, *arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

async def main():
    async with FluxMemAgent(Interrupted(), HashEmbedder(64), path={str(tmp_path / "memory")!r}) as agent:
        for fact in {FACTS!r}:
            await agent.add_knowledge(fact)
        await agent.ask({QUESTION!r})

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode != 0
    assert "KeyboardInterrupt" in ended.stderr
    with FluxMemAgent(ScriptedLLM(), HashEmbedder(64), path=tmp_path / "memory") as agent:
        _is_interrupted(agent)


def _is_interrupted(agent: FluxMemAgent) -> None:
    (episode,) = agent.store.select(layers=(Layer.EPISODIC,), states=tuple(NodeState))
    assert isinstance(episode, EpisodicNode)
    assert (episode.status, episode.success) == ("interrupted", False)
    assert [node.content for node in agent.store.select(layers=(Layer.SEMANTIC,))] == list(FACTS)
    assert agent.store.edges() == []
    assert agent.verify().problems == ()


class _Likely(ScriptedLLM):
    """Finds each word as likely as ``gain`` says after a whole fact, and at 0 after the words it shares."""

    def __init__(self, gain: float) -> None:
        super().__init__({"verify": lambda **_: 0.9})
        self.gain = gain

    async def score_batch(self, contexts: Sequence[str], continuations: Sequence[str]) -> FloatArray:
        tokens = np.asarray([self.count_tokens(each) for each in continuations], np.float32)
        whole = np.asarray([context.split("\n")[0].endswith(".") for context in contexts], np.float32)
        return self.gain * whole / tokens


@pytest.mark.parametrize(
    ("fact", "question", "gain", "supported"),
    [
        (STAGING, "When is the staging database wiped?", 0.9, True),
        (STAGING, "When is the staging database wiped?", 0.7, False),
        ("The parcel weighs 12 kg.", "How heavy is the parcel?", 4.5, True),
        ("The parcel weighs 12 kg.", "How heavy is the parcel?", 3.5, False),
        ("Ana likes green tea.", "Where does Ana live?", 9.0, False),
        ("The oven was repaired by Hotline GmbH.", "Who repaired the van?", 9.0, False),
        (
            "The password of the production database is elm.",
            "What is the password of the staging database?",
            9.0,
            False,
        ),
    ],
)
async def test_other_words_count_as_far_as_the_fact_makes_them_likelier(
    fact: str, question: str, gain: float, supported: bool
) -> None:
    with FluxMemAgent(_Likely(gain), HashEmbedder(64), FluxMemConfig(max_refinement_rounds=1)) as agent:
        await agent.add_knowledge(fact)
        answer = await agent.ask(question)
        assert (answer.text, answer.supported) == ((fact, True) if supported else (NOT_SAID, False))


@pytest.mark.real_model
async def test_the_real_model_answers_from_the_fact_or_not_at_all() -> None:
    config = FluxMemConfig(max_refinement_rounds=1)
    expected = {
        "Who approves deployments?": ("Mara approves all deployments", True),
        "On which day is the staging database wiped?": (
            "The staging database is reset every Monday at 06:00 UTC.",
            True,
        ),
        "Where does Ana live?": (NOT_SAID, False),
        "Who approves holidays?": (NOT_SAID, False),
        "What is the VPN gateway called?": (NOT_SAID, False),
        "What is the password of the staging database?": (NOT_SAID, False),
    }
    async with FluxMemAgent(build_llm(config), build_embedder(config), config) as agent:
        for fact in (
            DUTIES,
            "The staging database is reset every Monday at 06:00 UTC.",
            "Ana plays the cello in a quartet.",
            "The VPN needs a hardware token.",
        ):
            await agent.add_knowledge(fact)
        answers = {question: await agent.ask(question) for question in expected}
    assert {question: (answer.text, answer.supported) for question, answer in answers.items()} == expected


@pytest.mark.parametrize(
    ("fact", "question", "answer"),
    [
        ("The lease ends in May.", "When does the lease end?", "The lease ends in May."),
        ("The lease ends in May.", "WHEN DOES IT END, THE LEASE?", "The lease ends in May."),
        ("The red key belongs to Will.", "Who does the red key belong to?", "The red key belongs to Will."),
        ("Freezer A belongs to Will.", "Who does freezer A belong to?", "Freezer A belongs to Will."),
        ("The backups are run by IT.", "Who runs the backups?", "The backups are run by IT."),
        ("The lease ends in June.", "When Does The Lease End?", "The lease ends in June."),
        ("The lease may be ended.", "When does the lease end?", NOT_SAID),
        ("The lease ends in May.", "Does the lease end in June?", NOT_SAID),
    ],
)
async def test_a_name_that_is_an_empty_word_but_for_its_capital_is_an_answer(
    fact: str, question: str, answer: str
) -> None:
    llm = ScriptedLLM({"verify": lambda **_: 1.0})
    with FluxMemAgent(llm, HashEmbedder(64), FluxMemConfig(max_refinement_rounds=0)) as agent:
        await agent.add_knowledge(fact)
        assert (await agent.ask(question)).text == answer
