"""The evolution of one skill: which version stays, when it has settled, what is written down."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import EpisodicNode, ProceduralNode
from fluxmem_local.memory_store import Outcome
from fluxmem_local.stages.advice import SkillWriter
from fluxmem_local.stages.evolution import Evidence, Evolution, evolve_skill
from fluxmem_local.stages.induction import induce_skill
from fluxmem_local.testing import HashEmbedder, ScriptedLLM

EPISODES = tuple(
    EpisodicNode(
        id=f"e{number}",
        task_description=f"put the {item} away",
        trajectory=(("", f"take {item}"), ("", f"open {place}"), ("", f"put {item} in {place}")),
        success=True,
        created_at=float(number),
    )
    for number, (item, place) in enumerate([("coat", "wardrobe"), ("duvet", "chest"), ("cup", "cupboard")])
)
STRUCTURE = induce_skill(EPISODES)
TEXT = STRUCTURE.render()
SHORTER = "\n".join(TEXT.splitlines()[:4])


async def evolve(
    *refined: Any,
    node: ProceduralNode | None = None,
    embedder: HashEmbedder | None = None,
    replay_fn: Any = None,
    candidate: str | None = None,
    outcomes: tuple[Outcome, ...] = (),
    **settings: Any,
) -> tuple[Evolution, ScriptedLLM]:
    llm = ScriptedLLM({"refine_skill": refined})
    evolution = await evolve_skill(
        node or ProceduralNode(id="s", skill_text=TEXT),
        Evidence(structure=STRUCTURE, sources=EPISODES, outcomes=outcomes),
        candidate=candidate,
        embedder=embedder,
        writer=SkillWriter(llm),
        config=FluxMemConfig(**settings),
        replay_fn=replay_fn,
    )
    return evolution, llm


def length(text: str) -> float:
    return math.log(ScriptedLLM().count_tokens(text))


async def test_one_version_has_a_score_and_has_not_settled() -> None:
    evolution, _ = await evolve()
    assert evolution.node.pems_score == pytest.approx(1 / length(TEXT))
    assert evolution.scored == ((1, evolution.node.pems_score),)
    assert not evolution.converged
    assert evolution.node.version_history == ()


async def test_a_better_version_takes_the_place_and_the_old_one_is_written_down() -> None:
    evolution, _ = await evolve(SHORTER)
    node = evolution.node
    assert (node.skill_text, node.content, node.version) == (SHORTER, SHORTER, 2)
    assert node.pems_score == pytest.approx(1 / length(SHORTER))
    (old,) = node.version_history
    assert (old.version, old.skill_text) == (1, TEXT)
    assert old.pems_score == pytest.approx(1 / length(TEXT))
    assert old.ended_because.startswith("replaced by version 2: PEMS")


async def test_the_change_of_meaning_counts_against_a_version(embedder: HashEmbedder) -> None:
    evolution, _ = await evolve(SHORTER, embedder=embedder)
    one, two = await embedder.embed_batch([TEXT, SHORTER])
    expected = float(one @ two) / length(SHORTER)
    assert dict(evolution.scored)[2] == pytest.approx(expected, rel=1e-5)
    assert np.allclose(evolution.node.embedding, two if expected >= 1 / length(TEXT) else one)


async def test_a_worse_version_is_not_kept_but_is_written_down() -> None:
    evolution, _ = await evolve(f"{TEXT}\nThen put the item away and open the wardrobe and take the cup.")
    node = evolution.node
    assert (node.skill_text, node.version) == (TEXT, 1)
    (tried,) = node.version_history
    assert tried.version == 2
    assert tried.ended_because.startswith("not kept: PEMS")


async def test_a_text_that_leaves_the_steps_out_does_not_win_by_being_short() -> None:
    evolution, _ = await evolve("put away item")
    assert evolution.node.skill_text == TEXT
    assert evolution.scored[1] == (2, 0.0)


async def test_it_has_settled_when_two_versions_differ_by_less_than_the_threshold() -> None:
    evolution, llm = await evolve(SHORTER, SHORTER + " please", pems_threshold=0.5)
    assert evolution.converged
    assert len(llm.calls) == 1
    strict, llm = await evolve(SHORTER, pems_threshold=1e-6)
    assert not strict.converged
    assert len(llm.calls) == 2


async def test_a_model_that_has_nothing_to_change_settles_it_without_growing_the_history() -> None:
    evolution, _ = await evolve(TEXT)
    assert evolution.converged
    assert evolution.node.version_history == ()
    assert len(evolution.scored) == 2


@pytest.mark.parametrize("most", [1, 2, 4])
async def test_the_number_of_versions_is_bounded(most: int) -> None:
    longer = [f"{TEXT}\n{'open wardrobe and take cup. ' * number}" for number in range(1, 9)]
    evolution, llm = await evolve(*longer, max_consolidation_rounds=most, pems_threshold=0.0)
    assert len(evolution.scored) == most
    assert len(llm.calls) == most - 1
    assert [version for version, _ in evolution.scored] == list(range(1, most + 1))


@pytest.mark.parametrize("answer", ["", "medal " * 9999, "Nothing known here at all", ValueError("broken")])
async def test_a_bad_refinement_changes_nothing_and_ends_the_attempts(answer: Any) -> None:
    evolution, llm = await evolve(answer, SHORTER)
    assert evolution.node.skill_text == TEXT
    assert len(llm.calls) == 1


class TestReplay:
    async def test_the_success_rate_is_that_of_the_replays(self) -> None:
        evolution, _ = await evolve(replay_fn=lambda episode, skill: episode.id != "e0")
        assert evolution.scored[0] == (1, pytest.approx(2 / 3 / length(TEXT)))
        assert evolution.node.metadata["evidence"]["success_rate"] == pytest.approx(2 / 3)

    async def test_it_may_be_async_and_sees_the_version_that_is_tried(self) -> None:
        seen: list[tuple[int, str]] = []

        async def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            seen.append((skill.version, skill.skill_text))
            return skill.skill_text == SHORTER

        evolution, _ = await evolve(SHORTER, replay_fn=replay)
        assert evolution.node.skill_text == SHORTER
        assert seen == [(1, TEXT)] * 3 + [(2, SHORTER)] * 3

    async def test_a_version_that_replays_worse_is_not_kept(self) -> None:
        evolution, _ = await evolve(SHORTER, replay_fn=lambda episode, skill: skill.version == 1)
        assert evolution.node.skill_text == TEXT

    async def test_without_a_models_help_the_skill_is_tried_without_its_examples(self) -> None:
        brief = STRUCTURE.render(examples=0)
        assert brief == TEXT.split("\nSeen:")[0]
        kept, _ = await evolve(replay_fn=lambda episode, skill: True)
        assert (kept.node.skill_text, kept.node.version) == (brief, 2)
        needed, llm = await evolve(replay_fn=lambda episode, skill: "Seen:" in skill.skill_text)
        assert len(llm.calls) == 1
        assert (needed.node.skill_text, needed.scored[1]) == (TEXT, (2, 0.0))
        assert len(needed.scored) == 2

    async def test_what_failed_is_told_to_the_model(self) -> None:
        _, llm = await evolve(replay_fn=lambda episode, skill: episode.id != "e1")
        assert "Failed: put the duvet away" in llm.calls[0].arguments["feedback"]


class TestRecordedEvidence:
    async def test_tasks_that_used_the_skill_count_too(self) -> None:
        outcomes = (
            Outcome(node_id="s", episode_id="later", hurt=1),
            Outcome(node_id="s", episode_id="e0", helped=1),
        )
        evolution, _ = await evolve(outcomes=outcomes)
        assert evolution.node.metadata["evidence"]["success_rate"] == pytest.approx(3 / 4)


async def test_a_candidate_from_new_evidence_is_tried_first() -> None:
    evolution, llm = await evolve(candidate=SHORTER, max_consolidation_rounds=2)
    assert evolution.node.skill_text == SHORTER
    assert llm.calls == []


async def test_a_present_version_keeps_its_own_shift() -> None:
    node = replace(
        ProceduralNode(id="s", skill_text=TEXT, version=3), metadata={"evidence": {"shift": 0.25}, "name": "kept"}
    )
    evolution, _ = await evolve(node=node)
    assert evolution.node.pems_score == pytest.approx(0.75 / length(TEXT))
    assert evolution.node.metadata["name"] == "kept"


class TestHeldOut:
    """What new evidence induces must be no worse on episodes that induction has not seen."""

    async def evolved(self, replay_fn: Any, **evidence: Any) -> Evolution:
        return await evolve_skill(
            ProceduralNode(id="s", skill_text="old", version=1),
            Evidence(structure=STRUCTURE, sources=EPISODES, held_out=frozenset({"e2"}), **evidence),
            candidate=TEXT,
            embedder=None,
            writer=SkillWriter(None),
            config=FluxMemConfig(max_consolidation_rounds=2),
            replay_fn=replay_fn,
        )

    async def test_a_candidate_that_fails_on_them_is_not_kept(self) -> None:
        evolution = await self.evolved(
            lambda episode, skill: episode.id != "e2" or skill.skill_text == "old", part="part"
        )
        assert (evolution.node.skill_text, evolution.node.version, evolution.rejected) == ("old", 1, True)
        (ended,) = evolution.node.version_history
        assert (ended.version, ended.skill_text) == (2, "part")
        assert ended.pems_score == pytest.approx(2 / 3 / math.log(3))
        assert ended.ended_because == ("not kept: held-out episodes that succeed with it: 0, with version 1: 1")
        assert evolution.node.metadata["evidence"]["held_out_succeeded"] == 1

    async def test_a_candidate_that_holds_there_takes_the_place(self) -> None:
        seen: list[str] = []

        def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            seen.append(skill.skill_text)
            return skill.skill_text != "old"

        evolution = await self.evolved(replay, part="part")
        assert (evolution.node.skill_text, evolution.node.version, evolution.rejected) == (TEXT, 2, False)
        assert seen == ["old"] * 3 + ["part"] * 3 + [TEXT] * 3

    async def test_a_better_score_does_not_make_up_for_a_held_out_episode(self) -> None:
        evolution = await self.evolved(
            lambda episode, skill: episode.id == "e2" if skill.skill_text == "old" else episode.id != "e2"
        )
        assert evolution.scored[1][1] < 2 / 3
        assert evolution.node.skill_text == "old"

    async def test_the_model_is_not_shown_them(self) -> None:
        llm = ScriptedLLM({"refine_skill": [SHORTER]})
        await evolve_skill(
            ProceduralNode(id="s", skill_text=TEXT),
            Evidence(structure=STRUCTURE, sources=EPISODES, held_out=frozenset({"e1"})),
            embedder=None,
            writer=SkillWriter(llm),
            config=FluxMemConfig(),
            replay_fn=lambda episode, skill: episode.id != "e1",
        )
        assert "duvet" not in llm.calls[0].arguments["feedback"]

    async def test_what_the_rest_induces_is_the_second_version_when_nobody_proposes_one(self) -> None:
        same = await evolve_skill(
            ProceduralNode(id="s", skill_text=TEXT),
            Evidence(structure=STRUCTURE, sources=EPISODES, held_out=frozenset({"e1"}), part=TEXT),
            embedder=None,
            writer=SkillWriter(None),
            config=FluxMemConfig(),
        )
        assert (same.converged, len(same.scored), same.node.version_history) == (True, 2, ())


async def test_episodes_that_went_another_way_do_not_count_for_a_skill() -> None:
    stranger = EpisodicNode(id="x", task_description="put it away", trajectory=(("", "call a friend"),), success=True)
    evolution = await evolve_skill(
        ProceduralNode(id="s", skill_text=TEXT),
        Evidence(structure=STRUCTURE, sources=(*EPISODES, stranger)),
        embedder=None,
        writer=SkillWriter(None),
        config=FluxMemConfig(),
    )
    assert evolution.failed_ids == {"x"}
    assert evolution.node.pems_score == pytest.approx(3 / 4 / length(TEXT))
