from __future__ import annotations

import inspect
import io
import threading
from pathlib import Path

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.agent.sync import FluxMem
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import BlankTextError, InvalidInputError, ModelNotFoundError
from fluxmem_local.testing import HashEmbedder, ScriptedLLM


def test_the_same_without_asyncio(tmp_path: Path, embedder: HashEmbedder, llm: ScriptedLLM) -> None:
    before = threading.active_count()
    with FluxMem(llm, embedder, path=tmp_path / "m") as memory:
        (id,) = memory.add_knowledge("The lease ends in May.", source="deed")
        assert [hit.node.id for hit in memory.retrieve("lease")] == [id]
        assert "lease ends in May" in memory.context("When does the lease end?")
        assert memory.update(id, "The lease ends in June.").content == memory.get(id).content
        assert [entry.action for entry in memory.history(id)] == ["added", "updated"]
        assert memory.verify().ok
        assert memory.stats["num_semantic_nodes"] == 1
        with pytest.raises(BlankTextError):
            memory.add_knowledge(" ")
        copied = io.StringIO()
        num_lines = memory.export(copied)
        assert num_lines == len(copied.getvalue().splitlines())
        copied.seek(0)
        with FluxMem(None, embedder) as other:
            assert other.import_(copied).num_nodes == 1
            assert other.get(id).content == "The lease ends in June."
        assert memory.forget(id).removed == (id,)
    memory.close()
    assert threading.active_count() == before
    with pytest.raises(InvalidInputError, match="closed"):
        memory.retrieve("lease")


def test_a_plain_task_function_may_call_the_memory(embedder: HashEmbedder, llm: ScriptedLLM) -> None:
    with FluxMem(llm, embedder) as memory:
        memory.add_knowledge("The lease ends in May.")
        contexts: list[str] = []

        def execute(context: str) -> tuple[str, str, bool]:
            contexts.append(context)
            return memory.retrieve("lease", verify=False)[0].node.content, "", True

        result = memory.run_task("When does the lease end?", execute)
        assert (result.success, result.result, result.rounds) == (True, "The lease ends in May.", 1)
        assert result["success"] is True
        assert len(contexts) == 1

        async def execute_later(context: str) -> tuple[str, str, bool]:
            return "done", "", True

        assert memory.run_step("again", "seen", execute_later).result == "done"
        with pytest.raises(InvalidInputError):
            memory.run_task("bad", "no function")  # type: ignore[arg-type]
        assert memory.get(memory.record_episode("swim", [("pool", "jump")], True)).content == "swim"


async def test_works_inside_a_running_loop(embedder: HashEmbedder) -> None:
    with FluxMem(None, embedder) as memory:
        memory.add_knowledge("The lease ends in May.")
        assert len(memory.retrieve("lease")) == 1


def test_a_call_from_its_own_loop_is_an_error_and_no_deadlock(embedder: HashEmbedder, llm: ScriptedLLM) -> None:
    with FluxMem(llm, embedder, FluxMemConfig(max_refinement_rounds=0)) as memory:

        async def execute(context: str) -> tuple[str, str, bool]:
            memory.retrieve("lease")
            return "", "", True

        result = memory.run_task("When does the lease end?", execute)
        assert not result.success
        assert "cannot be called from its own event loop" in result.feedback


def test_a_failed_start_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(ModelNotFoundError):
        FluxMem.open(tmp_path / "m", config=FluxMemConfig(embedding_model=str(tmp_path / "no"), llm_model="none"))
    assert threading.active_count() == before


def test_both_faces_have_the_same_methods() -> None:
    def names(face: type) -> set[str]:
        return {name for name in vars(face) if not name.startswith("_")}

    assert names(FluxMemAgent) <= names(FluxMem)
    for name in names(FluxMemAgent):
        ours, theirs = getattr(FluxMem, name), getattr(FluxMemAgent, name)
        if callable(ours):
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters), name
