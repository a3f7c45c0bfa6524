from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from fluxmem_local.agent.results import FailureAttributed, GraphEdited, StepExecuted, TaskFinished
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import BlankTextError, InvalidInputError, NotFoundError
from fluxmem_local.graph import EpisodicNode, SemanticNode
from fluxmem_local.stages.edits import undo_edit
from fluxmem_local.testing import FailingLLM, ScriptedLLM
from fluxmem_local.types import Layer, NodeState
from tests.stages.worlds import (
    CONTEXT,
    OBJECTION,
    REFUSAL,
    SKILL,
    TASK,
    VIEWER,
    Small,
    World,
    add,
    everything,
    small_memory,
)

NEVER = frozenset({"no such node"})


async def test_a_success_at_once_is_executed_once_and_links_what_was_shown() -> None:
    small = await small_memory()
    world = World()
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert (result.success, result.rounds, result.steps, len(world.contexts)) == (True, 1, 1, 1)
    assert result["success"] is True
    assert result.trajectory == (("", "done"),)
    assert result.edits == ()
    assert result.attributions == ()
    ground = small.store.edges(target_ids=[result.episode_id], kinds=("ground",))
    assert {edge.source_id for edge in ground} == {"viewer", "other0"}
    (distill,) = small.store.edges(source_ids=[result.episode_id], kinds=("distill",))
    assert (distill.target_id, dict(distill.metadata)) == ("skill", {"via": "use"})
    helped = {outcome.node_id: (outcome.helped, outcome.hurt) for outcome in small.store.outcomes()}
    assert helped == dict.fromkeys(CONTEXT, (1, 0))
    (known,) = small.store.edges(source_ids=["episode"], target_ids=["skill"])
    assert (known.success_count, known.failure_count) == (1, 0)
    episode = small.store.get(result.episode_id)
    assert isinstance(episode, EpisodicNode)
    assert (episode.status, episode.success, episode.trajectory) == ("succeeded", True, (("", "done"),))
    assert small.store.verify().ok


@pytest.mark.parametrize("limit", [0, 1, 5])
async def test_defect_one_failing_step_called_the_task_function_seven_times(limit: int) -> None:
    small = await small_memory(config=FluxMemConfig(max_refinement_rounds=limit, expand_top_k=1))
    contexts: list[str] = []

    async def execute(context: str) -> tuple[str, str, bool]:
        contexts.append(context)
        # Another failure each time, so that each repair counts as progress.
        return "", (REFUSAL, OBJECTION)[len(contexts) % 2] + " again" * len(contexts), False

    result = await small.runner.run_task(TASK, execute, context_ids=CONTEXT)
    assert not result.success
    assert result.rounds == len(contexts) == 1 + limit
    assert len(result.attributions) == limit
    assert len(set(contexts)) == len(contexts)


async def test_defect_a_success_inside_the_repair_loop_was_run_once_more() -> None:
    small = await small_memory()
    world = World(needed=frozenset({"python"}), noise=frozenset({"viewer"}))
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert result.success
    assert result.rounds == len(world.contexts) == 2
    assert [edit.kind for edit in result.edits] == ["prune", "expand"]
    assert all(edit.kept and edit.round == 1 for edit in result.edits)
    assert result.edits[0].targets == ("viewer",)
    assert result.edits[1].targets == ("python",)
    assert result.attributions[0].action == "prune"
    outcomes = {each.node_id: (each.helped, each.hurt) for each in small.store.outcomes()}
    assert outcomes["viewer"] == (0, 1)
    assert outcomes["python"] == (1, 0)
    ground = small.store.edges(target_ids=[result.episode_id], kinds=("ground",))
    assert {edge.source_id for edge in ground} == {"python", "other0"}


async def test_a_repair_is_there_at_the_first_try_of_the_next_similar_task() -> None:
    small = await small_memory()
    world = World(needed=frozenset({"python"}), noise=frozenset({"viewer"}))
    await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    again = World(needed=frozenset({"python"}), noise=frozenset({"viewer"}))
    result = await small.runner.run_task(TASK + " today", again.execute, on_event=again.listen)
    assert (result.success, result.rounds) == (True, 1)


