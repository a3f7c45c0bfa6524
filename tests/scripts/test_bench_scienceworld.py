"""The ScienceWorld benchmark without the simulator: what the policy sees, what it reads, and how it follows a guide."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fluxmem_local import FluxMemAgent, FluxMemConfig
from fluxmem_local.testing import HashEmbedder

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from bench_scienceworld import play  # noqa: E402
from evaluation.remembering import Remembering  # noqa: E402
from evaluation.scienceworld import Episode, Game, read_episodes, write_episodes  # noqa: E402
from evaluation.scienceworld_guides import (  # noqa: E402
    Route,
    Step,
    Walk,
    adapted,
    agrees,
    by_distance,
    foreign,
    path_to,
    read_context,
    renaming,
)
from evaluation.scienceworld_policy import Policy  # noqa: E402

REFUSED = "No known action matches that input."


async def embed(texts: Sequence[str]) -> np.ndarray:
    """Texts of the same words are the same."""
    rows = np.zeros((len(texts), 64), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.split():
            row[sum(map(ord, word)) % 64] += 1
        row /= max(float(np.linalg.norm(row)), 1e-9)
    return rows


class House:
    """Rooms in a row, each with its own actions; it takes notes of what is done."""

    def __init__(self, rooms: dict[str, list[str]], doors: dict[str, list[str]], start: str) -> None:
        self.rooms, self.doors, self.room = rooms, doors, start
        self.done: list[str] = []
        self.answers: dict[str, list[str]] = {}
        self.fatal: set[str] = set()
        self.over = False

    def admissible(self) -> list[str]:
        return [*self.rooms[self.room], *(f"go to {door}" for door in self.doors[self.room])]

    def act(self, action: str) -> str | None:
        if action not in self.admissible():
            return REFUSED
        self.done.append(action)
        if action in self.fatal:
            self.over = True
            return None
        if action.startswith("go to "):
            self.room = action.removeprefix("go to ")
            return f"You move to the {self.room}."
        answers = self.answers.get(action, ["Done."])
        return answers.pop(0) if len(answers) > 1 else answers[0]


def context(skills: Sequence[str] = (), episodes: str = "", facts: Sequence[str] = ()) -> str:
    return (
        "<context><semantic_memory>"
        + "".join(f"<fact>{fact}</fact>" for fact in facts)
        + f"</semantic_memory><episodic_memory>{episodes}</episodic_memory><procedural_memory>"
        + "".join(f"<skill id='{place}' structure='{skill}'>text</skill>" for place, skill in enumerate(skills))
        + "</procedural_memory></context>"
    )


def episode(id: str, task: str, actions: Sequence[str], *, success: bool = True, feedback: str = "") -> str:
    steps = "".join(f"<step><observation>seen</observation><action>{action}</action></step>" for action in actions)
    return (
        f"<episode id='{id}' success='{str(success).lower()}'><task>{task}</task><steps>{steps}</steps>"
        f"<feedback>{feedback}</feedback></episode>"
    )


LEADS = (
    'After "go to hall" can be done: "go to attic", "go to cellar"',
    'After "go to cellar" can be done: "go to hall"',
)


def two_rooms(**rooms: list[str]) -> House:
    doors = {"hall": ["attic", "cellar"], "attic": ["hall"], "cellar": ["hall"]}
    return House({"hall": [], "attic": [], "cellar": []} | rooms, doors, "cellar")


async def follow(house: House, text: str, task: str) -> str:
    return await Policy(embed).run(text, task, f"This room is called the {house.room}.", house.act, house.admissible)


def test_policy_sees_only_context_task_observation_and_actions() -> None:
    assert list(inspect.signature(Policy.run).parameters) == [
        "self",
        "context",
        "task",
        "observation",
        "act",
        "admissible",
    ]
    assert list(inspect.signature(Policy.__init__).parameters) == ["self", "embed"]
    imported = set()
    for name in ("scienceworld_policy", "scienceworld_guides"):
        tree = ast.parse((SCRIPTS / "evaluation" / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add("." * node.level + (node.module or ""))
    ours = {name for name in imported if name.startswith((".", "fluxmem_local", "scienceworld"))}
    assert ours == {"fluxmem_local.graph.templates", ".scienceworld_guides"}


def test_policy_names_no_family() -> None:
    words = ("boil", "melt", "freez", "thermometer", "conduct", "animal", "plant", "paint", "life", "circuit")
    for name in ("scienceworld_policy", "scienceworld_guides"):
        text = (SCRIPTS / "evaluation" / f"{name}.py").read_text(encoding="utf-8").casefold()
        assert [word for word in words if word in text] == []


def test_read_context_finds_guides_pitfalls_and_places() -> None:
    skill = (
        '{"use":"boil &lt;1:item>","slots":[{"number":1,"kind":"item"}],'
        '"steps":[{"action":"take &lt;1:item>"}],"pitfalls":[{"action":"drop it","final":true},{"action":"wait"}],'
        '"actions":[{"action":"take &lt;1:item>","followed_by":"You have &lt;1:item>."}],'
        '"routes":[{"actions":[0,0],"values":["lead"]}]}'
    )
    died = episode("b", "boil tin", ["eat tin"], success=False, feedback="failed for good by: eat tin")
    gave_up = episode("c", "boil tin", ["look"], success=False, feedback="The task is not completed.")
    memory = read_context(context([skill], episode("a", "boil tin", ["take tin"]) + died + gave_up, LEADS))
    assert [guide.ids for guide in memory.guides] == [("0",), ("a",)]
    assert read_context(context([skill]), ["0"]).guides == []
    take = Step("take <1:item>", "You have <1:item>.")
    assert memory.guides[0].routes[0] == Route((take, take), {1: "lead"}, {1: "lead"})
    assert memory.guides[0].fit("boil gold") == len("boil ")
    assert memory.guides[0].fit("melt gold") == 0
    assert memory.pitfalls == {"drop it", "eat tin"}
    assert memory.leads == {"go to hall": {"go to attic", "go to cellar"}, "go to cellar": {"go to hall"}}


async def test_a_guide_is_followed_by_the_shortest_known_way() -> None:
    house = two_rooms(attic=["take key"])
    guide = episode("a", "get the key", ["go to hall", "go to attic", "take key"])
    assert await follow(house, context(episodes=guide, facts=LEADS), "get the key") == ""
    assert house.done == ["go to hall", "go to attic", "take key"]


async def test_what_cannot_be_done_here_is_reported_and_looked_for_elsewhere() -> None:
    house = two_rooms(attic=["take key"])
    text = context(episodes=episode("a", "get the key", ["take key"]), facts=LEADS)
    assert await follow(house, text, "get the key") == "Could not do here: take key"
    assert house.done == ["go to hall", "go to attic", "take key"]


async def test_what_is_nearest_stands_in_and_its_name_is_kept() -> None:
    house = two_rooms(cellar=["connect blue wire to lamp", "pull blue wire"])
    guide = episode("a", "light", ["connect red wire to lamp", "pull red wire"])
    assert await follow(house, context(episodes=guide), "light") == ""
    assert house.done == ["connect blue wire to lamp", "pull blue wire"]


async def test_pitfalls_hold_back() -> None:
    house = two_rooms(cellar=["focus on door in cellar"])
    guide = episode("a", "find the dog", ["focus on dog in cellar"])
    died = episode("b", "find the cat", ["focus on wall"], success=False, feedback="failed for good by: focus on wall")
    house.fatal = {"focus on door in cellar"}
    assert (
        await follow(house, context(episodes=guide + died), "find the dog")
        == "Could not do here: focus on dog in cellar"
    )
    assert house.done == []
    assert await follow(house, context(episodes=guide), "find the dog") == ""
    assert house.over


async def test_what_may_end_the_game_is_not_done_for_another_kind_of_task_or_twice() -> None:
    house = two_rooms(cellar=["focus on dog"])
    died = episode("b", "find a cat", ["focus on wall"], success=False, feedback="failed for good by: focus on wall")
    other = episode("a", "paint the wall red", ["focus on dog"])
    assert await follow(house, context(episodes=other + died), "find a dog") == "Could not do here: focus on dog"
    assert house.done == []
    twice = episode("c", "find a dog", ["focus on dog", "focus on dog"])
    assert await follow(house, context(episodes=twice + died), "find a dog") == ""
    assert house.done == ["focus on dog"]


async def test_each_guide_is_followed_once_and_what_was_done_is_not_done_again() -> None:
    house = two_rooms(cellar=["take pot", "fill pot", "heat pot"])
    first = episode("a", "make tea", ["take pot", "boil pot on stove"])
    second = episode("b", "make tea", ["take pot", "fill pot", "heat pot"])
    policy, one, both = Policy(embed), context(episodes=first), context(episodes=first + second)
    start = "This room is called the cellar."
    assert await policy.run(one, "make tea", start, house.act, house.admissible) == (
        "Could not do here: boil pot on stove"
    )
    assert await policy.run(both, "make tea", start, house.act, house.admissible) == ""
    assert house.done == ["take pot", "fill pot", "heat pot"]
    assert await policy.run(both, "make tea", start, house.act, house.admissible) == "All remembered ways were tried."


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ("It shows 80 degrees.", True),
        ("It shows 20 degrees.", False),
        ("It is broken.", False),
    ],
)
def test_numbers_must_stand_to_those_of_the_task_as_they_did(seen: str, expected: bool) -> None:
    route = Route((), {1: "100"}, {1: "100"})
    assert agrees(Step("read", "It shows 120 degrees."), route, {1: "50"}, seen) is expected


def _walk(routes: Sequence[Route], given: dict[int, str]) -> Walk:
    return Walk(routes[0], routes, given)


def test_another_observation_leads_to_another_route() -> None:
    works = Route((Step("turn on stove", "It is on."), Step("wait")))
    broken = Route((Step("turn on stove", "It is broken."), Step("go to foundry")))
    walk = _walk((works, broken), {})
    walk.place = 1
    assert walk.go_on("It is broken.", ["turn on stove"], may_return=True) is False
    assert walk.next_action() == "go to foundry"


def test_steps_are_done_again_until_what_is_seen_is_what_was_seen() -> None:
    look = [Step("look", "ice"), Step("wait"), Step("look", "water"), Step("pour")]
    walk = _walk((Route(tuple(look)),), {})
    walk.place = 3
    assert walk.go_on("ice", ["look", "wait", "look"], may_return=True) is True
    assert walk.next_action() == "wait"
    walk.place = 3
    assert walk.go_on("ice", ["look", "wait", "look"], may_return=False) is False
    assert walk.next_action() == "pour"


def test_slots_are_read_off_observations() -> None:
    read = Step("read recipe", "Mix <2:item> and <3:item>.")
    walk = _walk((Route((read, Step("take <3:item>"))),), {1: "bread"})
    walk.place = 1
    walk.go_on("Mix flour and water.", ["read recipe"], may_return=True)
    assert walk.next_action() == "take water"


def test_a_route_is_adapted_to_the_new_task() -> None:
    route = Route((Step("pour <2:item> into pot"),), {1: "apple juice", 2: "cup of apple juice"}, {})
    route = Route(route.steps, route.values, route.values)
    assert adapted(route, {1: "milk"}).values == {1: "apple juice", 2: "cup of milk"}


def test_a_route_that_does_not_name_its_object_is_foreign_to_another_one() -> None:
    unnamed = Route((Step("focus on pot", "You focus on <1:item>."),), {}, {1: "water"})
    named = Route((Step("focus on <1:item>", "You focus on <1:item>."),), {}, {1: "ice"})
    assert foreign(unnamed, {1: "soap"})
    assert not foreign(unnamed, {1: "water"})
    assert not foreign(named, {1: "soap"})


def test_paths() -> None:
    leads = {"a": {"b"}, "b": {"a", "c", "d"}, "d": {"e"}}
    assert path_to(leads, "a", "e") == ["b", "d", "e"]
    assert path_to(leads, "a", "f") == []
    assert by_distance(leads, "a") == ["b", "c", "d", "e"]


def test_renaming_maps_the_words_that_differ() -> None:
    assert renaming("use red wire on lamp", "use blue wire on lamp") == {"red": "blue"}


def test_episodes_are_read_as_they_were_written(tmp_path: Path) -> None:
    lived = Episode(
        family="f", variation=3, kind="gold", task="t", trajectory=(("o", "a"),), success=True, score=100, feedback="ok"
    )
    write_episodes(tmp_path / "deep" / "episodes.jsonl", [lived])
    assert read_episodes(tmp_path / "deep" / "episodes.jsonl") == [lived]


class Server:
    """A simulator's server: a menu for "take", death for "touch", the goal for "win"."""

    def __init__(self) -> None:
        self.score = 0.0

    def reset(self) -> None:
        self.score = 0.25

    def step(self, action: str) -> str:
        if action == "take":
            return "Ambiguous request: Please enter the number:\n0: take red\n1: take blue"
        self.score = {"touch": -1.0, "win": 1.0}.get(action, self.score)
        return {"0": "You take red.", "fly": REFUSED, "look around": "A room."}.get(action, f"You {action}.")

    def getTaskDescription(self) -> str:
        return "Win\nthe game."

    def getScore(self) -> float:
        return self.score

    def getCompleted(self) -> bool:
        return self.score == 1.0

    def getValidActionObjectCombinations(self) -> list[str]:
        return ["take red", "reset task"]


