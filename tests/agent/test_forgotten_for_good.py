"""What was forgotten does not come back by a consolidation or an import, unless it is added anew."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.errors import ImportFormatError, NotFoundError
from fluxmem_local.graph import Edit, EpisodicNode, GroundEdge, Node, ProceduralNode, SemanticNode
from fluxmem_local.memory_store import Outcome
from fluxmem_local.storage.database import DATABASE_NAME
from fluxmem_local.storage.schema import _FIRST, APPLICATION_ID, SCHEMA_VERSION
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer, Scope

PLACES = {"gray coat": "wardrobe", "white duvet": "big chest", "black blanket": "big chest"}
MORE = {"red sock": "drawer", "blue shirt": "wardrobe", "green towel": "shelf"}
GATE = "The north gate opens with the green key."


def put(item: str, place: str) -> EpisodicNode:
    return EpisodicNode(
        id=f"put {item}",
        task_description=f"put the {item} in its usual place",
        trajectory=(("a bedroom", f"take {item}"), ("", f"put {item} in {place}")),
        success=True,
    )


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[FluxMemAgent]:
    async with FluxMemAgent(None, HashEmbedder(256), path=tmp_path / "memory") as opened:
        yield opened


def skills(agent: FluxMemAgent) -> list[ProceduralNode]:
    return [node for node in agent.store.select(layers=(Layer.PROCEDURAL,)) if isinstance(node, ProceduralNode)]


def facts(agent: FluxMemAgent) -> list[str]:
    return [node.content for node in agent.store.select(layers=(Layer.SEMANTIC,))]


async def learned(agent: FluxMemAgent) -> ProceduralNode:
    await agent.add_knowledge_nodes([put(*pair) for pair in PLACES.items()])
    await agent.consolidate()
    (skill,) = skills(agent)
    return skill


class TestSkills:
    async def test_the_same_episodes_teach_it_no_second_time(self, agent: FluxMemAgent, tmp_path: Path) -> None:
        skill = await learned(agent)
        await agent.forget(skill.id)
        report = await agent.consolidate()
        assert (report.induced_skills, skills(agent)) == ((), [])
        agent.close()
        async with FluxMemAgent(None, HashEmbedder(256), path=tmp_path / "memory") as again:
            assert (await again.consolidate()).induced_skills == ()
            assert again.verify().ok

    async def test_only_as_much_new_experience_as_any_skill_needs_makes_a_new_one(self, agent: FluxMemAgent) -> None:
        await agent.forget((await learned(agent)).id)
        first, second, third = (put(*pair) for pair in MORE.items())
        await agent.add_knowledge_nodes([first, second])
        assert (await agent.consolidate()).induced_skills == ()
        await agent.add_knowledge_nodes([third])
        await agent.consolidate()
        (new,) = skills(agent)
        assert set(new.source_episode_ids) == {first.id, second.id, third.id}
        assert (await agent.consolidate()).updated_skills == ()

    async def test_its_episodes_do_not_feed_another_skill(self, agent: FluxMemAgent) -> None:
        await agent.add_knowledge_nodes([put(*pair) for pair in MORE.items()])
        await agent.consolidate()
        (kept,) = skills(agent)
        other = ProceduralNode(skill_text="written of", source_episode_ids=("put gray coat",))
        await agent.add_knowledge_nodes([put("gray coat", "wardrobe"), other])
        await agent.forget(other.id)
        assert (await agent.consolidate()).updated_skills == ()
        assert agent.get(kept.id) == kept

    async def test_the_copy_of_the_memory_learns_it_neither(self, agent: FluxMemAgent) -> None:
        await agent.forget((await learned(agent)).id)
        lines = list(agent.store.export_lines())
        async with FluxMemAgent(None, HashEmbedder(256)) as copy:
            copy.store.import_lines(lines)
            assert list(copy.store.export_lines()) == lines
            assert (await copy.consolidate()).induced_skills == ()

    async def test_an_older_export_does_not_bring_it_back(self, agent: FluxMemAgent) -> None:
        skill = await learned(agent)
        lines = list(agent.store.export_lines())
        await agent.forget(skill.id)
        report = agent.store.import_lines(lines)
        assert (report.num_nodes, report.num_known, report.num_forgotten, report.num_edges) == (0, 3, 1, 0)
        assert (await agent.consolidate()).induced_skills == ()
        assert skills(agent) == []
        assert agent.verify().ok

    async def test_a_skill_that_another_memory_learned_alike_stays_away_too(self, agent: FluxMemAgent) -> None:
        skill = await learned(agent)
        async with FluxMemAgent(None, HashEmbedder(256)) as other:
            twin = await learned(other)
            assert (twin.skill_text, twin.id == skill.id) == (skill.skill_text, False)
            lines = list(other.store.export_lines())
        await agent.forget(skill.id)
        assert agent.store.import_lines(lines).num_forgotten == 1
        assert skills(agent) == []

    async def test_written_anew_it_is_there_again(self, agent: FluxMemAgent) -> None:
        skill = await learned(agent)
        await agent.forget(skill.id)
        await agent.add_knowledge_nodes([ProceduralNode(id="mine", skill_text=skill.skill_text)])
        assert [node.id for node in skills(agent)] == ["mine"]

    async def test_a_memory_that_holds_the_skill_keeps_it_and_lets_it_grow(self, agent: FluxMemAgent) -> None:
        skill = await learned(agent)
        lines = list(agent.store.export_lines())
        async with FluxMemAgent(None, HashEmbedder(256)) as other:
            other.store.import_lines(lines)
            await agent.forget(skill.id)
            other.store.import_lines(list(agent.store.export_lines()))
            assert [node.id for node in skills(other)] == [skill.id]
            await other.add_knowledge_nodes([put("red sock", "drawer")])
            assert (await other.consolidate()).updated_skills == (skill.id,)
            assert skills(other)[0].source_episode_ids == (*skill.source_episode_ids, "put red sock")

    async def test_one_that_is_forgotten_while_another_process_learns_it_stays_away(self, agent: FluxMemAgent) -> None:
        await agent.add_knowledge_nodes([put(*pair) for pair in PLACES.items()])
        calls: list[str] = []

        async def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            if not calls:
                calls.append(episode.id)
                await agent.consolidate()
                await agent.forget(skills(agent)[0].id)
            return True

        report = await agent.consolidate(replay_fn=replay)
        assert [reason for _, reason in report.skipped] == ["a skill of these episodes was forgotten meanwhile"]
        assert skills(agent) == []


class TestFacts:
    async def test_an_export_from_before_brings_nothing_of_it_back(self, agent: FluxMemAgent) -> None:
        (gate,) = await agent.add_knowledge(GATE, source="gates.md")
        (key,) = await agent.add_knowledge("Keys hang by the door.", source="keys.md")
        opened = EpisodicNode(id="opened", task_description="open the gate", trajectory=(("", "turn"),), success=True)
        version: Node = SemanticNode(id="version", content="The gate: green key.", variant_of=gate)
        await agent.add_knowledge_nodes([opened, version])
        with agent.store.transaction() as change:
            change.add_edges([GroundEdge(source_id=id, target_id="opened") for id in (gate, key)])
            change.record_outcomes([Outcome(node_id=id, episode_id="opened", helped=1) for id in (gate, key)])
            change.put_edit(Edit(id="only", kind="expand", targets=(gate,), reason="r", kept=True))
            change.put_edit(Edit(id="both", kind="expand", targets=(gate, key), reason=f"as {GATE}", kept=True))
        lines = list(agent.store.export_lines())
        await agent.forget(gate)
        after = list(agent.store.export_lines())
        report = agent.store.import_lines(lines)
        assert (report.num_nodes, report.num_known, report.num_forgotten) == (0, 2, 2)
        assert list(agent.store.export_lines()) == after
        assert [edit.id for edit in agent.store.edits()] == ["both"]
        assert agent.verify().ok
        # The same into a memory that knows of the refusal alone.
        async with FluxMemAgent(None, HashEmbedder(256)) as other:
            told = [line for line in after if '"header"' in line or '"forgotten"' in line]
            other.store.import_lines([*told, json.dumps({"type": "end", "lines": len(told)})])
            assert other.store.import_lines(lines).num_forgotten == 2
            assert facts(other) == ["Keys hang by the door."]
            (edit,) = other.store.edits()
            assert (edit.id, edit.targets, edit.reason) == ("both", (key,), "")
            assert [edge.source_id for edge in other.store.edges()] == [key]
            assert other.verify().ok

    @pytest.mark.parametrize(
        ("content", "scope", "comes"),
        [
            (GATE, None, False),
            ("the  north gate opens with the 'Green Key'", None, False),
            ("The north gate opens with the green key?", None, True),
            ("The north gate opens with the red key.", None, True),
            (GATE, {"user": "ada"}, True),
        ],
        ids=["same", "nearly", "question", "another", "another's"],
    )
    async def test_what_says_the_same_in_the_same_scope_stays_away(
        self, agent: FluxMemAgent, content: str, scope: Any, comes: bool
    ) -> None:
        async with FluxMemAgent(None, HashEmbedder(256)) as other:
            await other.add_knowledge(content, scope=scope)
            lines = list(other.store.export_lines())
        await agent.forget((await agent.add_knowledge(GATE))[0])
        report = agent.store.import_lines(lines)
        assert (report.num_nodes, report.num_forgotten) == ((1, 0) if comes else (0, 1))
        assert facts(agent) == ([content] if comes else [])

    async def test_what_it_said_before_an_update_stays_away_too(self, agent: FluxMemAgent) -> None:
        (id,) = await agent.add_knowledge("The gate key is blue.")
        async with FluxMemAgent(None, HashEmbedder(256)) as other:
            await other.add_knowledge("The gate key is blue.")
            lines = list(other.store.export_lines())
        await agent.update(id, GATE)
        await agent.forget(id)
        assert agent.store.import_lines(lines).num_forgotten == 1

    async def test_merged_facts_stay_away_together(self, agent: FluxMemAgent) -> None:
        await agent.add_knowledge(GATE)
        await agent.add_knowledge("the north gate opens with the green key")
        lines = list(agent.store.export_lines())
        assert len((await agent.consolidate()).merged) == 1
        await agent.forget(agent.store.select(layers=(Layer.SEMANTIC,))[0].id)
        assert agent.store.import_lines(lines).num_forgotten == 2
        await agent.consolidate()
        assert facts(agent) == []

    @pytest.mark.parametrize("how", ["added", "updated"])
    async def test_added_anew_it_is_there_again_for_imports_too(self, agent: FluxMemAgent, how: str) -> None:
        (id,) = await agent.add_knowledge(GATE, source="gates.md")
        lines = list(agent.store.export_lines())
        await agent.forget(id)
        if how == "added":
            (new,) = await agent.add_knowledge(GATE, source="mine.md")
        else:
            (new,) = await agent.add_knowledge("The gate is locked.", source="mine.md")
            await agent.update(new, GATE)
        report = agent.store.import_lines(lines)
        assert (report.num_known, report.num_forgotten, facts(agent)) == (1, 0, [GATE])
        with pytest.raises(NotFoundError):
            agent.get(id)

    async def test_a_source_can_be_taken_in_again_after_an_import(self, agent: FluxMemAgent) -> None:
        fact = SemanticNode(content=GATE, source="gates.md")
        await agent.ingest("gates.md", [fact], "digest")
        lines = list(agent.store.export_lines())
        await agent.forget(source="gates.md")
        agent.store.import_lines(lines)
        report = await agent.ingest("gates.md", [SemanticNode(content=GATE, source="gates.md")], "digest")
        assert (report.unchanged, report.num_new, facts(agent)) == (False, 1, [GATE])

    async def test_a_kept_fact_does_not_get_a_forgotten_source_back(self, agent: FluxMemAgent) -> None:
        (id,) = await agent.add_knowledge(GATE, source="a.md")
        await agent.add_knowledge(GATE, source="b.md")
        lines = list(agent.store.export_lines())
        await agent.forget(source="b.md")
        agent.store.import_lines(lines)
        node = agent.get(id)
        assert isinstance(node, SemanticNode)
        assert (node.count, node.source) == (1, "a.md")
        assert agent.store.select(source="b.md") == []
        await agent.add_knowledge(GATE, source="b.md")
        assert [each.id for each in agent.store.select(source="b.md")] == [id]

    async def test_the_refusal_keeps_no_text(self, agent: FluxMemAgent, tmp_path: Path) -> None:
        (id,) = await agent.add_knowledge(GATE, source="gates.md")
        await agent.forget(id)
        agent.close()
        held = b"".join(file.read_bytes() for file in (tmp_path / "memory").rglob("*") if file.is_file())
        assert b"green key" not in held.lower()
        assert b"gates.md" not in held

    async def test_forgotten_episodes_stay_away_and_leave_the_skills_that_name_them(self, agent: FluxMemAgent) -> None:
        skill = await learned(agent)
        lines = list(agent.store.export_lines())
        async with FluxMemAgent(None, HashEmbedder(256)) as other:
            await other.add_knowledge_nodes([put("gray coat", "wardrobe")])
            await other.forget("put gray coat")
            assert other.store.import_lines(lines).num_forgotten == 1
            (copy,) = skills(other)
            assert copy.source_episode_ids == skill.source_episode_ids[1:]
            assert other.verify().ok

    async def test_a_whole_scope_stays_away(self, agent: FluxMemAgent) -> None:
        ada = Scope(user="ada")
        await agent.add_knowledge(GATE, scope=ada)
        await agent.record_episode("open the gate", [("", "turn the key")], True, scope=ada)
        lines = list(agent.store.export_lines())
        await agent.forget(scope=ada)
        assert agent.store.import_lines(lines).num_forgotten == 2
        assert agent.store.select() == []

    async def test_an_unknown_kind_of_refusal_is_an_error(self, agent: FluxMemAgent) -> None:
        lines = list(agent.store.export_lines())
        lines[-1:] = ['{"type":"forgotten","kind":"x","key":"y"}', '{"type":"end","lines":2}']
        with pytest.raises(ImportFormatError, match="line 2: 'x' is no kind of refusal"):
            agent.store.import_lines(lines)


async def test_a_memory_of_the_first_schema_is_brought_forward(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    connection.executescript(
        f"PRAGMA application_id = {APPLICATION_ID}; BEGIN; {_FIRST} PRAGMA user_version = 1; COMMIT;"
        "INSERT INTO meta VALUES ('uuid', 'x');"
    )
    connection.close()
    async with FluxMemAgent(None, HashEmbedder(256), path=tmp_path) as agent:
        skill = await learned(agent)
        await agent.forget(skill.id)
        assert (await agent.consolidate()).induced_skills == ()
        with agent.store.database.read() as reader:
            assert reader.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
