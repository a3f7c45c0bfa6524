from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

import pytest

from fluxmem_local.errors import NotFoundError
from fluxmem_local.graph import Edit, EpisodicNode, SemanticNode
from fluxmem_local.stages import feedback
from fluxmem_local.stages.edits import Change
from fluxmem_local.stages.feedback import (
    describe_exception,
    lack_sign,
    outside_sign,
    refusal_sign,
    same_feedback,
    specifics,
    trim_feedback,
    wording_sign,
)
from fluxmem_local.stages.proposals import Trial
from fluxmem_local.stages.refinement import Progress, _at_originals, _judged, _staying, _unless_cut
from fluxmem_local.types import Scope

from .worlds import CONTEXT, OBJECTION, REFUSAL, TASK, World, add, everything, small_memory


async def test_a_cut_that_did_not_matter_is_restored_before_the_next_edit() -> None:
    small = await small_memory()
    world = World(needed=frozenset({"nowhere"}))
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    shown = [set(round_["context_ids"]) for round_ in small.store.get(result.episode_id).metadata["rounds"]]
    first = next(edit for edit in result.edits if edit.kind == "prune")
    assert not set(first.targets) & shown[first.round]
    later = shown[first.round + 1 :]
    assert later
    assert all(set(first.targets) <= ids for ids in later[:1])


@pytest.mark.parametrize("success", [True, False])
async def test_what_is_forgotten_while_a_task_uses_it_does_not_stop_the_task(success: bool) -> None:
    small = await small_memory()

    async def execute(context: str) -> tuple[str, str, bool]:
        with contextlib.suppress(NotFoundError):
            small.store.forget(ids=["viewer"])
        return "done", "" if success else "it went wrong", success

    result = await small.runner.run_task(TASK, execute, context_ids=("viewer", "python"))
    assert result.success is success
    grounded = [edge.source_id for edge in small.store.edges(target_ids=[result.episode_id])]
    assert grounded == (["python"] if success else [])
    assert small.store.verify().problems == ()


def test_a_version_that_is_taken_back_in_the_same_round_is_not_brought_in() -> None:
    version, other = SemanticNode(id="version"), SemanticNode(id="other")
    reshape = Change(edit=Edit(kind="reshape", targets=("original",), reason="r"), variants={"original": version})
    expand = Change(edit=Edit(kind="expand", targets=("version", "other"), reason="r"), added=(version, other))
    only = Change(edit=Edit(kind="expand", targets=("version",), reason="r"), added=(version,))
    cut = Change(edit=Edit(kind="prune", targets=("version",), reason="r"), cut=frozenset({"version"}))
    changes = _at_originals([expand, only, cut], [reshape])
    assert [(change.edit.targets, change.added, change.cut) for change in changes] == [
        (("other",), (other,), frozenset()),
        (("original",), (), frozenset({"original"})),
    ]


def test_a_reshape_whose_version_is_cut_goes_with_it_and_the_cut_hits_the_original() -> None:
    version = SemanticNode(id="version")
    reshape = Change(edit=Edit(kind="reshape", targets=("original",), reason="r"), variants={"original": version})
    cut = Change(edit=Edit(kind="prune", targets=("version",), reason="r"), cut=frozenset({"version"}))
    elsewhere = Change(edit=Edit(kind="prune", targets=("other",), reason="r"), cut=frozenset({"other"}))
    assert _unless_cut([reshape, elsewhere], [cut]) == [elsewhere]
    assert _unless_cut([reshape], [elsewhere]) == [reshape]
    (mapped,) = _at_originals([cut], [reshape])
    assert (mapped.edit.targets, mapped.cut) == (("original",), frozenset({"original"}))


def test_an_effect_makes_earlier_tests_count_no_more() -> None:
    progress = Progress(episode=EpisodicNode(id="run"), scope=Scope(), tested=frozenset({"edit"}))
    first = Trial(action="prune", targets=("a",), had_effect=False)
    last = Trial(action="expand", targets=("b",))
    assert _judged([first, last], progress, True) == [replace(last, had_effect=True)]
    assert progress.refuted == set()
    assert _judged([first, last], progress, False) == [first, replace(last, had_effect=False)]
    assert progress.refuted == {"edit"}


def test_refuted_expansions_stay_while_the_loop_goes_on_expanding() -> None:
    expand = Change(edit=Edit(kind="expand", targets=("a",), reason="r"), added=(SemanticNode(id="a"),))
    cut = Change(edit=Edit(kind="prune", targets=("b",), reason="r"), cut=frozenset("b"))
    held = Change(edit=Edit(kind="prune", targets=("c",), reason="r"), cut=frozenset("c"))
    progress = Progress(episode=EpisodicNode(id="run"), scope=Scope(), active=[expand, cut, held])
    progress.refuted = {expand.edit.id, cut.edit.id}
    assert _staying(progress, "expand") == [expand, held]
    assert _staying(progress, "prune") == [held]


async def test_no_edit_is_tried_twice() -> None:
    small = await small_memory()
    world = World(needed=frozenset({"nowhere"}), feedback=OBJECTION)
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    keys = [(edit.kind, edit.targets, edit.granularity) for edit in result.edits]
    assert len(keys) == len(set(keys)) > 1
    assert all(edit.reason for edit in result.edits)