def test_a_game_answers_menus_and_counts_what_was_done() -> None:
    game = Game(Server())
    assert (game.task, game.observation, game.score, game.over) == ("Win the game.", "A room.", 25, False)
    assert game.step("fly") == REFUSED
    assert game.steps == 0
    assert game.step("take") == "You take red."
    assert game.trajectory == [(REFUSED, "take")]
    assert game.admissible() == ["take red"]
    assert game.verdict() == "The task is not completed."
    game.step("win")
    assert (game.success, game.over, game.died, game.verdict()) == (True, True, False, "The task is completed.")


def test_a_game_can_be_lost_and_ends_after_100_steps() -> None:
    lost = Game(Server())
    lost.step("touch")
    assert (lost.died, lost.over, lost.success) == (True, True, False)
    assert lost.verdict() == "The task was failed for good by the last action: touch"
    slow = Game(Server())
    for _ in range(99):
        slow.step("wait")
    assert not slow.over
    slow.step("wait")
    assert slow.over
    assert not slow.died


async def test_a_lost_game_is_one_execution_and_scores_nothing() -> None:
    embedder = Remembering(HashEmbedder())
    config = FluxMemConfig(llm_model="none", max_refinement_rounds=5)
    async with FluxMemAgent(None, embedder, config) as agent:
        await agent.record_episode("Win the game.", [("A room.", "touch")], True)
        played = await play(Game(Server()), agent, embedder)
    assert (played.success, played.score, played.died, played.calls, played.steps) == (False, 0.0, True, 1, 1)
    assert played.context_tokens > 20


