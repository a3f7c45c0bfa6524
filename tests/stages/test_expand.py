from __future__ import annotations

from fluxmem_local.stages.evidence import Evidence
from fluxmem_local.stages.expand import propose_expand

from .test_attribution import A, B, C, failure, item


def test_expand_adds_the_named_nodes_that_were_found_outside() -> None:
    evidence = Evidence(inside=(item(A),), outside=(item(B, inside=False), item(C, inside=False)))
    change = propose_expand(evidence, failure(nodes=(A,)), ("c", "b", "a", "nowhere"), "they fit")
    assert change is not None
    assert (change.edit.kind, change.edit.targets, change.edit.reason) == ("expand", ("c", "b"), "they fit")
    assert (change.edit.round, change.edit.episode_id, change.edit.kept) == (1, "run", None)
    assert change.apply(failure(nodes=(A,)).subgraph).ids == ("c", "b", "a")


def test_nothing_outside_is_no_edit() -> None:
    assert propose_expand(Evidence(inside=(item(A),), outside=()), failure(nodes=(A,)), ("a",), "") is None
