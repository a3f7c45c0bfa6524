"""Nobody's words reach anybody else, whatever is done with a memory and however often it is opened again."""

from __future__ import annotations

import io
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluxmem_local import FluxMem, FluxMemConfig, Scope
from fluxmem_local.errors import NotFoundError
from fluxmem_local.results import to_json
from fluxmem_local.testing import HashEmbedder, ScriptedLLM
from fluxmem_local.types import Layer, NodeState

SCOPES = {
    "ada": Scope(user="ada"),
    "ben": Scope(user="ben"),
    "ada at work": Scope(user="ada", session="work"),
    "bot of ben": Scope(user="ben", agent="bot"),
    "everyone": Scope(),
}
# A word that stands in whatever is said in a scope, and nowhere else.
WORD = {name: f"zq{number}zq" for number, name in enumerate(SCOPES)}
CONFIG = FluxMemConfig(min_support=2, max_refinement_rounds=3, llm_weight=0.3)
QUESTIONS = ("the lease of the flat", "deploy the web service", " ".join(WORD.values()))


def _causes(context: str, feedback: str) -> dict[str, Any]:
    """Blame a fact of the context, in a way that depends on the feedback."""
    ids = [part.split('"')[1] for part in context.split("id=")[1:]]
    action = ("expand", "prune", "reshape")[len(feedback) % 3]
    return {
        "type": "over_generalization" if action == "reshape" else "missing_context",
        "action": action,
        "details": feedback,
        "targets": ids[:1],
        "granularity": "fine" if action == "reshape" else None,
    }


def _opened(folder: Path) -> FluxMem:
    llm = ScriptedLLM(
        {
            "attribute_failure": _causes,
            "reshape_content": lambda node_content, target_granularity, context: f"{node_content} {context[-200:]}",
            "refine_skill": lambda skill_text, feedback: f"{skill_text} {feedback}",
        }
    )
    return FluxMem(llm, HashEmbedder(32), CONFIG, path=folder)


def _add(memory: FluxMem, who: str, number: int) -> None:
    text = f"The lease of flat {number} ends in May, says {WORD[who]}."
    memory.add_knowledge(text, source=f"{WORD[who]}.txt", metadata={"by": WORD[who]}, scope=SCOPES[who])
    # The same words of each: what is equal must not become one across scopes.
    memory.add_knowledge("The rent of the flat is 900.", source=f"{WORD[who]}.txt", scope=SCOPES[who])


def _task(memory: FluxMem, who: str, number: int) -> None:
    tries: list[str] = []

    def deploy(context: str) -> tuple[str, str, bool]:
        tries.append(context)
        good = len(tries) > number % 3
        return f"did {WORD[who]}", "" if good else f"{WORD[who]} {'!' * number} needs port 8080 of the flat", good

    memory.run_task(f"deploy the web service of the flat for {WORD[who]}", deploy, scope=SCOPES[who])
    for context in tries:
        _check(who, context)


def _record(memory: FluxMem, who: str, number: int) -> None:
    seen = [node.id for node in memory.store.select(layers=(Layer.SEMANTIC,), scope=SCOPES[who])]
    steps = [(f"saw {WORD[who]}", "deploy --port 8080"), ("it is up", f"tell {WORD[who]}")]
    memory.record_episode(
        f"deploy the web service {number}", steps, number % 4 != 0, f"{WORD[who]} is glad", seen[:2], SCOPES[who]
    )


def _update(memory: FluxMem, who: str, number: int) -> None:
    own = [node for node in memory.store.select(scope=SCOPES[who]) if node.scope == SCOPES[who]]
    if own:
        node = own[number % len(own)]
        memory.update(node.id, f"{WORD[who]} says now: flat {number} is let.")


def _consolidate(memory: FluxMem, who: str, number: int) -> None:
    memory.consolidate()


def _undo(memory: FluxMem, who: str, number: int) -> None:
    edits = [edit for edit in memory.store.edits() if edit.kept]
    if edits:
        memory.undo(edits[number % len(edits)].id)


STEPS = {
    "add": _add,
    "task": _task,
    "record": _record,
    "update": _update,
    "consolidate": _consolidate,
    "undo": _undo,
}


def _hidden_from(who: str) -> set[str]:
    return {WORD[name] for name, scope in SCOPES.items() if not SCOPES[who].sees(scope)}


def _check(who: str, shown: str) -> None:
    told = {word for word in _hidden_from(who) if word in shown}
    assert not told, f"{who} was shown {told} in: {shown:.2000}"


