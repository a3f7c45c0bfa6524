"""The graph page, read as a browser's parser would; what it looks like was looked at."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from fluxmem_local.graph import (
    DistillEdge,
    Edge,
    Edit,
    EpisodicNode,
    GroundEdge,
    Node,
    ProceduralNode,
    SemanticNode,
    SkillVersion,
    StepLinkEdge,
)
from fluxmem_local.types import NodeState, Scope
from fluxmem_local.viewer import MOST_NODES, render_graph_page

_VOID = {"meta", "input", "br", "link", "img"}
HOSTILE = (
    "</script><script>alert(1)</script><!--<script> ]]> & \" ' \u2028 \ud800 \u202e "
    "<img src=http://evil.example/x onerror=y>"
)


class Page(HTMLParser):
    """Collects elements, and checks that they close in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    @property
    def graph(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.texts["script"][0])
        return data


def small_graph() -> tuple[list[Node], list[Edge], list[Edit]]:
    fact = SemanticNode(id="f", content="coats hang in the wardrobe", source="notes.md", count=2)
    episode = EpisodicNode(
        id="e",
        task_description="put the coat away",
        trajectory=(("hall", "open wardrobe"),),
        success=False,
        feedback="no",
    )
    skill = ProceduralNode(
        id="s",
        skill_text="Open the wardrobe first.",
        metadata={"name": "put-away"},
        scope=Scope(user="ada"),
        state=NodeState.DEMOTED,
        version=2,
        pems_score=0.25,
        version_history=(SkillVersion(version=1, skill_text="Open it.", pems_score=0.2, ended_because="replaced"),),
    )
    edges: list[Edge] = [
        GroundEdge(source_id="f", target_id="e", weight=0.5, success_count=1),
        DistillEdge(source_id="e", target_id="s"),
        StepLinkEdge(source_id="e", target_id="f"),
    ]
    return [fact, episode, skill], edges, [Edit(kind="prune", targets=("f",), reason="it misled", round=1, kept=True)]


def test_all_of_a_graph_is_in_the_page() -> None:
    nodes, edges, edits = small_graph()
    page = Page(render_graph_page(nodes, edges, title="My memory", edits=edits))
    graph = page.graph
    assert [node["id"] for node in graph["nodes"]] == ["f", "e", "s"]
    assert graph["nodes"][0]["source"] == "notes.md"
    assert graph["nodes"][1]["trajectory"] == [["hall", "open wardrobe"]]
    assert graph["nodes"][2]["versions"][0]["ended_because"] == "replaced"
    assert graph["nodes"][2]["scope"] == {"user": "ada"}
    assert [(edge["kind"], edge["source"], edge["target"]) for edge in graph["edges"]] == [
        ("ground", "f", "e"),
        ("distill", "e", "s"),
        ("step", "e", "f"),
    ]
    assert graph["edits"][0]["reason"] == "it misled"
    assert page.texts["title"] == ["My memory"] == page.texts["h1"]


def test_an_empty_memory_has_a_page() -> None:
    assert Page(render_graph_page([], [], title="empty")).graph["nodes"] == []


def test_nothing_is_loaded_and_nothing_may_connect() -> None:
    nodes, edges, edits = small_graph()
    text = render_graph_page(nodes, edges, title="My memory", edits=edits)
    page = Page(text)
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(", text)
    assert not any({"src", "href", "srcset", "action"} & attributes.keys() for _, attributes in page.elements)
    (policy,) = [a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_the_policy_lets_exactly_the_pages_own_script_and_style_run() -> None:
    page = Page(render_graph_page([], [], title="t"))
    (policy,) = [a["content"] for _, a in page.elements if "http-equiv" in a]
    for kind, text in (("script", page.texts["script"][1]), ("style", page.texts["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in (policy or "")


def test_hostile_text_stays_text_everywhere() -> None:
    nodes: list[Node] = [
        SemanticNode(id=HOSTILE, content=HOSTILE, source=HOSTILE, scope=Scope(user=HOSTILE)),
        EpisodicNode(
            id="e", task_description=HOSTILE, trajectory=((HOSTILE, HOSTILE),), feedback=HOSTILE, success=True
        ),
        ProceduralNode(id="s", skill_text=HOSTILE, metadata={"name": HOSTILE}),
    ]
    edits = [Edit(kind=HOSTILE, targets=(HOSTILE,), reason=HOSTILE)]
    edges = [GroundEdge(source_id=HOSTILE, target_id="e")]
    text = render_graph_page(nodes, edges, title="</title>" + HOSTILE, edits=edits)
    text.encode("utf-8")
    page = Page(text)
    plain = Page(render_graph_page([], [], title="t"))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert page.graph["nodes"][0]["content"] == HOSTILE
    assert page.graph["edits"][0]["reason"] == HOSTILE
    assert page.texts["h1"][0].startswith("</title></script>")


@pytest.mark.parametrize("marker", ["%%graph%%", "%%script%%", "%%policy%%"])
def test_text_that_looks_like_the_templates_marks_is_only_text(marker: str) -> None:
    page = Page(render_graph_page([SemanticNode(content=marker)], [], title=marker))
    assert page.graph["nodes"][0]["content"] == marker
    assert page.texts["title"] == [marker]


def test_the_most_connected_nodes_are_shown_when_there_are_too_many() -> None:
    facts = [SemanticNode(id=f"f{number}", content=f"fact {number}") for number in range(MOST_NODES + 10)]
    episode = EpisodicNode(id="e", task_description="t", success=True)
    linked = [fact.id for fact in facts[MOST_NODES:]]
    edges: list[Edge] = [GroundEdge(source_id=id, target_id="e") for id in linked]
    graph = Page(render_graph_page([*facts, episode], edges, title="large")).graph
    shown = {node["id"] for node in graph["nodes"]}
    assert len(shown) == MOST_NODES
    assert {"e", *linked} <= shown
    assert (graph["total_nodes"], len(graph["edges"])) == (MOST_NODES + 11, 10)


def test_edges_to_nodes_elsewhere_are_left_out() -> None:
    nodes, edges, _ = small_graph()
    graph = Page(render_graph_page(nodes[:2], edges, title="part")).graph
    assert [edge["kind"] for edge in graph["edges"]] == ["ground", "step"]
    assert graph["total_edges"] == 3


def test_very_long_text_is_cut_and_says_so() -> None:
    graph = Page(render_graph_page([SemanticNode(content="word " * 2000)], [], title="t")).graph
    assert graph["nodes"][0]["content"].endswith("… (10000 characters in all)")
