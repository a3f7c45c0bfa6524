"""Every argument of every public method, given everything that it cannot be: a typed error, and nothing is stored."""

from __future__ import annotations

import inspect
import io
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluxmem_local import (
    DistillEdge,
    EpisodicNode,
    FluxMem,
    FluxMemAgent,
    FluxMemConfig,
    GroundEdge,
    ProceduralNode,
    Scope,
    SemanticNode,
    SkillVersion,
    StepLinkEdge,
)
from fluxmem_local.errors import BlankTextError, ConfigError, DimensionError, FluxMemError, InvalidInputError
from fluxmem_local.testing import HashEmbedder, ScriptedLLM

HALF = "\ud800"
WRONG: dict[str, Any] = {
    "None": None,
    "5": 5,
    "-1": -1,
    "1.5": 1.5,
    "nan": float("nan"),
    "2**70": 2**70,
    "True": True,
    "[]": [],
    "[5]": [5],
    "[None]": [None],
    "[[]]": [[]],
    "['x']": ["x"],
    "{}": {},
    "{5: 5}": {5: 5},
    "object": object(),
    "bytes": b"x",
    "''": "",
    "' '": " ",
    "'x'": "x",
    "NUL": "a\0b",
    "half a surrogate pair": HALF,
    "function": lambda *given: 1,
    "array": np.zeros((2, 2)),
}
ABSENT = {"None"}
ANY_TEXT = {"''", "' '", "'x'", "NUL"}
VISIBLE = {"'x'", "NUL"}
SCOPES = {"None", "{}"}
CALLABLE = {"None", "function"}
MOMENTS = {"None", "5", "-1", "1.5"}


def _solve(context: str) -> tuple[str, str, bool]:
    return "done", "", True