def _shown(memory: FluxMem, who: str, moments: list[float]) -> Iterator[str]:
    """Everything that one scope can get out of a memory, now and as it was at moments past."""
    scope = SCOPES[who]
    for question in QUESTIONS:
        for as_of in (None, "any", *moments):
            for hit in memory.retrieve(question, top_k=50, layers=list(Layer), scope=scope, as_of=as_of):
                yield json.dumps(to_json(hit), default=str)
            yield memory.context(question, scope=scope, as_of=as_of).replace(question, "")
    for node in memory.store.select(scope=scope, states=tuple(NodeState)):
        yield json.dumps(to_json(node), default=str)
        yield json.dumps(to_json(memory.get(node.id, scope=scope)), default=str)
        yield json.dumps([to_json(entry) for entry in memory.history(node.id, scope=scope)], default=str)
    lines = io.StringIO()
    memory.export(lines, scope=scope)
    yield lines.getvalue()


STEP = st.tuples(st.sampled_from(sorted(STEPS)), st.sampled_from(sorted(SCOPES)), st.integers(0, 5))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(st.lists(STEP, min_size=1, max_size=6), min_size=2, max_size=3))
def test_no_scope_is_shown_another_ones_words(openings: list[list[tuple[str, str, int]]]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "memory")
        moments: list[float] = []
        for steps in openings:
            with _opened(folder) as memory:
                for step, who, number in steps:
                    STEPS[step](memory, who, number)
                assert memory.verify().problems == ()
            moments.append(time.time())
        with _opened(folder) as memory:
            for who in SCOPES:
                for shown in _shown(memory, who, moments[:1]):
                    _check(who, shown)


def test_a_repair_of_a_shared_fact_stays_with_the_task_that_made_it(tmp_path: Path) -> None:
    with _opened(tmp_path / "memory") as memory:
        (fact,) = memory.add_knowledge("The rent of the flat is 900.")
        tries: list[str] = []

        def deploy(context: str) -> tuple[str, str, bool]:
            tries.append(context)
            return "did it", "Ada's secret: too coarse, spell out the port 8080 of the flat", len(tries) > 1

        memory.run_task("deploy the web service of the flat", deploy, scope={"user": "ada"})
        (variant,) = memory.store.variants(fact)
        assert (variant.scope, "secret" in variant.content) == (Scope(user="ada"), True)
        assert [node.id for node in memory.store.select(layers=(Layer.SEMANTIC,), scope=Scope(user="ben"))] == [fact]
        for scope, actions in (
            (None, ["added", "reshaped into"]),
            ({"user": "ada"}, ["added", "reshaped into"]),
            ({"user": "ben"}, ["added"]),
            ({}, ["added"]),
        ):
            assert [entry.action for entry in memory.history(fact, scope=scope)] == actions


@pytest.mark.parametrize("asker", [{"user": "ben"}, {}, {"agent": "ada"}])
def test_what_is_somebody_elses_is_not_found_as_if_it_were_not_there(asker: dict[str, str | None]) -> None:
    with FluxMem(None, None) as memory:
        (id,) = memory.add_knowledge("The lease ends in May.", scope={"user": "ada"})
        for read in (memory.get, memory.history):
            with pytest.raises(NotFoundError) as hidden:
                read(id, scope=asker)
            with pytest.raises(NotFoundError) as absent:
                read("nowhere", scope=asker)
            assert str(hidden.value).replace(id, "nowhere") == str(absent.value)
            assert read(id, scope={"user": "ada"}) == read(id)


def test_an_export_of_a_scope_is_a_memory_of_its_own(tmp_path: Path) -> None:
    with _opened(tmp_path / "memory") as memory:
        for who in SCOPES:
            _add(memory, who, 1)
            _record(memory, who, 1)
            _task(memory, who, 1)
        everything, own = io.StringIO(), io.StringIO()
        memory.export(everything)
        num_lines = memory.export(own, scope={"user": "ada"})
        assert num_lines == len(own.getvalue().splitlines())
        expected = {node.id for node in memory.store.select(scope=Scope(user="ada"))}
    own.seek(0)
    with _opened(tmp_path / "copy") as copy:
        copy.import_(own)
        assert {node.id for node in copy.store.select()} == expected
        assert {node.scope.user for node in copy.store.select()} == {None, "ada"}
        assert copy.verify().problems == ()
        again = io.StringIO()
        copy.export(again)
        assert again.getvalue() == own.getvalue()
