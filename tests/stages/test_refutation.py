"""A step that failed with what a skill's cases suggested takes that out of them, and the next comes up."""

from __future__ import annotations

from fluxmem_local import FluxMemAgent, FluxMemConfig
from fluxmem_local.graph import ProceduralNode
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer

HOMES = {
    "dirty cup": "sink",
    "dirty bowl": "sink",
    "clean cup": "shelf",
    "clean plate": "shelf",
    "gray coat": "wardrobe",
    "red coat": "wardrobe",
}


def task_of(item: str) -> str:
    return f"put the {item} in its usual place"


async def taught() -> FluxMemAgent:
    config = FluxMemConfig(num_clusters=1, top_k_episodic=1)
    agent = FluxMemAgent(None, HashEmbedder(), config)
    for item, home in HOMES.items():
        await agent.record_episode(task_of(item), [("", f"put {item} in {home}")], True)
    await agent.consolidate()
    return agent


def first_seen(context: str) -> str:
    """Follow the skill's first example."""
    seen = next((line for line in context.splitlines() if line.startswith("Seen: ")), "")
    return seen.split("&lt;2&gt; = ")[1].split("<")[0] if seen else "nowhere"


async def test_each_failure_takes_one_place_out_until_the_right_one_comes_up() -> None:
    agent = await taught()
    tried: list[str] = []

    def put(context: str) -> tuple[str, str, bool]:
        tried.append(first_seen(context))
        right = {tried[0], tried[-1]} == {"sink", "shelf"}
        return f"put clean bowl in {tried[-1]}", "" if right else f"it does not belong in {tried[-1]}", right

    before = agent.store.select(layers=(Layer.PROCEDURAL,))
    result = await agent.run_task(task_of("clean bowl"), put)
    # "clean" speaks for the shelf and "bowl" for the sink.
    assert sorted(tried) == ["shelf", "sink"]
    assert result.success
    refuting = [edit for edit in result.edits if edit.kind == "prune" and "refuted" in edit.after]
    assert [edit.after["refuted"] for edit in refuting] == [["clean bowl", place] for place in tried[:-1]]
    assert all(edit.kept for edit in refuting)
    # The skill itself is as it was, and served.
    (skill,) = agent.store.select(layers=(Layer.PROCEDURAL,))
    assert isinstance(skill, ProceduralNode)
    assert [skill] == before
    assert [(each.helped, each.hurt) for each in agent.store.outcomes(node_ids=[skill.id])] == [(1, 0)]
    agent.close()


async def test_an_unsolved_task_leaves_the_skill_and_no_kept_edit() -> None:
    agent = await taught()
    before = agent.store.select(layers=(Layer.PROCEDURAL,))

    def put(context: str) -> tuple[str, str, bool]:
        return f"put clean bowl in {first_seen(context)}", "it does not belong there", False

    result = await agent.run_task(task_of("clean bowl"), put)
    assert not result.success
    assert not any(edit.kept for edit in result.edits)
    assert agent.store.select(layers=(Layer.PROCEDURAL,)) == before
    agent.close()


async def test_a_failure_of_the_world_outside_refutes_little() -> None:
    agent = await taught()
    calls = 0

    def put(context: str) -> tuple[str, str, bool]:
        nonlocal calls
        calls += 1
        return f"put clean bowl in {first_seen(context)}", "connection refused: network is unreachable", False

    result = await agent.run_task(task_of("clean bowl"), put)
    assert not any("refuted" in edit.after for edit in result.edits)
    assert calls == 1
    assert result.attributions[0].action == "none"
    agent.close()