# Method -> (what it is called with, what else each argument may be).
CALLS: dict[str, tuple[dict[str, Any], dict[str, set[str]]]] = {
    "add_knowledge": (
        {
            "text": "Rent is 900.",
            "source": "b.txt",
            "chunk_size": 100,
            "metadata": {"a": 1},
            "scope": {"user": "ada"},
            "markdown": None,
            "added_by": "user",
        },
        {
            "text": VISIBLE,
            "source": ANY_TEXT,
            "chunk_size": {"None", "5", "2**70"},
            "metadata": SCOPES,
            "markdown": {"None", "True"},
        },
    ),
    "add_knowledge_nodes": ({"nodes": [SemanticNode(content="Rent is 900.")]}, {"nodes": {"[]"}}),
    "ingest": (
        {"source": "b.txt", "facts": [SemanticNode(content="Rent is 900.")], "digest": "0", "on_progress": None},
        {"source": ANY_TEXT, "facts": {"[]"}, "digest": ABSENT | ANY_TEXT, "on_progress": CALLABLE},
    ),
    "retrieve": (
        {
            "query": "lease",
            "top_k": 2,
            "layers": ["semantic"],
            "filters": {"a": 1},
            "as_of": None,
            "verify": False,
            "explain": False,
        },
        {
            "query": VISIBLE,
            "top_k": {"5", "2**70"},
            "filters": SCOPES,
            "as_of": MOMENTS,
            "verify": {"True"},
            "explain": {"True"},
        },
    ),
    "context": (
        {"task": "lease", "observation": "shut", "filters": {"a": 1}, "as_of": None, "token_budget": 100},
        {
            "task": ANY_TEXT,
            "observation": ANY_TEXT,
            "filters": SCOPES,
            "as_of": MOMENTS,
            "token_budget": {"None", "5", "2**70"},
        },
    ),
    "run_task": (
        {"task_query": "pay", "execute_fn": _solve, "observations": ["a"], "context_ids": ["f"], "on_event": None},
        {
            "task_query": VISIBLE,
            "observations": {"None", "['x']"},
            "context_ids": {"None", "[]"},
            "on_event": CALLABLE,
        },
    ),
    "run_step": (
        {
            "task_query": "pay",
            "observation": "a",
            "execute_fn": _solve,
            "step_index": 1,
            "context_ids": ["f"],
            "on_event": None,
        },
        {
            "task_query": VISIBLE,
            "observation": ANY_TEXT,
            "step_index": {"5"},
            "context_ids": {"None", "[]"},
            "on_event": CALLABLE,
        },
    ),
    "record_episode": (
        {
            "task": "pay",
            "trajectory": [("a", "b")],
            "success": True,
            "feedback": "",
            "used_ids": ["f"],
            "added_by": "agent",
        },
        {"task": VISIBLE, "trajectory": {"[]"}, "success": {"True"}, "feedback": ANY_TEXT, "used_ids": {"[]"}},
    ),
    "ask": ({"question": "lease", "on_event": None}, {"question": VISIBLE, "on_event": CALLABLE}),
    "consolidate": (
        {"replay_fn": None, "dry_run": True, "max_seconds": None, "max_llm_calls": None},
        {
            "replay_fn": CALLABLE,
            "dry_run": {"True"},
            "max_seconds": {"None", "5", "1.5", "2**70"},
            "max_llm_calls": {"None", "5", "2**70"},
        },
    ),
    # There is no skill to approve, to export or to compare, and no folder to import.
    "approve_skill": ({"id": "f", "approved": True}, {}),
    "export_skills": (
        {"folder": "skills", "ids": [], "force": False},
        {"folder": {"'x'"}, "ids": {"None", "[]"}, "force": {"True"}},
    ),
    "import_skills": ({"folder": "absent"}, {}),
    "diff_skill": ({"id": "f", "other": None}, {}),
    "update": ({"id": "f", "content": "The lease ends in June.", "added_by": "user"}, {"content": VISIBLE}),
    "confirm": ({"ids": ["f"]}, {"ids": {"[]"}}),
    # Without ids, the source named beside them is one of its own.
    "forget": (
        {
            "ids": ["f"],
            "source": None,
            "filters": None,
            "scope": None,
            "before": None,
            "dry_run": False,
            "purge": False,
        },
        {
            "ids": {"[]"},
            "source": ABSENT,
            "filters": ABSENT,
            "scope": ABSENT,
            "before": ABSENT,
            "dry_run": {"True"},
            "purge": {"True"},
        },
    ),
    "reindex": ({"on_progress": None}, {"on_progress": CALLABLE}),
    "backup": ({"path": "copy"}, {"path": {"'x'"}}),
    "restore": ({"backup": "absent", "path": "copy"}, {}),
    "salvage": ({"path": "absent", "target": "copy"}, {}),
    "undo": ({"edit_id": "nothing"}, {}),
    "export": ({"file": io.StringIO()}, {}),
    "import_": ({"file": []}, {}),
    "get": ({"id": "f"}, {}),
    "history": ({"id": "f"}, {}),
    "verify": ({"fix": False}, {"fix": {"True"}}),
    "rebuild_indices": ({}, {}),
}
PARAMETERS = [(method, name) for method, (given, _) in CALLS.items() for name in given]


async def _memory() -> FluxMemAgent:
    agent = FluxMemAgent(ScriptedLLM(), HashEmbedder(16), FluxMemConfig())
    await agent.add_knowledge_nodes([SemanticNode(id="f", content="The lease ends in May.", source="a.txt")])
    await agent.record_episode("pay the rent", [("a", "b")], True, used_ids=["f"], scope={"user": "ada"})
    return agent


def _stored(agent: FluxMemAgent) -> str:
    file = io.StringIO()
    agent.export(file)
    return file.getvalue()


async def _call(agent: FluxMemAgent, method: str, arguments: Mapping[str, Any]) -> None:
    returned = getattr(agent, method)(**arguments)
    if inspect.isawaitable(returned):
        await returned


