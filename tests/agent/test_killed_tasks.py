"""What a task leaves whose process was killed, and who ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.graph import EpisodicNode, SemanticNode, StepLinkEdge
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.storage.owner_process import OWNER, this_process
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer

KILLED = """
import asyncio, os, signal, sys
from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.testing import HashEmbedder

async def main():
    agent = FluxMemAgent(None, HashEmbedder(64), path=sys.argv[1])
    await agent.add_knowledge("the gate opens with the green key")
    rounds = []
    def execute(context):
        rounds.append(context)
        if len(rounds) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return "", "too general: which key opens the gate, step by step", False
    await agent.run_task("open the gate with the right key", execute)

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A memory in which a task was killed in its second round."""
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "memory")], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return tmp_path / "memory"


def opened(folder: Path) -> FluxMemAgent:
    return FluxMemAgent(None, HashEmbedder(64), path=folder, create=False)


def the_task(store: MemoryStore) -> EpisodicNode:
    (node,) = store.select(layers=(Layer.EPISODIC,))
    assert isinstance(node, EpisodicNode)
    return node


def test_reading_leaves_it_and_verifying_names_it(folder: Path) -> None:
    with opened(folder) as agent:
        generation = agent.stats["generation"]
        report = agent.verify()
        task = the_task(agent.store)
        assert (report.ok, report.problems) == (True, ())
        assert report.notes == (
            f"task {task.id} is recorded as running, but its process is gone; the next change of this memory ends it, "
            "as does: fluxmem verify --fix",
        )
        assert report.to_dict()["notes"] == list(report.notes)
        assert task.status == "running"
        # One to the fact, one to its version that was on trial.
        assert (agent.stats["num_step_edges"], agent.stats["num_trial_nodes"]) == (2, 1)
        assert agent.stats["generation"] == generation


@pytest.mark.parametrize("how", ["add", "forget", "import", "fix"])
async def test_the_first_change_ends_it_with_all_that_it_left(folder: Path, how: str) -> None:
    with opened(folder) as agent:
        (fact,) = agent.store.select(layers=(Layer.SEMANTIC,))
        if how == "add":
            await agent.add_knowledge("another fact")
        elif how == "forget":
            await agent.forget([fact.id])
        elif how == "import":
            agent.store.import_lines(list(agent.store.export_lines()))
        else:
            assert agent.verify(fix=True).ok
        task = the_task(agent.store)
        assert (task.status, task.success, OWNER in task.metadata) == ("interrupted", False, False)
        assert (agent.stats["num_step_edges"], agent.stats["num_trial_nodes"]) == (0, 0)
        assert [edit.kept for edit in agent.store.edits(episode_ids=[task.id]) if edit.kept is not False] == []
        report = agent.verify()
        assert (report.ok, report.notes) == (True, ())


async def test_a_dry_run_ends_nothing(folder: Path) -> None:
    with opened(folder) as agent:
        await agent.forget([agent.store.select(layers=(Layer.SEMANTIC,))[0].id], dry_run=True)
        assert the_task(agent.store).status == "running"


def test_a_change_that_fails_still_ends_it(folder: Path) -> None:
    with opened(folder) as agent:
        with pytest.raises(RuntimeError, match="no"), agent.store.transaction():
            raise RuntimeError("no")
        assert the_task(agent.store).status == "interrupted"


async def test_the_task_of_a_living_process_goes_on(tmp_path: Path) -> None:
    async with FluxMemAgent(None, HashEmbedder(64), path=tmp_path) as agent:

        async def execute(context: str) -> tuple[str, str, bool]:
            async with FluxMemAgent(None, HashEmbedder(64), path=tmp_path) as other:
                await other.add_knowledge("the gate is green")
                assert other.verify().notes == ()
                assert the_task(other.store).status == "running"
            return "opened", "", True

        assert (await agent.run_task("open the gate", execute)).success
        assert the_task(agent.store).status == "succeeded"


async def test_a_number_that_another_process_has_now_does_not_keep_it_alive(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/stat"):
        pytest.skip("the system has no /proc")
    async with FluxMemAgent(None, HashEmbedder(64), path=tmp_path) as agent:
        owner = {**this_process(), "start": "1"}
        task = EpisodicNode(id="old", task_description="open the gate", metadata={OWNER: owner, "kept": 1})
        await agent.add_knowledge_nodes([task, SemanticNode(id="f", content="a fact")])
        with agent.store.transaction() as change:
            change.add_edges([StepLinkEdge(source_id="old", target_id="f")])
    async with FluxMemAgent(None, HashEmbedder(64), path=tmp_path) as agent:
        await agent.add_knowledge("another fact")
        old = agent.get("old")
        assert isinstance(old, EpisodicNode)
        assert (old.status, old.metadata, agent.stats["num_step_edges"]) == ("interrupted", {"kept": 1}, 0)


def test_running_tasks_are_found_by_their_index(folder: Path) -> None:
    with opened(folder) as agent, agent.store.database.read() as connection:
        from fluxmem_local.memory_store import dead_tasks

        plan = [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {dead_tasks._RUNNING}")]
        assert "SCAN nodes USING INDEX nodes_running" in plan