async def test_reshape_keeps_a_new_version_and_the_original() -> None:
    small = await small_memory()

    class Asking(World):
        async def execute(self, context: str) -> tuple[str, str, bool]:
            self.contexts.append(context)
            done = "skill" not in self.shown and "per athlete as asked" in context
            return ("done", "", True) if done else ("", OBJECTION, False)

    world = Asking()
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert result.success
    (edit,) = [edit for edit in result.edits if edit.kept]
    assert (edit.kind, edit.targets, edit.granularity) == ("reshape", ("skill",), "fine")
    assert small.store.get("skill").content == SKILL
    (variant,) = small.store.variants("skill")
    assert variant.id == edit.after["variants"]["skill"]
    assert variant.state is NodeState.ACTIVE
    assert SKILL in variant.content
    assert OBJECTION.removesuffix(".") in variant.content
    # Defect: reshape kept the old embedding, and the text was never found again.
    expected = await small.embedder.embed_text(variant.content)
    assert small.store.embeddings([variant.id])[0] == pytest.approx(expected, abs=1e-6)
    hits = await small.retriever.retrieve(TASK, top_k=1, layers=("procedural",))
    assert [hit.node.id for hit in hits] == [variant.id]
    sources = {edge.source_id for edge in small.store.edges(target_ids=[variant.id], kinds=("distill",))}
    assert sources == {"episode", result.episode_id}
    # Defect: reshape overwrote every semantic node of the subgraph.
    assert small.store.select(layers=(Layer.SEMANTIC,), states=tuple(NodeState)) == [
        node for node in small.store.select(layers=(Layer.SEMANTIC,)) if node.variant_of is None
    ]
    assert small.store.verify().ok


async def test_an_unsolved_task_leaves_no_trace_in_retrieval() -> None:
    small = await small_memory()
    before = everything(small.store)
    asked = [TASK, REFUSAL, SKILL]
    hits_before = [[(h.node.id, h.score) for h in await small.retriever.retrieve(text, top_k=9)] for text in asked]
    world = World(needed=NEVER, feedback=OBJECTION)
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert not result.success
    assert result.edits
    assert not any(edit.kept for edit in result.edits)
    assert everything(small.store) == before
    for text, hits in zip(asked, hits_before, strict=True):
        now = [(hit.node.id, hit.score) for hit in await small.retriever.retrieve(text, top_k=9)]
        assert [id for id, _ in now] == [id for id, _ in hits]
        assert [score for _, score in now] == pytest.approx([score for _, score in hits], abs=1e-6)
    episode = small.store.get(result.episode_id)
    assert isinstance(episode, EpisodicNode)
    assert (episode.status, episode.success) == ("failed", False)
    assert len(episode.metadata["rounds"]) == result.rounds
    assert all(edit.kept is False for edit in small.store.edits(episode_ids=[result.episode_id]))


async def _learned_by_mistake(small: Small) -> str:
    """A task that was called a success with a useless memory in its context; return the id of that memory's link."""
    world = World(needed=frozenset({"other2"}))
    result = await small.runner.run_task(
        TASK, world.execute, context_ids=("viewer", "other2", "episode"), on_event=world.listen
    )
    (link,) = small.store.edges(source_ids=["other2"], target_ids=[result.episode_id])
    return link.id


@pytest.mark.parametrize(
    ("task", "feedback", "failures"),
    [
        (f"{TASK} again", OBJECTION, 1),
        (f"{TASK} again", "HTTP 503 service unavailable", 0),
        ("Dry the tents before they are packed", OBJECTION, 0),
    ],
)
async def test_a_later_failure_weakens_the_links_of_similar_tasks(task: str, feedback: str, failures: int) -> None:
    small = await small_memory()
    link = await _learned_by_mistake(small)
    world = World(needed=NEVER, feedback=feedback)
    result = await small.runner.run_task(task, world.execute, on_event=world.listen)
    assert not result.success
    counted = {edge.id: (edge.success_count, edge.failure_count) for edge in small.store.edges()}
    assert counted[link] == (0, failures)
    assert small.store.verify().ok


