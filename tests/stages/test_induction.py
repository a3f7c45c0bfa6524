"""Induction without a model: alignment, slots, support, pitfalls; and which added text is grounded."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from fluxmem_local.graph import EpisodicNode
from fluxmem_local.stages.antiunification import align, anti_unify, similarity, words_of
from fluxmem_local.stages.induction import counts_as_success, grounded_text, induce_skill
from fluxmem_local.stages.skills import Skill


def lived(number: int, task: str, *actions: str, success: bool = True, feedback: str = "") -> EpisodicNode:
    return EpisodicNode(
        id=f"e{number}",
        task_description=task,
        trajectory=tuple(("", action) for action in actions),
        success=success,
        feedback=feedback,
        created_at=float(number),
    )


COATS = [
    lived(1, "put the gray coat away", "take gray coat", "open wardrobe", "put gray coat in wardrobe"),
    lived(2, "put the white duvet away", "take white duvet", "open big chest", "put white duvet in big chest"),
    lived(3, "put the cup away", "look around", "take cup", "open cupboard", "put cup in cupboard"),
]


class TestAntiUnification:
    def test_what_texts_share_and_where_they_differ(self) -> None:
        pattern = anti_unify([words_of("open the red box now"), words_of("open the big blue box now")])
        assert [word.key for word in pattern.common] == ["open", "the", "box", "now"]
        assert pattern.values(2) == ("red", "big blue")
        assert pattern.render({2: "<1:colour>"}, {}) == "open the <1:colour> box now"

    def test_numbers_paths_and_signs_keep_their_form(self) -> None:
        pattern = anti_unify(
            [words_of("read data/a-1.csv (3.50)."), words_of("read data/b.csv (2)."), words_of("read x (7).")]
        )
        assert pattern.render({1: "<1>", 2: "<2>"}, {}) == "read <1> (<2>)."
        assert pattern.values(1) == ("data/a-1.csv", "data/b.csv", "x")

    def test_texts_without_spaces_are_compared_by_character(self) -> None:
        pattern = anti_unify([words_of("打开红色的盒子"), words_of("打开蓝色的盒子")])
        assert pattern.render({2: "<1>"}, {}) == "打开<1>色的盒子"

    def test_commands_with_the_same_verb_are_one_step(self) -> None:
        assert similarity(words_of("open wardrobe"), words_of("open chest of drawers")) >= 0.5
        assert similarity(words_of("open wardrobe"), words_of("take gray coat")) == 0

    def test_alignment_keeps_the_order_and_leaves_strangers_alone(self) -> None:
        one = [words_of(text) for text in ("take cup", "open door", "put cup down")]
        other = [words_of(text) for text in ("look around", "take mug", "put mug down")]
        assert align(one, other) == [(None, 0), (0, 1), (1, None), (2, 2)]
        assert align([], other) == [(None, 0), (None, 1), (None, 2)]


class TestInduction:
    def test_the_skill_of_three_episodes(self) -> None:
        skill = induce_skill(COATS)
        assert skill.render().splitlines() == [
            "When to use: put the <1:item> away",
            "1. take <1:item>",
            "2. open <2:item>",
            "3. put <1:item> in <2:item>",
            "Seen: <1> = cup, <2> = cupboard",
            "Seen: <1> = gray coat, <2> = wardrobe",
            "Seen: <1> = white duvet, <2> = big chest",
        ]
        assert [step.succeeded_ids for step in skill.steps] == [("e1", "e2", "e3")] * 3
        assert skill.slots[0].values == ("cup", "gray coat", "white duvet")
        assert skill.name == "put-away"

    def test_the_order_of_episodes_does_not_matter(self) -> None:
        shuffled = list(COATS)
        for seed in range(5):
            random.Random(seed).shuffle(shuffled)
            assert induce_skill(shuffled) == induce_skill(COATS)

    def test_a_step_of_the_minority_is_no_step(self) -> None:
        assert not any("look around" in step.template for step in induce_skill(COATS).steps)

    def test_without_a_shared_step_the_shortest_way_stands_in(self) -> None:
        skill = induce_skill(
            [
                lived(1, "fix it", "alpha one", "beta two"),
                lived(2, "fix it", "gamma three"),
                lived(3, "fix it", "delta", "eps"),
            ]
        )
        assert [step.template for step in skill.steps] == ["gamma three"]
        assert skill.steps[0].succeeded_ids == ("e2",)

    def test_equal_episodes_have_no_slots(self) -> None:
        skill = induce_skill([lived(number, "feed the cat", "open tin", "fill bowl") for number in range(3)])
        assert skill.slots == ()
        assert skill.render() == "When to use: feed the cat\n1. open tin\n2. fill bowl"

    def test_tasks_without_common_wording_are_named_by_their_frequent_words(self) -> None:
        tasks = ("medals by country, please", "I want to see which country won medals", "country table: medals?")
        skill = induce_skill([lived(number, task, "sum medals") for number, task in enumerate(tasks)])
        assert skill.use == "tasks on country, medals"

    def test_failures_become_pitfalls_with_counts_by_episode(self) -> None:
        failures = [
            lived(7, "put the coat away", "take coat", "put coat in desk", success=False, feedback="no\n reward"),
            lived(8, "put the coat away", "put coat in desk", success=False, feedback="no reward"),
            lived(9, "put the hat away", "eat hat", success=False),
        ]
        skill = induce_skill(COATS, failures)
        assert [(each.action, each.feedback, each.episode_ids) for each in skill.pitfalls] == [
            ("put coat in desk", "no reward", ("e7", "e8")),
            ("eat hat", "", ("e9",)),
        ]
        assert skill.render().endswith("Avoid: put coat in desk (no reward)\nAvoid: eat hat")
        assert skill.steps[0].failed_ids == ("e7",)

    def test_the_structure_survives_json(self) -> None:
        failure = lived(9, "put the hat away", "eat hat", success=False)
        skill = induce_skill(COATS, [failure]).described("Put things away.")
        text = json.dumps(skill.to_dict())
        assert Skill.from_dict(json.loads(text)) == skill
        assert "\\u00" not in text

    def test_long_actions_are_cut(self) -> None:
        skill = induce_skill([lived(number, "write", "word " * 900) for number in range(3)])
        assert len(skill.steps[0].template) == 240


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"status": "interrupted"}, False),
        ({"status": "running", "success": None}, False),
        ({"success": False}, False),
        ({"trajectory": ()}, False),
        ({"trajectory": (("seen", " \u200b"),)}, False),
        ({"metadata": {"rolled_back": True}}, False),
    ],
)
def test_what_counts_as_a_success(changes: dict[str, Any], expected: bool) -> None:
    fields: dict[str, Any] = {"trajectory": (("seen", "done"),), "success": True, "status": "succeeded"} | changes
    assert counts_as_success(EpisodicNode(task_description="t", **fields)) is expected


class TestGroundedText:
    SOURCES = ("Task: average medals by country\nAction: used python_api on medals.csv\nOutcome: 3.5",)

    @pytest.mark.parametrize(
        "answer",
        [
            "Use the python_api on medals.csv.",
            "1. Read medals.csv\n2. Average the medals by country",
            "<think>hm</think>Averages by country come from the python_api",
            "Step-by-step: average the medals by country",
        ],
    )
    def test_what_the_episodes_say_is_taken(self, answer: str) -> None:
        assert grounded_text(answer, self.SOURCES, 600) is not None

    @pytest.mark.parametrize(
        "answer",
        [
            "",
            "the of and",
            "Open the spreadsheet viewer and look carefully.",
            "Use the python_api on olympics.csv for medals by country.",
            "Average medals by country is 4.5",
            "Average medals by country, as Excel does",
            "Average medals by country for Zürich-West",
            '{"skill": "average medals by country"}',
            "medals " * 400,
            "average medals by country " * 40,
            None,
            ["medals"],
        ],
    )
    def test_what_they_do_not_say_is_refused(self, answer: object) -> None:
        assert grounded_text(answer, self.SOURCES, 600) is None
