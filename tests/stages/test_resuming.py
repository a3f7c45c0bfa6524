"""A consolidation that is killed, cancelled or out of budget loses at most the skill it was at."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import EpisodicNode, ProceduralNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.stages import consolidation
from fluxmem_local.stages.budget import Budget
from fluxmem_local.stages.clustering import cluster_episodes
from fluxmem_local.stages.consolidation import ConsolidationReport, StageIII
from fluxmem_local.testing import HashEmbedder, ScriptedLLM
from fluxmem_local.types import Layer

KINDS = {
    "deploy {} to the staging cluster": ("cd {}", "make deploy"),
    "translate the poem {} into Latin": ("open poem {}", "write verses"),
    "water the {} in the garden": ("fill can", "pour on {}"),
}
EMBEDDER = HashEmbedder(64)
NAMES = ("alpha", "beta", "gamma", "delta")


def episodes() -> list[EpisodicNode]:
    return [
        EpisodicNode(
            id=f"{kind}-{name}",
            task_description=task.format(name),
            trajectory=tuple(("", action.format(name)) for action in actions),
            success=True,
            created_at=float(kind * 10 + place),
        )
        for kind, (task, actions) in enumerate(KINDS.items())
        for place, name in enumerate(NAMES)
    ]


async def filled(path: Path | None) -> MemoryStore:
    store = MemoryStore.open(path, dimension=64, fingerprint=EMBEDDER.fingerprint)
    await add(store, *episodes())
    return store


async def add(store: MemoryStore, *nodes: EpisodicNode) -> None:
    vectors = await EMBEDDER.embed_batch([node.content for node in nodes])
    with store.transaction() as change:
        change.add_nodes([replace(node, embedding=row) for node, row in zip(nodes, vectors, strict=True)])


def skills_of(store: MemoryStore) -> dict[str, tuple[str, ...]]:
    nodes = store.select(layers=(Layer.PROCEDURAL,))
    return {
        str(node.metadata["name"]): tuple(sorted(node.source_episode_ids))
        for node in nodes
        if isinstance(node, ProceduralNode)
    }


async def run(store: MemoryStore, replay_fn: Any = None, llm: Any = None, **budget: Any) -> ConsolidationReport:
    stage = StageIII(store, EMBEDDER, llm, FluxMemConfig(num_clusters=3))
    return await stage.run(replay_fn, budget=Budget(**budget))


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, tuple[str, ...]]:
    async def whole() -> dict[str, tuple[str, ...]]:
        store = await filled(None)
        await run(store)
        return skills_of(store)

    found = asyncio.run(whole())
    assert len(found) == 3
    return found


_KILLED = """
    import asyncio, os, signal, sys
    from fluxmem_local.config import FluxMemConfig
    from fluxmem_local.memory_store import MemoryStore, Transaction
    from fluxmem_local.stages.consolidation import StageIII
    from fluxmem_local.testing import HashEmbedder

    def killed_at(kind, name, number):
        inner, calls = getattr(kind, name), []
        def counted(self, *args, **kwargs):
            calls.append(1)
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return inner(self, *args, **kwargs)
        setattr(kind, name, counted)

    where, number = sys.argv[2], int(sys.argv[3])
    calls = []
    def replay(episode, skill):
        calls.append(1)
        if where == "replay" and len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return True
    if where != "replay":
        killed_at(Transaction, where, number)
    embedder = HashEmbedder(64)
    store = MemoryStore.open(sys.argv[1], dimension=64, fingerprint=embedder.fingerprint)
    asyncio.run(StageIII(store, embedder, None, FluxMemConfig(num_clusters=3)).run(replay))