async def test_a_kept_cut_says_what_served_in_its_place() -> None:
    small = await small_memory()
    await add(small, [SemanticNode(id="near", content=VIEWER.replace("rendered grid", "rows"))])
    world = World(needed=frozenset({"near"}), noise=frozenset({"viewer"}))
    context = ("viewer", "other0", "near", "episode")
    result = await small.runner.run_task(TASK, world.execute, context_ids=context, on_event=world.listen)
    (cut,) = [edit for edit in result.edits if edit.kept and edit.kind == "prune"]
    assert (cut.targets, cut.after["instead"]) == (("viewer",), ["near"])


async def test_defect_step_edges_piled_up() -> None:
    small = await small_memory()
    seen = []

    async def execute(context: str) -> tuple[str, str, bool]:
        seen.append(len(small.store.edges(kinds=("step",))))
        return "", REFUSAL, False

    for _ in range(3):
        await small.runner.run_task(TASK, execute, context_ids=CONTEXT)
    assert seen[0] == len(CONTEXT)
    assert small.store.edges(kinds=("step",)) == []


def _raises(**_: Any) -> Any:
    raise RuntimeError("no memory left on the device")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"action": "rewrite everything", "type": "unit"},
        {"action": "reshape", "type": "unit", "granularity": "huge"},
        ["reshape"],
        "reshape",
        None,
        RuntimeError("the backend is gone"),
    ],
)
async def test_defect_unparseable_attribution_fell_back_to_reshape(answer: Any) -> None:
    llm = ScriptedLLM({"attribute_failure": lambda **_: answer})
    small = await small_memory(llm)
    rules = await small_memory()
    results = []
    for each in (small, rules):
        world = World(needed=NEVER)
        results.append(await each.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen))
    heard, silent = results
    assert [attribution.action for attribution in heard.attributions] == [
        attribution.action for attribution in silent.attributions
    ]
    assert {attribution.source for attribution in heard.attributions} == {"rules"}
    assert heard.attributions[0].error
    assert everything(small.store) == everything(rules.store)


async def test_a_garbage_model_changes_nothing_that_stays() -> None:
    garbage = "word " * 58_279
    llm = ScriptedLLM(
        {
            "attribute_failure": lambda **_: {
                "type": "unit",
                "action": "reshape",
                "targets": ["viewer"],
                "granularity": "fine",
                "details": garbage,
            },
            "reshape_content": lambda **_: garbage,
        }
    )
    small = await small_memory(llm)
    before = everything(small.store)
    world = World(needed=NEVER)
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert not result.success
    assert everything(small.store) == before
    assert not any("word word" in context for context in world.contexts)


async def test_a_failing_model_is_recorded_and_the_task_goes_on() -> None:
    small = await small_memory(FailingLLM())
    world = World(needed=frozenset({"python"}), noise=frozenset({"viewer"}))
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert result.success
    assert result.attributions[0].error.startswith("ModelOutputError")


async def test_a_crashed_model_is_not_asked_again_in_the_task() -> None:
    llm = ScriptedLLM({"attribute_failure": _raises})
    small = await small_memory(llm)
    world = World(needed=NEVER)
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert len(result.attributions) > 1
    assert len(llm.calls_of("attribute_failure")) == 1
    assert result.attributions[0].error == "RuntimeError: no memory left on the device"
    assert result.attributions[1].error == ""


async def test_a_hung_model_ends_in_a_typed_error_and_the_task_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hung(ScriptedLLM):
        async def attribute_failure(self, context: str, feedback: str) -> dict[str, Any]:
            self.asked = getattr(self, "asked", 0) + 1
            await asyncio.sleep(3600)
            return {}

    monkeypatch.setattr("fluxmem_local.stages.attribution.LLM_TIMEOUT_S", 0.01)
    llm = Hung()
    small = await small_memory(llm)
    world = World(needed=NEVER)
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert result.attributions[0].error.startswith("TimeoutError")
    assert llm.asked == 1
    assert result.rounds > 2
    (episode,) = small.store.get_many([result.episode_id])
    assert episode.metadata["attributions"][0]["error"].startswith("TimeoutError")


