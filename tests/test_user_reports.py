"""Reports of users of like systems that concern several parts at once; the others stand beside the part they test."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import fluxmem_local.models.templates as templates
from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import BlankTextError, InvalidInputError
from fluxmem_local.graph import EpisodicNode, SemanticNode
from fluxmem_local.index import HNSWVectorStore
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.models.prompted import PromptedLLM
from fluxmem_local.models.registry import registry_directory
from fluxmem_local.testing import HashEmbedder, ScriptedLLM
from fluxmem_local.types import NodeState

PROMPTS = [file.read_text("utf-8") for file in Path(templates.__file__).with_name("prompts").glob("*.md")]
SENTENCES = {
    sentence
    for prompt in PROMPTS
    for sentence in re.split(r"(?<=[.:!?]) ", " ".join(prompt.casefold().split()))
    if len(sentence) >= 20
}
SOURCE_CODE = 'def f(x):\n    return {"a": [x, None], \'b\': "\\\\n\\t"}  # </fact> & <skill> \\u0041 }]\n'


def _task(number: int, action: str = "run the aggregate script") -> EpisodicNode:
    return EpisodicNode(
        task_description=f"sum the medals of country {number}",
        trajectory=(("a table", "open the table"), ("rows", action)),
        success=True,
    )


async def test_report_1_what_was_added_without_an_embedder_is_ordered_by_its_words_until_reindex(
    tmp_path: Path,
) -> None:
    with FluxMemAgent(None, None, path=tmp_path) as agent:
        for number in range(20):
            await agent.add_knowledge(f"Town{number} keeps bees.")
        (plain,) = await agent.retrieve("town13", top_k=1)
    with FluxMemAgent(None, HashEmbedder(256), path=tmp_path) as agent:
        for number in range(20):
            (hit,) = await agent.retrieve(f"town{number}", top_k=1)
            assert hit.node.content == f"Town{number} keeps bees."
        (hit,) = await agent.retrieve("town13", top_k=1)
        assert hit.score == pytest.approx(plain.score)
        assert hit.score > 0.4
        assert (await agent.reindex()).num_embedded == 20
        assert agent.stats["num_unembedded"] == 0
        (hit,) = await agent.retrieve("Town13 keeps bees.", top_k=1)
        assert hit.signals["dense"] == pytest.approx(1, abs=1e-5)


async def test_report_3_an_embedder_is_any_folder_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXMEM_MODELS", str(tmp_path / "cache"))
    folder = (registry_directory() / "tiny" / "embedder").resolve()
    config = FluxMemConfig(llm_model="none", embedding_model=str(folder))
    with FluxMemAgent.open(tmp_path / "m", config=config) as agent:
        await agent.add_knowledge("Paris is the capital of France.")
        await agent.add_knowledge("Bread is made of flour.")
        (hit,) = await agent.retrieve("Paris is the capital of France.", top_k=1)
        assert hit.node.content == "Paris is the capital of France."
        assert hit.signals["dense"] == pytest.approx(1, abs=1e-5)


async def test_report_10_an_update_without_an_embedder_drops_the_old_vector(tmp_path: Path) -> None:
    with FluxMemAgent(None, HashEmbedder(64), path=tmp_path) as agent:
        (id,) = await agent.add_knowledge("The cat sleeps on the sofa.", metadata={"k": "v"})
    with FluxMemAgent(None, None, path=tmp_path) as agent:
        await agent.update(id, "The rocket flies to the moon.")
        assert agent.stats["num_unembedded"] == 1
    with FluxMemAgent(None, HashEmbedder(64), path=tmp_path) as agent:
        assert not agent.store.embeddings([id]).any()
        assert (await agent.reindex()).num_embedded == 1
        (hit,) = await agent.retrieve("The rocket flies to the moon.", filters={"k": "v"})
        assert hit.signals["dense"] == pytest.approx(1, abs=1e-5)
        assert agent.verify().problems == ()


# Runs in a process of its own: nothing of the first one's memory may be needed to read the copy.
COPIED = """
import json, sys
from fluxmem_local import FluxMem
from fluxmem_local.testing import HashEmbedder

