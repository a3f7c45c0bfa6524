"""TextWorld Commonsense: what the policy sees and does, and a short run of the benchmark with wide bounds."""

from __future__ import annotations

import importlib.util
import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
CONTEXT = """<context><task>put the white duvet in its usual place</task><observation></observation>
<semantic_memory>
<fact id="f">gray coat belongs in wardrobe</fact><fact id="g">the house has stairs</fact>
</semantic_memory><episodic_memory>
<episode id="a" success="true"><steps><step><action>put black cap in hat rack</action></step></steps></episode>
<episode id="b" success="false"><steps><step><action>put white duvet in sink</action></step></steps></episode>
</episodic_memory><procedural_memory>
<skill id="s" version="1" structure='{"slots":[{"number":1,"kind":"item"},{"number":2,"kind":"item"}],
"steps":[{"action":"put &lt;1:item&gt; in &lt;2:item&gt;"}],"examples":[["plaid duvet","chest of drawers"]],
"pitfalls":[{"action":"put black duvet in shower"}]}'>When to use: put the &lt;1:item&gt; in its usual place</skill>
</procedural_memory></context>"""


@pytest.fixture(scope="module")
def twc_policy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("twc_policy", SCRIPTS / "evaluation" / "twc_policy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["twc_policy"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def alike(one: str, other: str) -> float:
    """Share of words in common."""
    words, others = set(one.split()), set(other.split())
    return len(words & others) / max(len(words), len(others))


class Flat:
    """A hall and a room to its east, played by the rules of the game."""

    rooms = {
        "hall": "You are in the hall. You see a hat rack, that has nothing on it. There is also a white duvet. ",
        "room": "You are in the room. You see a chest of drawers that is closed. There is also a sofa, that is empty. ",
    }
    places = {"hall": ("hat rack",), "room": ("sofa",)}

    def __init__(self) -> None:
        self.room = "hall"
        self.open = False
        self.carried = False
        self.put_in = ""

    @property
    def admissible(self) -> tuple[str, ...]:
        actions = ["move east" if self.room == "hall" else "move west", "look around"]
        if not self.carried and self.put_in in ("", *self.here):
            actions += ["take white duvet"] if self.room == "hall" or self.put_in else []
        if self.carried:
            actions += [f"put white duvet in {place}" for place in self.here]
        if self.room == "room" and not self.open:
            actions.append("open chest of drawers")
        return tuple(actions)

    @property
    def here(self) -> tuple[str, ...]:
        return (*self.places[self.room], *(("chest of drawers",) if self.room == "room" and self.open else ()))

    def do(self, action: str) -> str:
        if action.startswith("move "):
            self.room = "room" if action == "move east" else "hall"
            return self.rooms[self.room]
        if action == "open chest of drawers":
            self.open = True
        elif action == "take white duvet":
            self.carried = True
        elif action.startswith("put "):
            self.carried, self.put_in = False, action.removeprefix("put white duvet in ")
        return f"Done: {action}."


def follow(policy: object, flat: Flat, observation: str, context: str, task: str) -> Iterator[str]:
    while (action := policy.act(context, task, observation, flat.admissible)) is not None:  # type: ignore[attr-defined]
        observation = flat.do(action)
        yield action
        if action.startswith("put "):
            return


def test_the_policy_sees_a_context_a_task_an_observation_and_actions_and_nothing_else(twc_policy: ModuleType) -> None:
    assert list(inspect.signature(twc_policy.Policy.act).parameters) == [
        *("self", "context", "task", "observation", "admissible"),
    ]
    assert list(inspect.signature(twc_policy.read_context).parameters) == ["context"]
    source = (SCRIPTS / "evaluation" / "twc_policy.py").read_text(encoding="utf-8")
    imported = {line.split()[1] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert imported == {
        *("__future__", "json", "re", "collections", "collections.abc", "dataclasses", "xml.etree"),
        "fluxmem_local.graph",
    }


def test_a_context_says_what_belongs_where_and_what_does_not(twc_policy: ModuleType) -> None:
    said = twc_policy.read_context(CONTEXT)
    assert said.belongs == {
        ("gray coat", "wardrobe"),
        ("black cap", "hat rack"),
        ("plaid duvet", "chest of drawers"),
    }
    assert said.refused == {("white duvet", "sink"), ("black duvet", "shower")}
    assert twc_policy.read_context("") == twc_policy.Said()


def test_the_policy_explores_takes_and_follows_the_context(twc_policy: ModuleType) -> None:
    flat = Flat()
    policy = twc_policy.Policy(alike)
    explored = list(follow(policy, flat, Flat.rooms["hall"], "", "Your task is to tidy up."))
    assert explored == ["take white duvet", "move east"]
    assert policy.carried == ["white duvet"]
    assert policy.seen == "Places here: chest of drawers, hat rack, sofa."
    task = "put the white duvet in its usual place"
    assert list(follow(policy, flat, Flat.rooms["room"], CONTEXT, task)) == [
        "open chest of drawers",
        "put white duvet in chest of drawers",
    ]
    # It was no success, so that the same place is not tried again.
    assert list(follow(policy, flat, "no reward", CONTEXT, task))[:2] == [
        "take white duvet",
        "put white duvet in sofa",
    ]


@pytest.mark.real_model
@pytest.mark.timeout(600)
def test_a_short_run_finds_the_memory_worth_more_than_retrying(tmp_path: Path) -> None:
    if importlib.util.find_spec("textworld_express") is None:
        pytest.skip("textworld-express is not installed; the extra bench has it")
    if shutil.which("java") is None:
        pytest.skip("there is no Java here; on Debian: apt-get install openjdk-17-jre-headless")
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(SCRIPTS / "bench_twc.py"), "--fold", "dev", "--seed-base", "15000", "--games", "10"]
    command += ["--arms", "none+retry,all", "--episodes", str(tmp_path / "episodes.jsonl"), "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(figures.read_text(encoding="utf-8"))
    by_arm = {row["arm"]: row for row in measured["arms"]}
    assert measured["training"]["gold_success"] == 1.0
    assert by_arm["none+retry"]["n"] == by_arm["all"]["n"] == 10
    assert by_arm["none+retry"]["context_tokens"] == 0 < by_arm["all"]["context_tokens"]
    # Over 200 games of this fold it was 0.3 and 0.7.
    assert by_arm["all"]["success"] >= 0.3
    assert by_arm["all"]["score"] >= by_arm["none+retry"]["score"] + 0.05
    assert by_arm["all"]["calls"] < by_arm["none+retry"]["calls"]