"""


@pytest.mark.parametrize(
    ("where", "number", "finished"),
    [
        ("replay", 1, 0),
        ("replay", 6, 0),
        ("replay", 14, 1),
        ("add_nodes", 1, 0),
        ("add_edges", 1, 0),
        ("add_nodes", 2, 1),
        ("add_edges", 3, 2),
        ("set_meta", 1, 3),
    ],
)
async def test_a_killed_consolidation_goes_on_where_it_was(
    tmp_path: Path, undisturbed: dict[str, tuple[str, ...]], where: str, number: int, finished: int
) -> None:
    (await filled(tmp_path / "memory")).close()
    program = textwrap.dedent(_KILLED)
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "memory"), where, str(number)], check=False, timeout=120
    )
    assert ended.returncode == -signal.SIGKILL
    with MemoryStore.open(tmp_path / "memory", dimension=64, fingerprint=EMBEDDER.fingerprint) as store:
        assert store.verify().ok
        half = skills_of(store)
        assert half.items() <= undisturbed.items()
        assert len(half) == finished
        worked_on: list[str] = []

        def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            worked_on.append(episode.id)
            return True

        report = await run(store, replay)
        assert skills_of(store) == undisturbed
        assert len(report.induced_skills) == 3 - finished
        assert not {id for ids in half.values() for id in ids}.intersection(worked_on)
        again = await run(store, replay)
        assert (again.induced_skills, again.updated_skills) == ((), ())


async def test_a_cancelled_consolidation_keeps_what_was_done(undisturbed: dict[str, tuple[str, ...]]) -> None:
    store = await filled(None)
    began = asyncio.Event()
    calls: list[str] = []

    async def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
        calls.append(episode.id)
        if episode.id.startswith(calls[0][0]):
            return True
        began.set()
        await asyncio.Event().wait()
        return True

    task = asyncio.create_task(run(store, replay))
    await asyncio.wait_for(began.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(skills_of(store)) == 1
    await run(store)
    assert skills_of(store) == undisturbed


class TestIncremental:
    async def test_only_what_has_news_is_worked_on(self) -> None:
        store = await filled(None)
        replayed: list[str] = []

        def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            replayed.append(episode.id[0])
            return True

        await run(store, replay)
        assert set(replayed) == {"0", "1", "2"}
        replayed.clear()
        new = EpisodicNode(
            id="1-new",
            task_description="translate the poem epsilon into Latin",
            trajectory=(("", "open poem epsilon"), ("", "write verses")),
            success=True,
        )
        await add(store, new)
        report = await run(store, replay)
        assert set(replayed) == {"1"}
        assert len(report.updated_skills) == 1
        assert [reason for _, reason in report.kept if reason == "nothing new in its episodes"] == [
            "nothing new in its episodes"
        ] * 2

    async def test_tasks_that_confirm_its_episodes_hold_nothing_up(
        self, undisturbed: dict[str, tuple[str, ...]]
    ) -> None:
        with await filled(None) as store:

            def confirm(episode: EpisodicNode, skill: ProceduralNode) -> bool:
                with store.transaction() as change:
                    change.confirm(skill.source_episode_ids)
                return True

            report = await run(store, confirm)
            assert (report.skipped, skills_of(store)) == ((), undisturbed)

    async def test_the_memory_is_in_use_meanwhile(self, undisturbed: dict[str, tuple[str, ...]]) -> None:
        store = await filled(None)
        added: list[str] = []

        async def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            if len(added) < 5:
                added.append(f"song{len(added)}")
                sung = (("", "sing"),)
                await add(store, EpisodicNode(id=added[-1], task_description="sing", trajectory=sung, success=True))
                assert store.nearest(Layer.EPISODIC, await EMBEDDER.embed_text("sing"), 1)[0][0].startswith("song")
            return True

        report = await run(store, replay)
        assert (report.status, report.skipped) == ("ok", ())
        assert skills_of(store) == undisturbed
        assert store.present(added) == set(added)


class TestBudget:
    async def test_no_further_skill_is_begun_after_the_time_is_over(
        self, undisturbed: dict[str, tuple[str, ...]]
    ) -> None:
        store = await filled(None)
        none = await run(store, seconds=0.0)
        assert (none.status, none.num_left, none.induced_skills) == ("partial", 3, ())

        rest = await run(store)
        assert (rest.status, rest.num_left, len(rest.induced_skills)) == ("ok", 0, 3)
        assert skills_of(store) == undisturbed
        assert (await run(store, seconds=0.0)).status == "ok"

    async def test_a_skill_in_the_middle_of_its_replays_is_left_for_the_next_time(self) -> None:
        store = await filled(None)
        budget = Budget(seconds=1000.0)
        calls: list[str] = []

        def replay(episode: EpisodicNode, skill: ProceduralNode) -> bool:
            calls.append(episode.id)
            if len(calls) == 2:
                budget.seconds = 0.0
            return True

        stage = StageIII(store, EMBEDDER, None, FluxMemConfig(num_clusters=3))
        report = await stage.run(replay, budget=budget)
        assert (report.status, report.num_left, len(calls)) == ("partial", 3, 2)
        assert skills_of(store) == {}

    async def test_the_language_model_is_asked_no_more_often_than_allowed(self) -> None:
        store = await filled(None)
        llm = ScriptedLLM({"extract_skills": lambda trajectories: trajectories[0].splitlines()[0]})
        report = await run(store, llm=llm, llm_calls=1)
        assert (report.status, report.num_left, report.llm_calls, len(llm.calls)) == ("partial", 2, 1, 1)
        assert len(report.induced_skills) == 1
        none = await run(store, llm=llm, llm_calls=0)
        assert (none.status, none.llm_calls, len(none.induced_skills)) == ("ok", 0, 2)


async def test_without_news_the_clusters_of_the_last_run_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await filled(None)
    first = await run(store)
    clustered: list[int] = []

    def counted(episodes: Any, *args: Any, **settings: Any) -> Any:
        clustered.append(len(episodes))
        return cluster_episodes(episodes, *args, **settings)

    monkeypatch.setattr(consolidation, "cluster_episodes", counted)
    again = await run(store)
    assert (clustered, again.clusters, again.updated_skills) == ([], first.clusters, ())
    await add(store, EpisodicNode(id="new", task_description="sing", trajectory=(("", "sing"),), success=True))
    await run(store)
    assert clustered == [13]
