"""Stage III as a whole, on a real store in memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import ModelOutputError
from fluxmem_local.graph import DistillEdge, EpisodicNode, Node, ProceduralNode, SemanticNode, Subgraph
from fluxmem_local.index import ExactVectorStore
from fluxmem_local.interfaces import BaseLLM, approximate_tokens
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.retrieval import serialize_context
from fluxmem_local.stages import advice
from fluxmem_local.stages.consolidation import ConsolidationReport, StageIII
from fluxmem_local.stages.induction import induce_skill
from fluxmem_local.testing import FailingLLM, HashEmbedder, ScriptedLLM
from fluxmem_local.types import Layer, NodeState, Scope

PLACES = {"gray coat": "wardrobe", "white duvet": "chest of drawers", "black blanket": "chest of drawers"}
COUNTRIES = ("Kenya", "Peru", "Norway")


def put(item: str, place: str, *, success: bool = True, **settings: Any) -> EpisodicNode:
    return EpisodicNode(
        task_description=f"put the {item} in its usual place",
        trajectory=(("a bedroom", f"take {item}"), ("a closed thing", f"open {place}"), ("", f"put {item} in {place}")),
        success=success,
        feedback="" if success else f"no reward: {item} does not belong in {place}",
        **settings,
    )


def rank(country: str, **settings: Any) -> EpisodicNode:
    return EpisodicNode(
        task_description=f"rank athletes of {country} by medals won per season",
        trajectory=(("a CSV table", f"group rows of {country} by athlete"), ("", "sort groups by average")),
        success=True,
        **settings,
    )


@pytest.fixture
def store(embedder: HashEmbedder) -> MemoryStore:
    return MemoryStore.open(None, dimension=embedder.dimension, fingerprint=embedder.fingerprint)


@pytest.fixture
def add(store: MemoryStore, embedder: HashEmbedder) -> Callable[..., Any]:
    async def add_nodes(*nodes: Node) -> list[str]:
        vectors = await embedder.embed_batch([node.content for node in nodes])
        ready = [replace(node, embedding=vector) for node, vector in zip(nodes, vectors, strict=True)]
        with store.transaction() as change:
            return change.add_nodes(ready)

    return add_nodes


@pytest.fixture
def consolidate(store: MemoryStore, embedder: HashEmbedder) -> Callable[..., Any]:
    async def run(llm: BaseLLM | None = None, *, replay_fn: Any = None, dry_run: bool = False, **settings: Any) -> Any:
        stage = StageIII(store, embedder, llm, FluxMemConfig(**settings))
        return await stage.run(replay_fn=replay_fn, dry_run=dry_run)

    return run


def skills_of(store: MemoryStore) -> list[ProceduralNode]:
    nodes = store.select(layers=(Layer.PROCEDURAL,), states=(NodeState.ACTIVE, NodeState.DEMOTED))
    return [node for node in nodes if isinstance(node, ProceduralNode)]


def everything(store: MemoryStore) -> list[Any]:
    nodes = store.select(states=tuple(NodeState))
    return [nodes, store.edges(), store.outcomes(), store.edits()]


class TestInduction:
    async def test_three_like_successes_make_one_skill_with_its_links(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        ids = await add(*(put(item, place) for item, place in PLACES.items()))
        report = await consolidate()
        (skill,) = skills_of(store)
        assert report.induced_skills == (skill.id,)
        assert set(skill.source_episode_ids) == set(ids)
        assert {edge.source_id for edge in store.edges(target_ids=[skill.id], kinds=("distill",))} == set(ids)
        assert skill.skill_text.splitlines()[:4] == [
            "When to use: put the <1:item> in its usual place",
            "1. take <1:item>",
            "2. open <2:item>",
            "3. put <1:item> in <2:item>",
        ]
        assert json.loads(json.dumps(skill.metadata["structure"]))["steps"][0]["succeeded_ids"] == sorted(ids)
        assert store.embeddings([skill.id]).any()

    @pytest.mark.parametrize(
        "episodes",
        [
            [put("gray coat", "wardrobe")],
            [put(item, place, success=False) for item, place in PLACES.items()],
            [replace(put(item, place), trajectory=()) for item, place in PLACES.items()],
            [replace(put(item, place), trajectory=(("a room", "  "),)) for item, place in PLACES.items()],
            [replace(put(item, place), status="interrupted") for item, place in PLACES.items()],
            [replace(put(item, place), metadata={"rolled_back": True}) for item, place in PLACES.items()],
        ],
        ids=["one episode", "failures only", "no steps", "blank actions", "interrupted", "rolled back"],
    )
    async def test_what_teaches_nothing_makes_no_skill(
        self, store: MemoryStore, add: Any, consolidate: Any, episodes: Sequence[EpisodicNode]
    ) -> None:
        await add(*episodes)
        report = await consolidate()
        assert (report.induced_skills, skills_of(store), report.graph_pems) == ((), [], 0.0)

    @pytest.mark.parametrize("num_clusters", [None, 1])
    @pytest.mark.parametrize(
        "tasks",
        [
            {
                "Who approves deployments?": ("Maria approves deployments.",),
                "Where does Ana live?": ("Ana lives in Porto.",),
                "When does the backup start?": ("The backup starts at two.",),
            },
            {f"Who approves deployments of {app}?": ("Maria approves them.",) for app in ("shop", "blog", "wiki")},
            {
                "deploy shop": ("make deploy", "check shop"),
                "feed the cat": ("open tin", "fill bowl"),
                "write a haiku": ("think of rain", "write three lines"),
            },
        ],
        ids=["answers of different subjects", "answers of one subject", "tasks without a common subject"],
    )
    async def test_answers_and_strangers_make_no_skill(
        self,
        store: MemoryStore,
        add: Any,
        consolidate: Any,
        tasks: dict[str, tuple[str, ...]],
        num_clusters: int | None,
    ) -> None:
        await add(
            *(
                EpisodicNode(task_description=task, trajectory=tuple(("", each) for each in actions), success=True)
                for task, actions in tasks.items()
            )
        )
        report = await consolidate(num_clusters=num_clusters)
        assert (report.induced_skills, skills_of(store), report.status) == ((), [], "ok")

    async def test_an_empty_memory_gives_an_empty_report(self, consolidate: Any) -> None:
        report = await consolidate()
        assert (report["clusters"], report["induced_skills"], report["converged"], report["status"]) == (
            0,
            (),
            False,
            "ok",
        )

    async def test_two_kinds_of_tasks_make_two_skills(self, store: MemoryStore, add: Any, consolidate: Any) -> None:
        await add(*(put(*pair) for pair in PLACES.items()), *(rank(country) for country in COUNTRIES))
        report = await consolidate()
        assert report.clusters == 2
        assert sorted(skill.metadata["name"] for skill in skills_of(store)) == [
            "put-usual-place",
            "rank-athletes-medals-won-per-season",
        ]

    async def test_users_share_no_skill(self, store: MemoryStore, add: Any, consolidate: Any) -> None:
        ada, ben = Scope(user="ada"), Scope(user="ben")
        await add(*(put(*pair, scope=scope) for scope in (ada, ben) for pair in PLACES.items()))
        await consolidate()
        for skill in skills_of(store):
            assert {node.scope for node in store.get_many(skill.source_episode_ids)} == {skill.scope}
        assert {skill.scope for skill in skills_of(store)} == {ada, ben}

    async def test_two_of_each_user_are_not_enough(self, store: MemoryStore, add: Any, consolidate: Any) -> None:
        pairs = list(PLACES.items())[:2]
        await add(*(put(*pair, scope=Scope(user=user)) for user in ("ada", "ben") for pair in pairs))
        await consolidate()
        assert skills_of(store) == []


class TestRunningAgain:
    async def test_the_same_episodes_change_nothing(self, store: MemoryStore, add: Any, consolidate: Any) -> None:
        await add(*(put(*pair) for pair in PLACES.items()), *(rank(country) for country in COUNTRIES))
        first = await consolidate()
        before = everything(store)
        second = await consolidate()
        assert everything(store) == before
        assert (second.induced_skills, second.updated_skills) == ((), ())
        assert second.graph_pems == first.graph_pems > 0
        assert second.pems_history == first.pems_history

    async def test_pems_does_not_fall_by_the_count_of_skills_alone(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        await add(*(put(*pair) for pair in PLACES.items()))
        await consolidate()
        (skill,) = skills_of(store)
        await add(*(rank(country) for country in COUNTRIES))
        await consolidate()
        assert len(skills_of(store)) == 2
        assert store.get(skill.id) == skill

    async def test_unrelated_news_makes_no_second_skill_of_the_old_episodes(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        await add(*(put(*pair) for pair in PLACES.items()), put("red sock", "drawer"), put("blue sock", "drawer"))
        await consolidate(num_clusters=1)
        before = skills_of(store)
        await add(
            rank("Chile"), EpisodicNode(task_description="water plants", trajectory=(("", "pour"),), success=True)
        )
        for number in (None, 2, 3, 5):
            report = await consolidate(num_clusters=number)
            assert report.induced_skills == ()
            assert [skill.skill_text for skill in skills_of(store)] == [skill.skill_text for skill in before]

    async def test_more_of_the_same_kind_updates_the_skill(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        await add(*(put(*pair) for pair in PLACES.items()))
        await consolidate()
        (before,) = skills_of(store)
        (new,) = await add(put("red sock", "drawer"))
        report = await consolidate()
        (after,) = skills_of(store)
        assert (report.induced_skills, report.updated_skills) == ((), (before.id,))
        assert after.source_episode_ids == (*before.source_episode_ids, new)
        assert len(store.edges(target_ids=[after.id], kinds=("distill",))) == 4
        again = everything(store)
        await consolidate()
        assert everything(store) == again

    async def test_a_failure_becomes_a_pitfall_and_stays_one(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        await add(*(put(*pair) for pair in PLACES.items()), put("red coat", "desk", success=False))
        await consolidate()
        (skill,) = skills_of(store)
        assert "Avoid: put red coat in desk (no reward: red coat does not belong in desk)" in skill.skill_text
        await add(rank("Chile"))
        assert (await consolidate()).updated_skills == ()


class TestLanguageModel:
    async def test_a_grounded_description_is_used(self, store: MemoryStore, add: Any, consolidate: Any) -> None:
        await add(*(put(*pair) for pair in PLACES.items()))
        report = await consolidate(ScriptedLLM({"extract_skills": ["Take the coat, open the wardrobe, put it in."]}))
        (skill,) = skills_of(store)
        assert skill.skill_text.splitlines()[1] == "Take the coat, open the wardrobe, put it in."
        assert (report.status, report.llm_calls, report.llm_failures) == ("ok", 2, 1)

    @pytest.mark.parametrize(
        ("answer", "kind"),
        [
            ("", "empty"),
            ("[]", "repetition"),
            ("As an assistant I would be delighted to help you achieve excellence today!", "not about the episodes"),
            ('{"type": "object", "properties": {"name": {"type": "string"}}}', "echo of the schema"),
            ('{"name": "put coat", "steps": ["take coat", ', "not about the episodes"),
            ("medal " * 58_279, "repetition"),
            ("put " * 58_279, "repetition"),
            (None, "empty"),
            (ModelOutputError("cut off"), "error"),
            (ConnectionError("no such model"), "error"),
        ],
        ids=[
            "empty",
            "list",
            "prose",
            "schema",
            "cut off",
            "loop",
            "grounded loop",
            "None",
            "typed error",
            "any error",
        ],
    )
    async def test_a_bad_answer_loses_nothing_and_is_counted(
        self, store: MemoryStore, add: Any, consolidate: Any, answer: Any, kind: str
    ) -> None:
        ids = await add(*(put(*pair) for pair in PLACES.items()), SemanticNode(content="coats hang in wardrobes"))
        before = store.get_many(ids)
        llm = ScriptedLLM({"extract_skills": lambda **_: answer, "refine_skill": lambda **_: answer})
        if isinstance(answer, Exception):
            llm = ScriptedLLM({"extract_skills": [answer] * 9, "refine_skill": [answer] * 9})
        report = await consolidate(llm)
        assert store.get_many(ids) == before
        assert skills_of(store) == []
        assert store.edges() == []
        assert [reason for _, reason in report.skipped] == ["no answer of the language model could be used"]
        assert (report.status, report.llm_calls, report.llm_failures) == ("failed", 2, 2)
        assert dict(report.bad_answers) == {kind: 2}

    async def test_a_model_that_always_fails_is_asked_at_most_twice_a_skill(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        await add(*(put(*pair) for pair in PLACES.items()), *(rank(country) for country in COUNTRIES))
        llm = FailingLLM()
        assert (await consolidate(llm)).status == "failed"
        assert llm.num_calls == 4
        assert (await consolidate(None)).status == "ok"
        assert len(skills_of(store)) == 2

    async def test_a_model_that_hangs_is_asked_once_and_changes_nothing(
        self, store: MemoryStore, add: Any, consolidate: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Hanging(ScriptedLLM):
            async def extract_skills(self, trajectories: Any) -> str:
                await super().extract_skills(trajectories)
                await asyncio.Event().wait()
                return ""

        monkeypatch.setattr(advice, "_LLM_TIMEOUT_S", 0.01)
        await add(*(put(*pair) for pair in PLACES.items()), *(rank(country) for country in COUNTRIES))
        llm = Hanging()
        report = await asyncio.wait_for(consolidate(llm), 10)
        assert (report.status, report.llm_calls, report.llm_failures) == ("failed", 1, 1)
        assert [call.kind for call in llm.calls] == ["extract_skills"]
        assert skills_of(store) == []

    async def test_json_names_describes_and_adds_what_is_marked(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        await add(*(put(*pair) for pair in PLACES.items()))
        answer = {
            "name": "Put coat in place",
            "description": "Put the coat in its usual place.",
            "steps": [
                {"action": "take coat", "records": [1]},
                {"action": "look in a closed bedroom", "records": [2]},
                {"action": "call the plumber Ludwig", "records": [1]},
            ],
        }
        report = await consolidate(ScriptedLLM({"extract_skills": [json.dumps(answer)]}))
        (skill,) = skills_of(store)
        assert skill.metadata["name"] == "put-coat-in-place"
        assert skill.metadata["structure"]["unsupported"] == ["look in a closed bedroom"]
        lines = skill.skill_text.splitlines()
        assert lines[1] == "Put the coat in its usual place."
        assert lines[5] == "Unsupported, never seen to succeed: look in a closed bedroom"
        assert "Ludwig" not in skill.skill_text
        assert (report.status, dict(report.bad_answers)) == ("ok", {"empty": 1})

    @pytest.mark.parametrize("records", [[0], [4], ["1"], [True], "1", [1.0]])
    async def test_records_that_are_none_make_an_answer_worthless(
        self, add: Any, consolidate: Any, store: MemoryStore, records: Any
    ) -> None:
        await add(*(put(*pair) for pair in PLACES.items()))
        answer = {"name": "put coat", "description": "", "steps": [{"action": "take coat", "records": records}]}
        report = await consolidate(ScriptedLLM({"extract_skills": [json.dumps(answer)]}))
        assert dict(report.bad_answers) == {"empty": 1, "wrong ids": 1}
        assert (report.status, skills_of(store)) == ("failed", [])

    async def test_a_model_that_cannot_write_is_not_asked(self, store: MemoryStore, add: Any, consolidate: Any) -> None:
        await add(*(put(*pair) for pair in PLACES.items()))
        llm = ScriptedLLM()
        llm.writes_memories = False
        report = await consolidate(llm)
        assert (report.status, report.llm_calls, llm.calls) == ("ok", 0, [])
        (skill,) = skills_of(store)
        assert skill.skill_text.startswith("When to use: put the <1:item> in its usual place\n1. take")

    async def test_a_prompt_does_not_grow_with_the_memory(self, add: Any, consolidate: Any) -> None:
        await add(*(put(f"coat {number}", "wardrobe") for number in range(30)))
        llm = ScriptedLLM()
        await consolidate(llm)
        (call,) = llm.calls_of("extract_skills")
        assert len(call.arguments["trajectories"]) == 8


class TestWriting:
    async def test_a_dry_run_reports_and_changes_nothing(self, store: MemoryStore, add: Any, consolidate: Any) -> None:
        await add(*(put(*pair) for pair in PLACES.items()))
        before = (everything(store), store.meta("tidied_at"), store.stats()["generation"])
        report = await consolidate(dry_run=True)
        assert (everything(store), store.meta("tidied_at"), store.stats()["generation"]) == before
        assert len(report.induced_skills) == 1
        assert report.graph_pems > 0
        assert report.dry_run

    async def test_an_error_of_the_replay_changes_nothing(self, store: MemoryStore, add: Any, consolidate: Any) -> None:
        await add(*(put(*pair) for pair in PLACES.items()))
        before = everything(store)

        def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            raise RuntimeError("the simulator is down")

        with pytest.raises(RuntimeError, match="simulator"):
            await consolidate(replay_fn=replay)
        assert everything(store) == before

    async def test_episodes_that_change_meanwhile_are_skipped_and_named(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        ids = await add(*(put(*pair) for pair in PLACES.items()), *(rank(country) for country in COUNTRIES))

        def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            if ids[0] in {node.id for node in store.select(layers=(Layer.EPISODIC,))}:
                store.forget(ids=[ids[0]])
            return True

        report = await consolidate(replay_fn=replay)
        (skill,) = skills_of(store)
        assert skill.metadata["name"] == "rank-athletes-medals-won-per-season"
        ((_, reason),) = report.skipped
        assert "meanwhile" in reason
        assert store.verify().ok

    async def test_another_consolidation_that_was_faster_is_not_repeated(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        await add(*(put(*pair) for pair in PLACES.items()))
        once: list[ConsolidationReport] = []

        async def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            if not once:
                once.append(await consolidate())
            return True

        report = await consolidate(replay_fn=replay)
        assert len(skills_of(store)) == 1
        assert len(report.skipped) == 1

    async def test_the_users_vector_stores_are_kept(self, embedder: HashEmbedder) -> None:
        given = {layer: ExactVectorStore(embedder.dimension) for layer in Layer}
        store = MemoryStore.open(
            None, dimension=embedder.dimension, fingerprint=embedder.fingerprint, vector_stores=given
        )
        episodes = [put(*pair) for pair in PLACES.items()]
        vectors = await embedder.embed_batch([episode.content for episode in episodes])
        with store.transaction() as change:
            change.add_nodes([replace(node, embedding=row) for node, row in zip(episodes, vectors, strict=True)])
        await StageIII(store, embedder, None, FluxMemConfig()).run()
        (skill,) = skills_of(store)
        found = store.nearest(Layer.PROCEDURAL, await embedder.embed_text(skill.skill_text), 1)
        assert found[0][0] == skill.id
        assert len(store.nearest(Layer.EPISODIC, vectors[0], 5)) == 3
        assert [len(given[layer]) for layer in (Layer.EPISODIC, Layer.PROCEDURAL)] == [3, 1]

    async def test_a_memory_without_an_embedder_consolidates_too(self) -> None:
        store = MemoryStore.open(None)
        with store.transaction() as change:
            change.add_nodes([put(*pair) for pair in PLACES.items()])
        report = await StageIII(store, None, None, FluxMemConfig()).run()
        assert len(report.induced_skills) == 1
        assert (await StageIII(store, None, None, FluxMemConfig()).run()).induced_skills == ()

    async def test_the_graphs_rules_hold_afterwards(self, store: MemoryStore, add: Any, consolidate: Any) -> None:
        await add(*(put(*pair) for pair in PLACES.items()), *(rank(country) for country in COUNTRIES))
        await consolidate()
        assert store.verify().ok
        report = await consolidate()
        assert json.loads(json.dumps(report.to_dict()))["status"] == "ok"
        assert time.time() >= float(store.meta("tidied_at") or 0)


def melt(metal: str, *actions: str, number: int) -> EpisodicNode:
    trajectory = tuple(("", action.format(metal)) for action in actions)
    return EpisodicNode(
        id=f"{metal}{number}",
        task_description=f"melt the {metal} in the workshop",
        trajectory=trajectory,
        success=True,
        created_at=float(number),
    )


HOT = [melt(name, "take {}", "light stove", number=place) for place, name in enumerate(("lead", "tin", "zinc"))]
COLD = [melt(name, "wait for {}", "open window", number=5 + place) for place, name in enumerate(("ice", "snow", "wax"))]


class TestRegrouping:
    async def test_a_skill_is_split_where_it_serves_only_some(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        await add(*HOT, melt("gold", "take {}", "light stove", number=9), *COLD)
        report = await consolidate(num_clusters=1)
        assert len(report.induced_skills) == 2
        ((old, new),) = report.split_skills
        by_id = {skill.id: skill for skill in skills_of(store)}
        assert sorted(by_id[old].source_episode_ids) == ["gold9", "lead0", "tin1", "zinc2"]
        assert sorted(by_id[new].source_episode_ids) == ["ice5", "snow6", "wax7"]
        for skill in by_id.values():
            linked = {edge.source_id for edge in store.edges(target_ids=[skill.id], kinds=("distill",))}
            assert linked == set(skill.source_episode_ids)
            assert skill.metadata["evidence"]["success_rate"] == 1.0
        before = everything(store)
        again = await consolidate(num_clusters=1)
        assert (again.split_skills, again.updated_skills, everything(store)) == ((), (), before)

    async def test_a_skill_that_new_episodes_show_to_be_two_gives_up_its_share(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        served = {episode.id for episode in HOT}
        await add(*HOT, *COLD)

        def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            return "light stove" in skill.skill_text if episode.id in served else "open window" in skill.skill_text

        with_both = ProceduralNode(
            id="both",
            skill_text="1. take it\n2. light stove",
            source_episode_ids=tuple(episode.id for episode in (*HOT, *COLD)),
            metadata={"structure": json.loads(json.dumps(induce_skill(HOT).to_dict()))},
        )
        await add(with_both)
        report = await consolidate(replay_fn=replay, num_clusters=1)
        assert report.updated_skills == ("both",)
        assert [old for old, _ in report.split_skills] == ["both"]
        kept = store.get("both")
        assert isinstance(kept, ProceduralNode)
        assert set(kept.source_episode_ids) == served
        assert store.verify().ok

    async def test_two_skills_of_one_way_become_one_and_the_other_stays_to_be_read(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        await add(*HOT)
        (first,) = (await consolidate()).induced_skills
        more = [
            melt(name, "take {}", "light stove", number=20 + place)
            for place, name in enumerate(("iron", "brass", "steel"))
        ]
        await add(*more)
        twin = ProceduralNode(
            id="twin",
            skill_text="melt it",
            version=4,
            pems_score=0.1,
            source_episode_ids=tuple(episode.id for episode in more),
            metadata={"structure": json.loads(json.dumps(induce_skill(more).to_dict()))},
        )
        await add(twin)
        with store.transaction() as change:
            change.add_edges([DistillEdge(source_id=episode.id, target_id="twin") for episode in more])
        report = await consolidate()
        assert report.merged_skills == (("twin", first),)
        kept, ended = store.get_many([first, "twin"])
        assert isinstance(kept, ProceduralNode)
        assert isinstance(ended, ProceduralNode)
        assert len(kept.source_episode_ids) == 6
        assert (ended.state, ended.version, ended.pems_score) == (NodeState.DEMOTED, 4, 0.1)
        assert ended.metadata["ended_because"] == f"merged into {first}: both are one way"
        assert store.edges(target_ids=["twin"]) == []
        assert len(store.edges(target_ids=[first], kinds=("distill",))) == 6
        assert store.verify().ok
        before = everything(store)
        again = await consolidate()
        assert (again.merged_skills, again.updated_skills, everything(store)) == ((), (), before)

    async def test_what_does_not_generalise_is_put_aside_and_comes_back_when_it_does(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        metals = ("lead", "tin", "zinc", "iron", "brass", "steel", "gold", "silver", "copper", "nickel")
        await add(*(melt(name, "take {}", "light stove", number=place) for place, name in enumerate(metals)))
        report = await consolidate(replay_fn=lambda episode, skill: False)
        (id,) = report.induced_skills
        assert report.demoted == ((id, "too specific: 0 of 2 held-out episodes succeed with it"),)
        (skill,) = skills_of(store)
        assert skill.state is NodeState.DEMOTED
        assert (await consolidate(replay_fn=lambda episode, skill: False)).updated_skills == ()
        better = await consolidate(replay_fn=lambda episode, skill: True)
        assert better.updated_skills == ()
        await add(melt("chrome", "take {}", "light stove", number=40))
        better = await consolidate(replay_fn=lambda episode, skill: True)
        assert (better.updated_skills, better.demoted) == ((id,), ())
        assert skills_of(store)[0].state is NodeState.ACTIVE

    async def test_a_structure_that_cannot_be_read_stops_nothing(
        self, store: MemoryStore, add: Any, consolidate: Any
    ) -> None:
        await add(*HOT)
        broken = ProceduralNode(
            id="broken",
            skill_text="melt it",
            source_episode_ids=tuple(episode.id for episode in HOT),
            metadata={"structure": {"steps": 5}},
        )
        await add(broken)
        assert (await consolidate()).updated_skills == ("broken",)
        (skill,) = skills_of(store)
        assert skill.metadata["structure"]["steps"][0]["template"] == "take <1:item>"


async def test_settled_skills_say_how_many_context_tokens_they_save(
    store: MemoryStore, add: Any, consolidate: Any
) -> None:
    long = [f"read page {page} of the manual on {{}} and note what it says about heat" for page in range(1, 9)]
    names = ("lead", "tin", "zinc", "iron")
    await add(*(melt(name, *long, number=place) for place, name in enumerate(names)))
    report = await consolidate()
    (skill,) = skills_of(store)
    assert report.converged
    shown, told = (
        serialize_context(graph, token_budget=10_000, count_tokens=approximate_tokens).num_tokens
        for graph in (
            Subgraph(task="t", procedural=(skill,)),
            Subgraph(
                task="t",
                episodic=tuple(store.get_many([f"{name}{3 - place}" for place, name in enumerate(names[:0:-1])])),
            ),
        )
    )
    assert report.tokens_saved == {skill.id: told - shown}
    assert told > shown