def test_the_table_holds_every_method_and_argument() -> None:
    methods = {
        name: set(inspect.signature(method).parameters) - {"self"}
        for name, method in inspect.getmembers(FluxMemAgent, inspect.isfunction)
        if not name.startswith("_") and name != "close"
    }
    assert {method: set(given) | {"scope"} for method, (given, _) in CALLS.items()} == {
        method: names | {"scope"} for method, names in methods.items()
    }


@pytest.mark.parametrize(("method", "name"), PARAMETERS, ids=[" ".join(each) for each in PARAMETERS])
async def test_a_wrong_argument_is_a_typed_error_and_changes_nothing(
    method: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given, may_be = CALLS[method]
    accepted = set()
    for label, value in WRONG.items():
        # What a task function returns is known only when it was called, and then the task has begun.
        if name == "execute_fn" and callable(value):
            continue
        with await _memory() as agent:
            before = _stored(agent)
            try:
                await _call(agent, method, {**given, name: value})
            except FluxMemError:
                assert _stored(agent) == before, label
            else:
                accepted.add(label)
    assert accepted == may_be.get(name, SCOPES if name == "scope" else set())


@pytest.mark.parametrize("method", [method for method in CALLS if method != "forget"])
async def test_a_wrong_scope_is_a_typed_error_and_changes_nothing(method: str) -> None:
    if "scope" not in inspect.signature(getattr(FluxMemAgent, method)).parameters:
        return
    with await _memory() as agent:
        before = _stored(agent)
        for label, value in WRONG.items():
            if label not in SCOPES:
                with pytest.raises(InvalidInputError, match="scope"):
                    await _call(agent, method, {**CALLS[method][0], "scope": value})
        assert _stored(agent) == before


def test_forgetting_a_blank_source_is_refused_and_the_safe_way_is_named() -> None:
    with FluxMem(None, None, FluxMemConfig()) as memory:
        memory.add_knowledge("The lease ends in May.")
        memory.add_knowledge("Rent is 900.", source="a.txt")
        for blank in ("", " ", "\u200b"):
            with pytest.raises(InvalidInputError, match=r"is blank.*memory\.store\.select\(source="):
                memory.forget(source=blank)
        assert memory.stats["num_semantic_nodes"] == 2
        ids = [node.id for node in memory.store.select(source="")]
        assert memory.forget(ids).removed == tuple(ids)
        assert [node.content for node in memory.store.select()] == ["Rent is 900."]


@pytest.mark.parametrize(
    ("embedding", "problem"),
    [
        ([1.0, 2.0], r"has shape \(2,\), and \(16,\) is needed"),
        ([float("nan")] * 16, "NaN or infinity"),
        ([0.0] * 16, "only zeros"),
        ("abc", "no array of numbers"),
        ([2**2000] * 16, "no array of numbers"),
    ],
)
async def test_a_bad_vector_of_the_callers_is_not_laid_on_the_embedder(embedding: Any, problem: str) -> None:
    with await _memory() as agent:
        before = _stored(agent)
        with pytest.raises(DimensionError, match=f"the embedding given with node 'mine' .*{problem}.*leave it out"):
            await agent.add_knowledge_nodes([SemanticNode(id="mine", content="Rent.", embedding=embedding)])
        assert _stored(agent) == before


NODES: dict[type, dict[str, set[str]]] = {
    SemanticNode: {"source": ANY_TEXT, "chunk_index": {"5"}, "count": {"5"}},
    EpisodicNode: {
        "task_description": ANY_TEXT,
        "trajectory": {"[]"},
        "success": {"None", "True"},
        "feedback": ANY_TEXT,
        "status": set(),
    },
    ProceduralNode: {
        "skill_text": ANY_TEXT,
        "version": {"5"},
        "version_history": {"[]"},
        "source_episode_ids": {"[]"},
        "pems_score": {"None", "5", "-1", "1.5", "2**70"},
    },
}
OF_ALL_NODES = {
    # Of an id with NUL, SQLite's lists of ids would find nothing.
    "id": VISIBLE - {"NUL"},
    "content": VISIBLE,
    # Of the wrong size, all of them.
    "embedding": ABSENT,
    "metadata": {"{}"},
    "created_at": {"5", "-1", "1.5", "2**70"},
    "scope": set(),
    "state": set(),
    "variant_of": ABSENT,
    "added_by": set(),
    "confirmed_at": {"5", "-1", "1.5", "2**70", *ABSENT},
}
NODE_FIELDS = [(kind, name) for kind in NODES for name in (*OF_ALL_NODES, *NODES[kind])]


def test_the_table_holds_every_field_of_every_node() -> None:
    for kind, own in NODES.items():
        assert {spec.name for spec in fields(kind)} == {*OF_ALL_NODES, *own}


@pytest.mark.parametrize(("kind", "name"), NODE_FIELDS, ids=[f"{kind.__name__} {name}" for kind, name in NODE_FIELDS])
async def test_a_node_with_a_wrong_field_is_a_typed_error_and_is_not_stored(kind: type, name: str) -> None:
    accepted = set()
    for label, value in WRONG.items():
        with await _memory() as agent:
            before = _stored(agent)
            try:
                await agent.add_knowledge_nodes([kind(**{"content": "Rent is 900.", name: value})])
            except FluxMemError:
                assert _stored(agent) == before, label
            else:
                accepted.add(label)
                assert agent.verify().ok, label
    assert accepted == {**OF_ALL_NODES, **NODES[kind]}[name]


@pytest.mark.parametrize("trajectory", ["abc", b"abc", 5, None, {"a": "b"}, [5], ["ab"], [b"ab"], [("a",)], [{1, 2}]])
def test_a_trajectory_of_something_else_is_refused_where_it_is_made(trajectory: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"\(observation, action\) pair"):
        EpisodicNode(content="pay", trajectory=trajectory)


def test_a_trajectory_may_be_any_list_of_pairs() -> None:
    assert EpisodicNode(content="pay", trajectory=[["a", 5], ("b", "c")]).trajectory == (("a", "5"), ("b", "c"))
    assert EpisodicNode(content="pay", trajectory=iter([("a", "b")])).trajectory == (("a", "b"),)


@pytest.mark.parametrize("name", ["version", "skill_text", "pems_score", "created_at", "ended_because"])
async def test_a_past_version_with_a_wrong_field_is_refused(name: str) -> None:
    with await _memory() as agent:
        past = SkillVersion(**{"version": 1, "skill_text": "shut it", name: [5]})
        with pytest.raises(InvalidInputError):
            await agent.add_knowledge_nodes([ProceduralNode(content="shut the door", version_history=(past,))])


@pytest.mark.parametrize("kind", [GroundEdge, DistillEdge, StepLinkEdge])
async def test_an_edge_with_a_wrong_field_is_a_typed_error_and_is_not_stored(kind: type) -> None:
    may_be = {
        "id": VISIBLE - {"NUL"},
        "weight": {"5", "-1", "1.5", "2**70"},
        "created_at": {"5", "-1", "1.5", "2**70"},
        "metadata": {"{}"},
        "success_count": {"5"},
        "failure_count": {"5"},
        "step_index": {"5"},
    }
    nodes = [
        SemanticNode(id="fact", content="a"),
        EpisodicNode(id="episode", content="b"),
        ProceduralNode(id="skill", content="c"),
    ]
    source = "fact" if kind is GroundEdge else "episode"
    target = "skill" if kind is DistillEdge else "episode" if kind is GroundEdge else "fact"
    with await _memory() as agent:
        await agent.add_knowledge_nodes(nodes)
        for spec in fields(kind):
            accepted = set()
            for label, value in WRONG.items():
                before = _stored(agent)
                edge = kind(**{"source_id": source, "target_id": target, spec.name: value})
                try:
                    with agent.store.transaction() as change:
                        change.add_edges([edge])
                except FluxMemError:
                    assert _stored(agent) == before, label
                else:
                    accepted.add(label)
            assert accepted == may_be.get(spec.name, set()), spec.name


async def test_what_is_no_edge_is_refused() -> None:
    with await _memory() as agent, agent.store.transaction() as change:
        for value in WRONG.values():
            with pytest.raises(InvalidInputError, match="is no edge"):
                change.add_edges([value])


@pytest.mark.parametrize("part", ["user", "agent", "session"])
def test_a_scope_with_a_wrong_part_is_refused(part: str) -> None:
    for label, value in WRONG.items():
        if label in {"None", "'x'", "NUL", "half a surrogate pair"}:
            assert getattr(Scope.coerce({part: value}), part) == value
            continue
        for make in (lambda given: Scope(**given), Scope.coerce):
            with pytest.raises(InvalidInputError, match=f"scope {part}="):
                make({part: value})


def test_an_unknown_part_of_a_scope_is_named_whatever_it_is() -> None:
    for unknown in ({5: "x"}, {"team": "x", 5: "x"}, {None: 1}):
        with pytest.raises(InvalidInputError, match="unknown scope part"):
            Scope.coerce(unknown)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="is no scope"):
        Scope().sees("ada")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [spec.name for spec in fields(FluxMemConfig)])
