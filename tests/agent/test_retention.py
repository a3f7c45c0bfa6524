"""Rules of retention: shown by `stats`, applied by `consolidate`, by scope, age and number."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import ConfigError
from fluxmem_local.graph import EpisodicNode, ProceduralNode, SemanticNode
from fluxmem_local.settings import load_config
from fluxmem_local.storage.owner_process import OWNER, this_process
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer, Origin, Scope

DAY_S = 86_400.0


def fact(name: str, days: float, user: str | None = None, **fields: Any) -> SemanticNode:
    fields.setdefault("created_at", time.time() - days * DAY_S)
    return SemanticNode(id=name, content=f"what {name} says", scope=Scope(user=user), **fields)


def episode(name: str, days: float, **fields: Any) -> EpisodicNode:
    return EpisodicNode(id=name, task_description=name, created_at=time.time() - days * DAY_S, **fields)


async def kept_under(*rules: dict[str, Any], nodes: list[Any]) -> tuple[set[str], dict[str, str], list[int]]:
    """Return the ids that a consolidation keeps, why the others went, and what `stats` had said before."""
    async with FluxMemAgent(None, HashEmbedder(32), FluxMemConfig(retention=rules)) as agent:
        await agent.add_knowledge_nodes(nodes)
        said = agent.stats["retention"]
        assert [{name: rule[name] for name in given} for given, rule in zip(rules, said, strict=True)] == list(rules)
        planned = await agent.consolidate(dry_run=True)
        assert agent.store.count() == len([node for node in nodes if node.id != "trial"])
        done = await agent.consolidate()
        assert done.forgotten == planned.forgotten
        assert [rule["num_due"] for rule in agent.stats["retention"]] == [0] * len(rules)
        assert (await agent.consolidate()).forgotten == ()
        assert agent.verify().ok
        return {node.id for node in agent.store.select()}, dict(done.forgotten), [rule["num_due"] for rule in said]


async def test_what_is_too_old_goes() -> None:
    nodes = [fact("old", 100), fact("young", 80), episode("lived", 91, success=True), episode("new", 1, success=True)]
    kept, gone, due = await kept_under({"max_age": "90d"}, nodes=nodes)
    assert kept == {"young", "new"}
    assert gone == {"old": "older than 90d (all)", "lived": "older than 90d (all)"}
    assert due == [2]


async def test_only_of_the_named_scope_and_layers() -> None:
    nodes = [fact("a", 100, "ada"), fact("b", 100, "ben"), fact("c", 100), episode("e", 100, success=True)]
    assert (await kept_under({"user": "ada", "max_age": "90d"}, nodes=nodes))[0] == {"b", "c", "e"}
    assert (await kept_under({"layers": ("episodic",), "max_age": "90d"}, nodes=nodes))[0] == {"a", "b", "c"}


async def test_the_oldest_go_of_too_many() -> None:
    nodes = [fact(f"f{day}", day) for day in (5, 3, 4, 1, 2)]
    kept, gone, due = await kept_under({"max_nodes": 3}, nodes=nodes)
    assert (kept, gone["f5"], due) == ({"f1", "f2", "f3"}, "more than 3 (all)", [2])
    assert (await kept_under({"max_nodes": 0}, nodes=nodes))[0] == set()
    assert (await kept_under({"max_nodes": 5}, nodes=nodes))[2] == [0]


async def test_each_user_by_itself() -> None:
    nodes = [fact(f"{user}{day}", day, user) for user in ("ada", "ben", None) for day in (3, 2, 1)]
    kept, gone, _ = await kept_under({"user": "*", "max_nodes": 2, "max_age": "60h"}, nodes=nodes)
    assert kept == {"ada1", "ada2", "ben1", "ben2", "None1", "None2", "None3"}
    assert gone == {"ada3": "older than 60h (user ada)", "ben3": "older than 60h (user ben)"}
    kept, gone, due = await kept_under({"user": "*", "max_nodes": 1}, {"user": "ada", "max_age": "36h"}, nodes=nodes)
    assert (set(gone), due) == ({"ada3", "ada2", "ben3", "ben2"}, [4, 0])


async def test_what_skills_came_from_goes_last_and_with_it_the_skill() -> None:
    nodes: list[Any] = [episode(f"e{day}", day, success=True) for day in (4, 3, 2, 1)]
    skill = ProceduralNode(id="skill", skill_text="do it", source_episode_ids=("e4", "e3"), added_by=Origin.DERIVED)
    kept, gone, _ = await kept_under({"max_nodes": 2}, nodes=[*nodes, skill])
    assert kept == {"e4", "e3", "skill"}
    kept, gone, _ = await kept_under({"max_nodes": 1}, nodes=[*nodes, skill])
    assert (kept, gone["e4"]) == ({"e3", "skill"}, "more than 1 (all)")
    kept, gone, _ = await kept_under({"max_age": "60h"}, nodes=[*nodes, skill])
    assert (kept, gone["skill"]) == ({"e2", "e1"}, "learned from those alone")


async def test_a_running_task_is_left_alone() -> None:
    running = episode("running", 0.2, metadata={OWNER: this_process()})
    assert (await kept_under({"max_age": "1h"}, nodes=[running, fact("old", 1)]))[0] == {"running"}


async def test_without_rules_nothing_is_said_or_done() -> None:
    async with FluxMemAgent(None, HashEmbedder(32), FluxMemConfig()) as agent:
        await agent.add_knowledge_nodes([fact("old", 9999)])
        assert "retention" not in agent.stats
        assert (await agent.consolidate()).forgotten == ()
        assert agent.store.count(Layer.SEMANTIC) == 1


def test_rules_come_from_the_file_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fluxmem.toml").write_text(
        'seed = 7\n[[retention]]\nuser = "ada"\nmax_age = "90d"\n[[retention]]\nlayers = ["episodic"]\nmax_nodes = 10\n'
    )
    first, second = load_config(directory=tmp_path).retention
    assert (first.user, first.max_age, first.layers, first.max_nodes) == ("ada", "90d", ("semantic", "episodic"), None)
    assert (second.whose, second.layers, second.max_nodes) == ("all", ("episodic",), 10)
    monkeypatch.setenv("FLUXMEM_RETENTION", '[{"max_age": "2w"}]')
    assert [rule.max_age for rule in load_config(directory=tmp_path).retention] == ["2w"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("90d", "must list rules"),
        (["90d"], "retention='90d' is no rule; give tables with user"),
        ([{"age": "90d"}], "unknown name 'age'"),
        ([{"max_age": "soon"}], "max_age='soon' is no age"),
        ([{"max_age": 90}], "max_age=90 is no age"),
        ([{"max_nodes": -1}], "max_nodes=-1 must be a whole number"),
        ([{"max_nodes": True}], "max_nodes=True"),
        ([{"user": " ", "max_age": "1d"}], "user=' ' is not a name"),
        ([{"layers": "semantic", "max_age": "1d"}], "must list layers"),
        ([{"layers": ["dreams"], "max_age": "1d"}], "'dreams' is no layer"),
        ([{"user": "ada"}], "limits nothing"),
    ],
)
def test_a_rule_that_is_none_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FluxMemConfig(retention=given)


def test_the_environment_must_be_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXMEM_RETENTION", "90d")
    with pytest.raises(ConfigError, match=r"retention must be JSON.*FLUXMEM_RETENTION"):
        load_config()