queries = [f"town{number} bees" for number in range(0, 300, 50)]
for path in sys.argv[1:]:
    with FluxMem(None, HashEmbedder(64), path=path, create=False) as memory:
        hits = [[hit.node.id for hit in memory.retrieve(query, top_k=5)] for query in queries]
        print(json.dumps([memory.stats["num_semantic_nodes"], hits]))
"""


async def test_report_11_a_changed_copy_is_whole_in_a_new_process(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with FluxMemAgent(None, HashEmbedder(64), path=one) as agent:
        await agent.add_knowledge_nodes(
            [SemanticNode(content=f"Person{number} of town{number} keeps bees.") for number in range(300)]
        )
        exported = io.StringIO()
        agent.export(exported)
    with FluxMemAgent(None, HashEmbedder(64), path=two) as agent:
        agent.import_(io.StringIO(exported.getvalue()))
        await agent.add_knowledge("The added one speaks of a lighthouse.")
    done = subprocess.run(
        [sys.executable, "-c", COPIED, str(one), str(two)], capture_output=True, text=True, timeout=120, check=True
    )
    (num_one, hits_one), (num_two, hits_two) = (json.loads(line) for line in done.stdout.splitlines())
    assert (num_one, num_two) == (300, 301)
    assert hits_one == hits_two
    assert all(len(set(hits)) == 5 for hits in hits_one)
    with FluxMemAgent(None, HashEmbedder(64), path=one) as agent:
        again = io.StringIO()
        agent.export(again)
        assert again.getvalue() == exported.getvalue()


async def test_report_12_what_is_beyond_a_capacity_is_kept() -> None:
    store = HNSWVectorStore(exact_below=8)
    with FluxMemAgent(None, HashEmbedder(128), semantic_vectorstore=store) as agent:
        for number in range(16 + 3):
            await agent.add_knowledge(f"turn {number}: Ada ate fruit{number}")
        for number in range(16 + 3):
            (hit,) = await agent.retrieve(f"fruit{number}", top_k=1)
            assert hit.node.content == f"turn {number}: Ada ate fruit{number}"
        assert len(store) == 19


class Echoing(PromptedLLM):
    """Says what the prompt holds and then its last sentence again, as small models do."""

    def __init__(self) -> None:
        super().__init__()
        self.num_calls = 0

    def prompt_budget(self, max_new_tokens: int) -> int:
        return 4000

    async def score_batch(self, contexts: Any, continuations: Any) -> Any:
        raise AssertionError("written verdicts need no likelihood")

    async def generate(self, prompt: str, system_prompt: str | None = None, temperature: float = 0.7) -> str:
        self.num_calls += 1
        known = "Open the table, run the aggregate script, sum the medals of the country."
        return f"{known} {prompt.rsplit('. ', 1)[-1]}"


async def test_report_17_no_stored_text_holds_a_sentence_of_a_prompt() -> None:
    llm = Echoing()
    with FluxMemAgent(llm, HashEmbedder(64)) as agent:
        for blank in ("", "\n", " \t"):
            with pytest.raises(BlankTextError):
                await agent.add_knowledge(blank)
        assert (llm.num_calls, agent.stats["num_semantic_nodes"]) == (0, 0)
        await agent.add_knowledge("Medals of a table are added up by country.")
        for number in range(4):
            await agent.add_knowledge_nodes([_task(number)])
        objection = "Self-check failed: the procedure is too coarse, it ranks the total and not the average as asked."
        await agent.run_task("average of medals of a country", lambda context: ("", objection, False))
        await agent.consolidate()
        assert llm.num_calls > 3
        stored = [
            text
            for node in agent.store.select(states=tuple(NodeState))
            for text in (node.content, *(past.skill_text for past in getattr(node, "version_history", ())))
        ]
        assert len(stored) >= 6
        assert [
            (said, text) for text in stored for said in SENTENCES if said in " ".join(text.casefold().split())
        ] == []


async def test_report_18_adding_asks_no_language_model() -> None:
    llm = ScriptedLLM()
    with FluxMemAgent(llm, HashEmbedder(16)) as agent:
        text = " ".join(f"Sentence {number:03} tells of medals." for number in range(160))
        start = time.process_time()
        assert len(await agent.add_knowledge(text)) >= len(text) / 512
        assert time.process_time() - start < 2
        assert llm.calls == []


async def test_report_18_prompts_do_not_grow_with_the_graph() -> None:
    async def asked(num_facts: int) -> tuple[int, int, int]:
        llm = ScriptedLLM()
        with FluxMemAgent(llm, HashEmbedder(16)) as agent:
            await agent.add_knowledge_nodes(
                [
                    SemanticNode(content=f"Fact {number:05} is on the medals of a country.")
                    for number in range(num_facts)
                ]
            )
            task = "sum the medals of a country"
            await agent.run_task(task, lambda context: ("", "error: wrong total", False))
            return (
                max(len(call.arguments["context"]) for call in llm.calls_of("attribute_failure")),
                max(len(call.arguments["claims"]) for call in llm.calls_of("verify_batch")),
                len(await agent.context(task)),
            )

    assert await asked(10_000) == pytest.approx(await asked(10), rel=0.02)


async def test_source_code_in_memory_comes_back_as_it_was() -> None:
    llm = ScriptedLLM()
    with FluxMemAgent(llm, HashEmbedder(64)) as agent, MemoryStore.open(None) as copy:
        (id,) = await agent.add_knowledge(SOURCE_CODE, source="f.py", metadata={"code": SOURCE_CODE})
        assert agent.get(id).content == SOURCE_CODE.strip()
        assert agent.get(id).metadata == {"code": SOURCE_CODE}
        await agent.run_task("what does f return", lambda context: (SOURCE_CODE, SOURCE_CODE, False))
        context = ElementTree.fromstring(await agent.context("what does f return", SOURCE_CODE))
        (fact,) = context.iter("fact")
        assert SOURCE_CODE.strip() in "".join(fact.itertext())
        copy.import_lines(line for line in agent.store.export_lines())
        assert copy.get(id).content == SOURCE_CODE.strip()
        assert agent.verify().problems == ()


async def test_signs_of_query_languages_find_what_holds_them() -> None:
    with FluxMemAgent(None, None) as agent:
        for fact in ("Logs are in /var/log/nginx.", "Shares are on \\\\nas\\backup.", "Use cat a.txt | grep error."):
            await agent.add_knowledge(fact)
        for query, right in (
            ("/var/log/nginx", "Logs are in /var/log/nginx."),
            ("\\\\nas\\backup", "Shares are on \\\\nas\\backup."),
            ("cat a.txt | grep", "Use cat a.txt | grep error."),
            ('backup" OR "x:* (', "Shares are on \\\\nas\\backup."),
        ):
            assert (await agent.retrieve(query))[0].node.content == right
        for signs in ("/", "\\", "|", "/ \\ |"):
            assert isinstance(await agent.retrieve(signs), list)


async def test_naive_and_aware_times_live_side_by_side() -> None:
    naive, aware = datetime(2031, 5, 1, 8), datetime(2031, 5, 2, 8, tzinfo=timezone.utc)
    with FluxMemAgent(None, HashEmbedder(16)) as agent:
        for time_ in (naive, aware):
            with pytest.raises(InvalidInputError, match="datetime"):
                await agent.add_knowledge("A visit.", metadata={"at": time_})
            await agent.add_knowledge(f"Visit of day {time_.day}.", metadata={"at": time_.isoformat()})
        assert len(await agent.retrieve("visit")) == 2
        later = await agent.retrieve("visit", filters={"at": {"gte": "2031-05-02"}})
        assert [hit.node.content for hit in later] == ["Visit of day 2."]
        with pytest.raises(InvalidInputError, match="number or a text"):
            await agent.retrieve("visit", filters={"at": {"gte": aware}})
        await agent.run_task("plan the visit", lambda context: ("done", "", True))
        await agent.consolidate()
        assert agent.verify().problems == ()


async def test_names_are_not_translated() -> None:
    facts = ("张伟住在北京。", "Иван живёт в Москве.", "小林さんは東京に住んでいます。")
    llm = ScriptedLLM({"extract_skills": lambda **_: "Ask Zhang Wei in Beijing, then restart the server."})
    with FluxMemAgent(llm, HashEmbedder(64)) as agent:
        ids = [id for fact in facts for id in await agent.add_knowledge(fact)]
        assert [node.content for node in agent.store.get_many(ids)] == list(facts)
        context = await agent.context("张伟住在哪里？")
        assert facts[0] in context
        for city in ("北京", "上海", "广州"):
            await agent.add_knowledge_nodes(
                [
                    EpisodicNode(
                        task_description=f"请张伟重启{city}的服务器",
                        trajectory=(("", f"询问张伟{city}的密码"), ("", f"重启{city}的服务器")),
                        success=True,
                    )
                ]
            )
        await agent.consolidate()
        texts = [node.content for node in agent.store.select(layers=("procedural",))]
        assert not any("Zhang" in text or "Beijing" in text for text in texts)


async def test_what_was_invalidated_does_not_come_back_after_consolidation() -> None:
    with FluxMemAgent(None, HashEmbedder(64)) as agent:
        (forgotten,) = await agent.add_knowledge("The door code is 4711.")
        (demoted,) = await agent.add_knowledge("The door code is 0815.")
        (kept,) = await agent.add_knowledge("The door code is 1234.")
        for number in range(4):
            await agent.record_episode(f"open door {number}", [("door", "type the code")], True, used_ids=[forgotten])
        await agent.forget(forgotten)
        with agent.store.transaction() as change:
            change.set_state([demoted], NodeState.DEMOTED)
        for _ in range(2):
            await agent.consolidate()
            assert [hit.node.id for hit in await agent.retrieve("door code")] == [kept]
            assert "code is 4711" not in await agent.context("open the door by its code")
        assert agent.verify().problems == ()


async def test_reports_13_and_16_one_bad_answer_does_not_stop_the_other_skills() -> None:
    def answer(trajectories: Any) -> str:
        return "medal " * 58_279 if "medals" in str(trajectories) else "Wash the cup, then dry the cup."

    llm = ScriptedLLM({"extract_skills": answer})
    with FluxMemAgent(llm, HashEmbedder(64)) as agent:
        cups = [
            replace(
                _task(0),
                id=f"cup{colour}",
                content="",
                task_description=f"clean the {colour} cup",
                trajectory=(("a cup", f"wash the {colour} cup"), ("wet", f"dry the {colour} cup")),
            )
            for colour in ("red", "blue", "green")
        ]
        await agent.add_knowledge_nodes([*(_task(number) for number in range(3)), *cups])
        report = await agent.consolidate()
        assert len(report.induced_skills) == 2
        texts = [agent.get(id).content for id in report.induced_skills]
        assert sum("Wash the cup, then dry the cup." in text for text in texts) == 1
        assert not any("medal medal" in text for text in texts)
        assert report.llm_failures >= 1
        assert len(llm.calls) <= 2 * 2
        assert agent.stats["num_episodic_nodes"] == 6


async def test_report_20_two_kinds_whose_words_are_all_in_their_commands_make_two_skills() -> None:
    with FluxMemAgent(None, HashEmbedder(64)) as agent:
        for number in range(3):
            for task, host in (("restart nginx", f"web{number}"), ("rotate logs", f"db{number}")):
                await agent.record_episode(
                    f"{task} on {host}", [("down", f"ssh {host}"), ("shell", f"systemctl {task}")], True
                )
        report = await agent.consolidate()
        uses = sorted(agent.get(id).content.splitlines()[0] for id in report.induced_skills)
        assert uses == ["When to use: restart nginx on <1:web>", "When to use: rotate logs on <1:db>"]