async def test_a_game_that_is_won_scores_all() -> None:
    embedder = Remembering(HashEmbedder())
    async with FluxMemAgent(None, embedder, FluxMemConfig(llm_model="none")) as agent:
        await agent.record_episode("Win the game.", [("A room.", "wave"), ("You wave.", "win")], True)
        played = await play(Game(Server()), agent, embedder)
    assert (played.success, played.score, played.died, played.calls, played.steps) == (True, 100.0, False, 1, 2)


async def test_skills_of_a_real_memory_can_be_followed() -> None:
    """Three episodes teach a skill whose routes lead a fourth task through, with its own names."""
    config = FluxMemConfig(llm_model="none", top_k_semantic=12)

    def lived(thing: str, box: str) -> list[tuple[str, str]]:
        return [
            ("This room is called the cellar.", "go to hall"),
            ("You move to the hall.", f"take {thing}"),
            (f"You have the {thing}.", f"put {thing} in {box} box"),
        ]

    async with FluxMemAgent(None, HashEmbedder(), config) as agent:
        for thing, box in (("apple", "red"), ("brush", "blue"), ("candle", "green")):
            await agent.record_episode(f"Put the {thing} into the {box} box.", lived(thing, box), True, "Done.")
        report = await agent.consolidate()
        assert len(report.induced_skills) == 1
        text = await agent.context("Put the dice into the white box.")
    house = two_rooms(hall=["take dice", "put dice in white box", "take apple"])
    assert await follow(house, text, "Put the dice into the white box.") == ""
    assert house.done == ["go to hall", "take dice", "put dice in white box"]