async def test_a_wrong_first_attribution_recovers() -> None:
    small = await small_memory()
    world = World(needed=frozenset({"other1"}), feedback=REFUSAL)
    await add(small, [SemanticNode(id="extra", content="Rendering a grid needs a viewer with memory.")])
    config_rounds = 6
    result = await small.runner.run_task(TASK, world.execute, context_ids=("viewer", "skill"), on_event=world.listen)
    assert result.rounds <= config_rounds
    if result.success:
        kept = [edit for edit in result.edits if edit.kept]
        assert [edit.kind for edit in kept] == ["expand"]
        assert {each.node_id for each in small.store.outcomes() if each.hurt} == set()


@dataclass
class TwoFaults(World):
    """The viewer must go first; then the skill must be spelled out. The feedback tells the two apart."""

    async def execute(self, context: str) -> tuple[str, str, bool]:
        self.contexts.append(context)
        if "viewer" in self.shown or "python" not in self.shown:
            return "", REFUSAL, False
        if "skill" in self.shown or "per athlete as asked" not in context:
            return "total", OBJECTION, False
        return "average", "", True


async def test_the_case_study_is_repaired_in_two_rounds_and_holds() -> None:
    small = await small_memory()
    world = TwoFaults()
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert (result.success, result.rounds) == (True, 3)
    assert [(edit.kind, edit.round, edit.kept) for edit in result.edits] == [
        ("prune", 1, True),
        ("expand", 1, True),
        ("reshape", 2, True),
    ]
    again = TwoFaults()
    second = await small.runner.run_task(f"{TASK}, please", again.execute, on_event=again.listen)
    assert (second.success, second.rounds) == (True, 1)


async def test_an_unsolved_task_deletes_its_versions() -> None:
    small = await small_memory()
    before = everything(small.store)
    world = World(needed=frozenset({"nowhere"}), feedback=OBJECTION)
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert "reshape" in {edit.kind for edit in result.edits}
    assert everything(small.store) == before


async def test_a_refuted_expansion_is_not_kept() -> None:
    small = await small_memory()

    class Asking(World):
        async def execute(self, context: str) -> tuple[str, str, bool]:
            self.contexts.append(context)
            return ("done", "", True) if len(self.contexts) == 4 else ("", OBJECTION, False)

    world = Asking()
    result = await small.runner.run_task(TASK, world.execute, context_ids=CONTEXT, on_event=world.listen)
    assert result.success
    assert {edit.round for edit in result.edits if edit.kept} == {3}
    assert {edit.kept for edit in result.edits if edit.round < 3} == {False}


def test_feedback_is_trimmed_to_head_tail_and_errors() -> None:
    text = "\n".join(["first line", *(["noise"] * 5000), "KeyError: 'seat'", *(["noise"] * 5000), "last line"])
    short = trim_feedback(text, 400)
    assert len(short) <= 400
    assert short.startswith("first line")
    assert short.endswith("last line")
    assert "KeyError: 'seat'" in short
    assert trim_feedback("short", 400) == "short"
    assert len(trim_feedback("x" * 2_000_000, 1200)) <= 1200


def test_megabytes_of_feedback_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr(feedback, "_matching_lines", lambda text: searched.append(text) or ["error: here"])
    text = "a line of the log\n" * 1000
    assert "error: here" in trim_feedback(text, 400)
    assert trim_feedback(text, 400) == trim_feedback(text, 400)
    assert len(searched) == 1


def test_the_same_failure_with_other_numbers_is_the_same() -> None:
    assert same_feedback("timeout after 31 s at 0x7f3a", "timeout  after 29 s at 0x1f3a")
    assert not same_feedback(REFUSAL, OBJECTION)
    assert same_feedback("", "")


@pytest.mark.parametrize(
    "text",
    [
        "psql: connection refused",
        "Request timed out",
        "504 Gateway Timeout",
        "ssh: no such host",
        "[Errno 13] Permission denied",
        "No space left on device",
        "all departures of 9 July cancelled because of a strike",
    ],
)
def test_signs_of_the_outside_world(text: str) -> None:
    assert outside_sign(text) is not None


@pytest.mark.parametrize("text", ["rendering timed out", "expected 503 rows", "KeyError: 'x'", "the total is wrong"])
def test_no_signs_of_the_outside_world(text: str) -> None:
    assert outside_sign(text) is None


def test_wording() -> None:
    assert wording_sign("The procedure is too coarse", "fine") == "too coarse"
    assert wording_sign("too specific to one host", "coarse") == "too specific"
    assert wording_sign("wrong result", "fine") is None


def test_instance_marks() -> None:
    assert specifics("Order V-55120 of 3 May at /var/log/x.log on web-2, snake_case") == {
        "v-55120",
        "3",
        "/var/log/x.log",
        "web-2",
        "snake_case",
    }
    assert specifics("no marks here") == frozenset()


def test_an_exception_becomes_text() -> None:
    try:
        raise KeyError("seat")
    except KeyError as error:
        text = describe_exception(error)
    assert text.startswith("KeyError: 'seat'")
    assert "test_an_exception_becomes_text" in text


def test_refusals_and_lacks() -> None:
    assert refusal_sign(REFUSAL) == "RenderLimitError"
    assert refusal_sign("viewer cannot render it") == "cannot render"
    assert refusal_sign("the sum is wrong") is None
    assert lack_sign("LookupError: no tool to read the table is known") == "no tool to read the table is known"
    assert lack_sign("the table is known") is None