async def test_a_model_that_crashes_while_it_rewrites_is_recorded_and_not_asked_again() -> None:
    llm = ScriptedLLM({"reshape_content": _raises})
    small = await small_memory(llm)
    world = World(needed=NEVER, feedback=OBJECTION)
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    reshapes = [edit for edit in small.store.edits(episode_ids=[result.episode_id]) if edit.kind == "reshape"]
    assert len(reshapes) > 1
    assert [edit.after.get("llm_error") for edit in reshapes] == [
        "RuntimeError: no memory left on the device",
        *[None] * (len(reshapes) - 1),
    ]
    assert len(llm.calls_of("reshape_content")) == 1


async def test_two_tasks_at_once_do_not_see_each_others_trials() -> None:
    small = await small_memory()
    seen: list[list[str]] = []

    async def execute(context: str) -> tuple[str, str, bool]:
        await asyncio.sleep(0)
        trials = small.store.select(states=(NodeState.TRIAL,))
        if trials:
            found = await small.retriever.retrieve(trials[0].content, top_k=9, layers=tuple(Layer))
            seen.append([hit.node.id for hit in found if hit.node.id in {node.id for node in trials}])
        assert context.count("Step by step") <= 1
        return "", OBJECTION, False

    results = await asyncio.gather(
        *(small.runner.run_task(f"{TASK} {name}", execute, context_ids=CONTEXT) for name in ("one", "two"))
    )
    assert seen
    assert all(found == [] for found in seen)
    assert all(edit.kept is False for result in results for edit in result.edits)
    assert small.store.select(states=(NodeState.TRIAL,)) == []


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt])
async def test_interruption_ends_the_task_cleanly(error: type[BaseException]) -> None:
    small = await small_memory()
    before = everything(small.store)
    calls = []

    async def execute(context: str) -> tuple[str, str, bool]:
        calls.append(context)
        if len(calls) == 2:
            raise error
        return "", OBJECTION, False

    with pytest.raises(error):
        await small.runner.run_task(TASK, execute, context_ids=CONTEXT)
    assert everything(small.store) == before
    (episode,) = [node for node in small.store.select(layers=(Layer.EPISODIC,)) if node.id != "episode"]
    assert isinstance(episode, EpisodicNode)
    assert (episode.status, episode.success) == ("interrupted", False)
    assert episode.metadata["rounds"][0]["feedback"] == OBJECTION
    assert {edit.kept for edit in small.store.edits(episode_ids=[episode.id])} == {False}


async def test_exceptions_and_time_outs_are_feedback() -> None:
    small = await small_memory()
    calls = []

    async def execute(context: str) -> tuple[str, str, bool]:
        calls.append(context)
        if len(calls) == 1:
            raise ValueError("spreadsheet viewer cannot render medals.csv")
        raise TimeoutError

    result = await small.runner.run_task(TASK, execute, context_ids=CONTEXT)
    assert not result.success
    rounds = small.store.get(result.episode_id).metadata["rounds"]
    assert rounds[0]["feedback"].startswith("ValueError: spreadsheet viewer cannot render medals.csv")
    assert "Traceback" in rounds[0]["feedback"]
    assert rounds[1]["feedback"].startswith("TimeoutError")


async def test_huge_feedback_is_kept_whole_and_shown_short() -> None:
    llm = ScriptedLLM()
    small = await small_memory(llm)
    huge = "line of a log\n" * 150_000 + REFUSAL
    result = await small.runner.run_task(TASK, lambda context: ("", huge, False), context_ids=CONTEXT)
    assert small.store.get(result.episode_id).metadata["rounds"][0]["feedback"] == huge
    shown = llm.calls_of("attribute_failure")[0].arguments["feedback"]
    assert len(shown) <= 2000
    assert shown.endswith(REFUSAL)


@pytest.mark.timeout(60)
async def test_one_very_long_word_does_not_stop_the_program() -> None:
    small = await small_memory()
    blob = "x" * 1_000_000
    result = await small.runner.run_task(TASK, lambda context: (blob, f"{REFUSAL} {blob}", False), context_ids=CONTEXT)
    assert (result.success, result.trajectory) == (False, (("", blob),))
    assert result.attributions[0].action == "prune"