def test_a_setting_of_a_wrong_kind_is_a_config_error(name: str) -> None:
    rule = next(spec.metadata for spec in fields(FluxMemConfig) if spec.name == name)
    for value in WRONG.values():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number or (value is None and rule.get("optional")) or ("choices" in rule and isinstance(value, str)):
            continue
        if name == "retention" and isinstance(value, list) and not value:
            continue
        with pytest.raises(ConfigError, match=f"^{name}="):
            FluxMemConfig(**{name: value})


@pytest.mark.parametrize("make", [FluxMemAgent, FluxMem])
@pytest.mark.parametrize(
    "name", ["llm", "embedder", "config", "path", "semantic_vectorstore", "create", "accept_other_embedder"]
)
def test_a_wrong_argument_of_a_new_memory_is_a_typed_error(make: Any, name: str, tmp_path: Any) -> None:
    fine = {"create": {"True"}, "accept_other_embedder": {"True"}, "path": {"None", "'x'"}}.get(name, {"None"})
    for label, value in WRONG.items():
        if label in fine or (name == "path" and isinstance(value, str) and value == HALF):
            continue
        given = {"llm": None, "embedder": None, "path": tmp_path / "memory", name: value}
        with pytest.raises(InvalidInputError):
            make(**given)
        if not name.endswith("vectorstore"):
            with pytest.raises(InvalidInputError):
                make.open(**given)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_names_no_folder_says_what_is_wrong() -> None:
    for path, problem in (
        ("", "is blank"),
        (" ", "is blank"),
        ("a\0b", "NUL byte"),
        ("~no-such-user/m", "no such user"),
    ):
        with pytest.raises(InvalidInputError, match=problem):
            FluxMem(None, None, path=path)


def test_a_file_that_cannot_take_text_is_named(tmp_path: Any) -> None:
    closed = io.StringIO()
    closed.close()
    with FluxMem(None, None) as memory:
        for file, problem in ((closed, "closed"), (io.BytesIO(), "open for bytes"), ("m.jsonl", "no open file")):
            with pytest.raises(InvalidInputError, match=f"is {problem}; give open"):
                memory.export(file)  # type: ignore[arg-type]
            with pytest.raises(InvalidInputError, match=f"is {problem}; give open"):
                memory.import_(file)  # type: ignore[arg-type]


def test_the_store_takes_ids_as_texts_only() -> None:
    with FluxMem(None, None) as memory:
        for ids in (5, None, "x", [5], [None], [[]], {5: 5}):
            for read in (memory.store.get_many, memory.store.embeddings):
                with pytest.raises(InvalidInputError):
                    read(ids)  # type: ignore[operator]
        with pytest.raises(BlankTextError):
            memory.add_knowledge_nodes([SemanticNode(content="\u200b")])
