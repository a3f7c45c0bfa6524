from __future__ import annotations

from fluxmem_local.graph import EpisodicNode, Route, Skill
from fluxmem_local.stages.induction import induce_skill


def lived(thing: str, box: str, *, broken: bool = False) -> EpisodicNode:
    steps = [("", f"take {thing}"), (f"You have the {thing}.", "turn on lamp")]
    steps += [("It is broken.", "light candle"), ("It burns.", f"put {thing} in {box} box")] if broken else []
    steps += [] if broken else [("It is on.", f"put {thing} in {box} box")]
    return EpisodicNode(
        id=thing * 4,
        task_description=f"Put the {thing} into the {box} box.",
        trajectory=tuple(steps),
        success=True,
        status="succeeded",
        feedback="x" * 200,
    )


SKILL = induce_skill([lived("apple", "red"), lived("brush", "blue"), lived("dice", "green", broken=True)])


def test_a_route_keeps_the_whole_way_of_an_episode_over_the_slots() -> None:
    assert [route.actions for route in SKILL.routes] == [
        ("take <1:item>", "turn on lamp", "put <1:item> in <2:item> box"),
        ("take <1:item>", "turn on lamp", "put <1:item> in <2:item> box"),
        ("take <1:item>", "turn on lamp", "light candle", "put <1:item> in <2:item> box"),
    ]
    assert [route.values[:2] for route in SKILL.routes] == [("apple", "red"), ("brush", "blue"), ("dice", "green")]
    assert [route.episode_ids for route in SKILL.routes] == [("apple" * 4,), ("brush" * 4,), ("dice" * 4,)]


def test_it_tells_what_followed_each_action_unless_that_is_long() -> None:
    assert SKILL.routes[2].followed_by == ("You have the <1:item>.", "It is broken.", "It burns.", "")


def test_the_same_way_with_the_same_values_is_one_route() -> None:
    skill = induce_skill([lived("apple", "red"), lived("apple", "red"), lived("brush", "blue")])
    assert len(skill.routes) == 2


def test_the_outline_writes_each_action_once() -> None:
    outline = SKILL.outline()
    assert [each["action"] for each in outline["actions"]] == [
        "take <1:item>",
        "turn on lamp",
        "put <1:item> in <2:item> box",
        "turn on lamp",
        "light candle",
    ]
    assert [route["actions"] for route in outline["routes"]] == [[0, 1, 2], [0, 1, 2], [0, 3, 4, 2]]


def test_routes_go_through_json() -> None:
    assert Skill.from_dict(SKILL.to_dict()).routes == SKILL.routes
    assert all(isinstance(route, Route) for route in SKILL.routes)