@pytest.mark.parametrize("returned", [None, "done", ("done", "", "yes"), ("done", ""), (1, "", True)])
async def test_a_wrong_return_shape_is_an_error_and_leaves_nothing(returned: Any) -> None:
    small = await small_memory()
    before = everything(small.store)
    with pytest.raises(InvalidInputError, match="must return"):
        await small.runner.run_task(TASK, lambda context: returned, context_ids=CONTEXT)
    assert everything(small.store) == before


async def test_a_plain_function_and_a_numpy_truth_value_will_do() -> None:
    small = await small_memory()
    result = await small.runner.run_task(TASK, lambda context: ("done", "", np.bool_(True)))
    assert result.success is True


@pytest.mark.parametrize("task", ["", "  \n", "\u200b"])
async def test_a_blank_task_stores_nothing(task: str) -> None:
    small = await small_memory()
    before = small.store.count()
    with pytest.raises(BlankTextError):
        await small.runner.run_task(task, lambda context: ("", "", True))
    with pytest.raises(BlankTextError):
        await small.runner.record_episode(task, [], True)
    assert small.store.count() == before


async def test_bad_arguments_store_nothing() -> None:
    small = await small_memory()
    before = small.store.count()
    with pytest.raises(InvalidInputError, match="observations"):
        await small.runner.run_task(TASK, lambda context: ("", "", True), observations=[])
    with pytest.raises(InvalidInputError, match="observations"):
        await small.runner.run_task(TASK, lambda context: ("", "", True), observations="one text")
    with pytest.raises(NotFoundError):
        await small.runner.run_task(TASK, lambda context: ("", "", True), context_ids=["nowhere"])
    with pytest.raises(InvalidInputError, match="step_index"):
        await small.runner.run_step(TASK, "", lambda context: ("", "", True), step_index=-1)
    assert small.store.count() == before


async def test_each_observation_is_a_step_and_repairs_carry_over() -> None:
    small = await small_memory()
    world = World(needed=frozenset({"python"}), noise=frozenset({"viewer"}))
    result = await small.runner.run_task(
        TASK, world.execute, observations=["the file is there", "now rank"], context_ids=CONTEXT, on_event=world.listen
    )
    assert result.trajectory == (("the file is there", "done"), ("now rank", "done"))
    assert (result.steps, result.rounds) == (2, 3)
    assert [event.step_index for event in world.events if isinstance(event, StepExecuted)] == [0, 0, 1]


async def test_the_first_unsolved_step_ends_the_task() -> None:
    small = await small_memory()
    result = await small.runner.run_task(
        TASK, lambda context: ("no", "connection refused", False), observations=["a", "b"], context_ids=["other1"]
    )
    assert not result.success
    assert result.trajectory == (("a", "no"),)


async def test_events_come_in_order() -> None:
    small = await small_memory()
    world = World(needed=frozenset({"python"}), noise=frozenset({"viewer"}))
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert [type(event).__name__ for event in world.events] == [
        "RoundStarted",
        "StepExecuted",
        "FailureAttributed",
        "GraphEdited",
        "RoundStarted",
        "StepExecuted",
        "TaskFinished",
    ]
    edited = next(event for event in world.events if isinstance(event, GraphEdited))
    assert [edit.id for edit in edited.edits] == [edit.id for edit in result.edits]
    attributed = next(event for event in world.events if isinstance(event, FailureAttributed))
    assert attributed.attribution == result.attributions[0]
    assert world.events[-1] == TaskFinished(
        episode_id=result.episode_id, step_index=0, round=2, status="succeeded", rounds=2
    )


async def test_run_step_numbers_its_step() -> None:
    small = await small_memory()
    world = World()
    result = await small.runner.run_step(TASK, "row 3", world.execute, step_index=4, on_event=world.listen)
    assert result.trajectory == (("row 3", "done"),)
    assert world.events[0].step_index == 4


