"""Induction without a model: alignment, slots, support, pitfalls; and which added text is grounded."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import Alternative, EpisodicNode, Followed, Skill, Step
from fluxmem_local.stages import antiunification
from fluxmem_local.stages.antiunification import align, anti_unify, similarity, words_of
from fluxmem_local.stages.grounding import grounded_text
from fluxmem_local.stages.induction import induce_skill
from fluxmem_local.stages.teaching import counts_as_success, share_subject


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

    @given(*[st.lists(st.sampled_from(["open", "the", "box", "b", "Box"]), max_size=6)] * 2)
    def test_similarity_is_that_of_bags_of_words(self, one: list[str], other: list[str]) -> None:
        bags = [Counter(word.casefold() for word in words) for words in (one, other)]
        total = len(one) + len(other)
        expected = 0.65 * 2 * (bags[0] & bags[1]).total() / total if total else 1.0
        if one and other and one[0].casefold() == other[0].casefold() != "b":
            expected += 0.35
        texts = [words_of(" ".join(words)) for words in (one, other)]
        assert similarity(*texts) == pytest.approx(expected)

    def test_what_long_episodes_repeat_is_compared_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[object] = []
        compare = antiunification._similarity
        monkeypatch.setattr(antiunification, "_similarity", lambda *pair: asked.append(pair) or compare(*pair))
        ways = [words_of(text) for text in ("go to the hall", "go to the attic", "take lamp")]
        pairs = align(ways * 40, ways * 40)
        assert pairs == [(place, place) for place in range(120)]
        assert len(asked) == 9

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
        assert skill.render().endswith(
            "Avoid, it ended the task: put coat in desk (no reward)\nAvoid, it ended the task: eat hat"
        )
        assert skill.steps[0].failed_ids == ("e7",)

    def test_what_others_did_in_a_steps_place_is_its_alternative(self) -> None:
        ways = (("light stove", "e1"), ("light stove", "e2"), ("light stove", "e3"), ("start blast furnace", "e4"))
        lives = [
            EpisodicNode(
                id=id,
                task_description=f"melt the {metal}",
                trajectory=(
                    ("a kitchen", f"take {metal}"),
                    (f"you have {metal}", heat),
                    ("it is hot", f"pour {metal}"),
                ),
                success=True,
                feedback=f"the {metal} is liquid",
                created_at=1.0,
            )
            for (heat, id), metal in zip(ways, ("lead", "tin", "zinc", "iron"), strict=True)
        ]
        burnt = lived(9, "melt the gold", "take gold", "start blast furnace", success=False, feedback="burnt")
        skill = induce_skill(lives, [burnt])
        assert [step.template for step in skill.steps] == ["take <1:item>", "light stove", "pour <1:item>"]
        assert skill.steps[1].alternatives == (
            Alternative(template="start blast furnace", succeeded_ids=("e4",), failed_ids=("e9",)),
        )
        assert skill.steps[0].alternatives == skill.steps[2].alternatives == ()
        assert skill.render().splitlines()[2] == "2. light stove | or: start blast furnace"
        assert [step.followed_by for step in skill.steps] == [
            (Followed(text="you have <1:item>", count=4),),
            (Followed(text="it is hot", count=3),),
            (Followed(text="the <1:item> is liquid", count=4),),
        ]

    def test_a_step_without_a_majority_way_has_the_most_frequent_one_first(self) -> None:
        ways = ("go north", "go north", "go north", "swim over", "swim over", "fly")
        skill = induce_skill(
            [
                lived(number, "reach the far hut", "take map", way, "enter hut")
                for number, way in enumerate(ways, start=1)
            ]
        )
        assert [step.template for step in skill.steps] == ["take map", "go north", "enter hut"]
        others = [(other.template, other.succeeded_ids) for other in skill.steps[1].alternatives]
        assert others == [("swim over", ("e4", "e5")), ("fly", ("e6",))]

    def test_only_what_nothing_like_it_ever_went_on_after_ends_a_task(self) -> None:
        wrong = [
            lived(7, "put the hat away", "take hat", "eat hat", success=False, feedback="you die"),
            lived(8, "put the cap away", "open box", "take cap", "open lid", "open bin", success=False),
        ]
        skill = induce_skill(COATS, wrong)
        assert {pitfall.action: pitfall.final for pitfall in skill.pitfalls} == {"eat hat": True, "open bin": False}
        assert skill.render().endswith("Avoid, it ended the task: eat hat (you die)\nAvoid: open bin")

    def test_a_step_that_no_success_did_is_unsupported(self) -> None:
        skill = Skill(name="s", use="u", steps=(Step(template="rm -rf x"), Step(template="ls", succeeded_ids=("e1",))))
        assert [step.unsupported for step in skill.steps] == [True, False]
        assert skill.render().splitlines()[1:] == ["1. rm -rf x (unsupported: never seen to succeed)", "2. ls"]

    def test_what_an_earlier_version_stored_is_read(self) -> None:
        old = {
            "name": "put-away",
            "use": "put the <1:item> away",
            "steps": [{"template": "take <1:item>", "words": ["take"], "succeeded_ids": ["e1"], "failed_ids": []}],
            "slots": [{"number": 1, "kind": "item", "values": ["cup"]}],
            "examples": [["cup"]],
            "pitfalls": [{"action": "eat cup", "feedback": "", "episode_ids": ["e2"]}],
            "description": "",
            "of a later version": 1,
        }
        skill = Skill.from_dict(old)
        assert (skill.steps[0].alternatives, skill.steps[0].followed_by, skill.pitfalls[0].final) == ((), (), False)

    @pytest.mark.parametrize(
        "data",
        [
            None,
            [],
            "text",
            {},
            {"steps": 1},
            {"steps": [{}]},
            {"steps": [{"template": 1}]},
            {"steps": [{"template": "a", "succeeded_ids": "e1"}]},
            {"steps": [], "slots": [{"number": 1, "kind": "item"}], "examples": [["a", "b"]]},
            {"steps": [], "name": 3},
        ],
    )
    def test_what_is_no_structure_is_refused(self, data: object) -> None:
        with pytest.raises(InvalidInputError, match="no structure of a skill"):
            Skill.from_dict(data)

    def test_the_structure_survives_json(self) -> None:
        failure = lived(9, "put the hat away", "eat hat", success=False)
        skill = replace(induce_skill(COATS, [failure]), description="Put things away.")
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


def family(*episodes: tuple[str, tuple[str, ...]]) -> list[EpisodicNode]:
    return [lived(number, task, *actions) for number, (task, actions) in enumerate(episodes, start=1)]


class TestSlotsInSteps:
    def test_what_varies_with_the_task_is_its_slot_also_within_words(self) -> None:
        apps = (("shop", "staging"), ("blog", "production"), ("wiki", "staging"))
        skill = induce_skill(
            family(
                *(
                    (
                        f"Deploy {app} to {stage}",
                        (
                            "git pull",
                            f"kubectl rollout restart {app}-web -n {stage}",
                            f"curl https://{app}.{stage}.example/health",
                        ),
                    )
                    for app, stage in apps
                )
            )
        )
        assert skill.render().splitlines() == [
            "When to use: Deploy <1:item> to <2:item>",
            "1. git pull",
            "2. kubectl rollout restart <1:item>-web -n <2:item>",
            "3. curl https://<1:item>.<2:item>.example/health",
            "Seen: <1> = blog, <2> = production",
            "Seen: <1> = shop, <2> = staging",
            "Seen: <1> = wiki, <2> = staging",
        ]
        assert len(skill.slots) == 2

    def test_letters_that_only_some_share_with_the_task_are_a_slot_of_their_own(self) -> None:
        skill = induce_skill(
            family(*((f"fly to {city}", (f"search {code}",)) for city, code in (("Oslo", "OSL"), ("Kyiv", "IEV"))))
        )
        assert [step.template for step in skill.steps] == ["search <2:item>"]

    def test_an_extra_word_of_one_episode_is_no_slot(self) -> None:
        pulls = ("git pull", "git pull", "git pull --rebase")
        skill = induce_skill(family(*((f"update {name}", (pull,)) for name, pull in zip("abc", pulls, strict=True))))
        assert [step.template for step in skill.steps] == ["git pull"]
        assert len(skill.slots) == 1

    def test_an_example_names_no_value_that_it_has_not(self) -> None:
        skill = induce_skill(family(("open box", ("open",)), ("open box now", ("open",)), ("open box", ("open",))))
        assert skill.render().splitlines()[2:] == ["Seen: <1> = now"]

    def test_marks_in_texts_are_no_slots(self) -> None:
        odd = "\x01\U000f0005\x02"
        skill = induce_skill(family(*((f"send {name}", (f"send {odd}{name}x",)) for name in ("ab", "cd"))))
        assert len(skill.slots) >= 1

    @given(
        names=st.lists(st.text("abcdefgh", min_size=2, max_size=6), min_size=3, max_size=5, unique=True),
        others=st.lists(st.text("mnopqrst", min_size=2, max_size=6), min_size=5, max_size=5, unique=True),
        affixes=st.tuples(*[st.sampled_from(["", "x-", "-w", ".log", "(", "/v1/"])] * 4),
    )
    @settings(max_examples=60, deadline=None)
    def test_each_step_filled_with_an_example_is_what_was_done(
        self, names: list[str], others: list[str], affixes: tuple[str, ...]
    ) -> None:
        one, two, three, four = affixes
        episodes = family(
            *(
                (f"move {name} over to {other}", (f"open {one}{name}{two} now", f"put it at {three}{other}{four}"))
                for name, other in zip(names, others, strict=False)
            )
        )
        skill = induce_skill(episodes)
        for place, step in enumerate(skill.steps):
            filled = {
                re.sub(r"<(\d+):\w+>", lambda found, row=row: row[int(found[1]) - 1], step.template)  # type: ignore[misc]
                for row in skill.examples
            }
            assert filled == {episode.trajectory[place][1] for episode in episodes}
        assert len(skill.slots) == 2


ASKED = (
    ("Who approves deployments?", "Maria approves deployments."),
    ("Where does Ana live?", "Ana lives in Porto."),
    ("When does the backup start?", "The backup starts at two."),
)


@pytest.mark.parametrize(
    ("task", "trajectory", "expected"),
    [
        *((task, [("", answer)], False) for task, answer in ASKED),
        ("who approves deployments", [("", "Maria")], False),
        ("谁批准部署？", [("", "玛丽亚")], False),
        ("How many users are there?", [("", " "), ("", "12")], False),
        ("How do I restart nginx?", [("", "Restart it with systemctl.")], True),
        ("Can you restart nginx?", [("", "systemctl restart nginx")], True),
        ("Restart nginx", [("", "systemctl restart nginx")], True),
        ("Which country has most medals?", [("", "sum_rows(medals)")], True),
        ("Which country has most medals?", [("", "used the script: Norway")], True),
        ("Where is the cup?", [("a kitchen", "open cupboard")], True),
        ("Where is the cup?", [("", "open cupboard"), ("", "take cup")], True),
    ],
)
def test_an_answer_alone_is_no_experience(task: str, trajectory: list[tuple[str, str]], expected: bool) -> None:
    episode = EpisodicNode(task_description=task, trajectory=tuple(trajectory), success=True)
    assert counts_as_success(episode) is expected


def test_what_was_asked_of_the_memory_is_marked_and_teaches_nothing() -> None:
    told = EpisodicNode(
        task_description="capital of Peru", trajectory=(("", "Lima"),), success=True, metadata={"answered": True}
    )
    assert not counts_as_success(told)


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (("Deploy shop", "Feed the cat", "Write a haiku on rain"), False),
        (("Do it for Ana", "Do it for Ben", "Do it for Cleo"), False),
        (
            (
                "Give the net sales of the ten largest stores",
                "Give the cost by channel for July",
                "Give everyone a longer weekend after releases",
            ),
            False,
        ),
        (("Deploy shop to staging", "Deploy blog to production", "please deploy the wiki"), True),
        (("restart the nginx service", "bring nginx up again", "nginx is down, restart it"), True),
        (("feed the cat",) * 3, True),
        (("feed the cat",) * 4 + ("water the plants",), True),
        (("feed the cat",) * 3 + ("water the plants",), False),
        (("把红色的杯子放回去", "把蓝色的盘子放回去", "把绿色的碗放回去"), True),
        ((), False),
    ],
)
def test_tasks_need_a_subject_in_common(tasks: tuple[str, ...], expected: bool) -> None:
    assert share_subject(family(*((task, ("did",)) for task in tasks))) is expected
