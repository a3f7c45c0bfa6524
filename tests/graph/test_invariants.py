"""The graph's rules name what breaks them."""

from __future__ import annotations

import pytest

from fluxmem_local.graph import DistillEdge, EpisodicNode, GroundEdge, SemanticNode, StepLinkEdge
from fluxmem_local.graph.invariants import edge_problems, node_problems
from fluxmem_local.types import Layer, NodeState

LAYERS = {"fact": Layer.SEMANTIC, "run": Layer.EPISODIC, "done": Layer.EPISODIC, "skill": Layer.PROCEDURAL}


@pytest.mark.parametrize(
    ("edge", "expected"),
    [
        (GroundEdge(id="e", source_id="fact", target_id="done"), []),
        (DistillEdge(id="e", source_id="done", target_id="skill"), []),
        (StepLinkEdge(id="e", source_id="run", target_id="fact"), []),
        (
            GroundEdge(id="e", source_id="done", target_id="fact"),
            ["ground edge e goes from a episodic to a semantic node"],
        ),
        (GroundEdge(id="e", source_id="x", target_id="done"), ["ground edge e dangles: node x is not there"]),
        (
            StepLinkEdge(id="e", source_id="done", target_id="fact"),
            ["step edge e was not collected: done is no running episode"],
        ),
    ],
)
def test_edges(edge, expected):
    assert list(edge_problems(edge, LAYERS, {"run"})) == expected


@pytest.mark.parametrize(
    ("node", "trial_of", "expected"),
    [
        (SemanticNode(id="n", content="x"), None, []),
        (SemanticNode(id="n", content="x", state=NodeState.TRIAL), "run", []),
        (
            SemanticNode(id="n", content="x", state=NodeState.TRIAL),
            "done",
            ["node n was left on trial: done is no running episode"],
        ),
        (EpisodicNode(id="n", content="x"), None, []),
        (EpisodicNode(id="n", content="x", status="interrupted"), None, []),
        (EpisodicNode(id="n", content="x", status="failed"), None, ["episode n has status failed and success None"]),
    ],
)
def test_nodes(node, trial_of, expected):
    assert list(node_problems(node, trial_of, {"run"})) == expected