async def test_record_episode_links_what_was_used() -> None:
    small = await small_memory()
    id = await small.runner.record_episode(TASK, [("saw", "did")], True, used_ids=["python", "skill"])
    episode = small.store.get(id)
    assert isinstance(episode, EpisodicNode)
    assert (episode.trajectory, episode.status) == ((("saw", "did"),), "succeeded")
    assert [edge.source_id for edge in small.store.edges(target_ids=[id], kinds=("ground",))] == ["python"]
    assert [edge.target_id for edge in small.store.edges(source_ids=[id], kinds=("distill",))] == ["skill"]
    assert {outcome.node_id for outcome in small.store.outcomes(episode_ids=[id])} == {"python", "skill"}
    with pytest.raises(NotFoundError):
        await small.runner.record_episode(TASK, [], True, used_ids=["nowhere"])
    with pytest.raises(InvalidInputError, match="pair"):
        await small.runner.record_episode(TASK, ["abc"], True)  # type: ignore[list-item]


async def test_an_outside_failure_ends_the_loop_early() -> None:
    small = await small_memory()
    result = await small.runner.run_task(
        TASK, lambda context: ("", "HTTP 503 service unavailable, try again later", False), context_ids=["other1"]
    )
    assert (result.rounds, result.edits) == (1, ())
    (attribution,) = result.attributions
    assert (attribution.type, attribution.action) == ("none", "none")
    assert "outside of the memory" in attribution.reason


async def test_undo_works_after_a_restart(tmp_path: Any) -> None:
    path = str(tmp_path / "memory")
    small = await small_memory(path=path)
    world = World(needed=frozenset({"python"}), noise=frozenset({"viewer"}))
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    small.store.close()
    small = await small_memory(path=path, seeded=False)
    for edit in result.edits:
        undone = undo_edit(small.store, edit.id)
        assert undone.kept is False
        assert small.store.get_edit(edit.id) == undone
    left = {each.node_id: (each.helped, each.hurt) for each in small.store.outcomes()}
    assert left.get("viewer", (0, 0)) == (0, 0)
    assert left.get("python", (0, 0)) == (0, 0)
    grounds = small.store.edges(target_ids=[result.episode_id], kinds=("ground",))
    assert {edge.source_id for edge in grounds} == {"other0"}
    small.store.close()


async def test_half_surrogate_pairs_in_what_the_task_function_says_are_written_out() -> None:
    small = await small_memory()
    # What `errors="surrogateescape"` makes of a tool's output.
    good = await small.runner.run_task(TASK, lambda context: ("caf\udce9", "fine\ud800", True), context_ids=CONTEXT)
    assert (good.success, good.result, good.feedback) == (True, r"caf\udce9", r"fine\ud800")

    def fail(context: str) -> tuple[str, str, bool]:
        raise ValueError("no \udce9")

    bad = await small.runner.run_task(TASK, fail, context_ids=CONTEXT)
    assert not bad.success
    assert r"no \udce9" in bad.feedback
    for result, status in ((good, "succeeded"), (bad, "failed")):
        episode = small.store.get(result.episode_id)
        assert isinstance(episode, EpisodicNode)
        assert (episode.status, episode.feedback) == (status, result.feedback)
    assert small.store.edges(kinds=("step",)) == []


async def test_what_cannot_be_stored_is_refused_before_anything_runs() -> None:
    small = await small_memory()
    before = small.store.count()

    def execute(context: str) -> tuple[str, str, bool]:
        raise AssertionError("must not be called")

    run = small.runner
    for asked in (
        run.run_task(TASK, execute, observations=["\udce9"]),
        run.run_step(TASK, "\udce9", execute),
        run.run_step(TASK, "", execute, step_index=2**63),
        run.run_task(TASK, execute, context_ids="viewer"),
        run.record_episode(TASK, [], "no"),  # type: ignore[arg-type]
        run.record_episode(TASK, None, True),  # type: ignore[arg-type]
        run.record_episode(TASK, [], True, feedback=None),  # type: ignore[arg-type]
        run.record_episode(TASK, [], True, used_ids="viewer"),
        run.record_episode(TASK, [], True, used_ids=None),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInputError):
            await asked
    assert small.store.count() == before
