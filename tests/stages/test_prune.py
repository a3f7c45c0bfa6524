from __future__ import annotations

from fluxmem_local.stages.evidence import Evidence
from fluxmem_local.stages.proposals import Proposal
from fluxmem_local.stages.prune import propose_prune

from .test_attribution import A, B, C, failure, item

EVIDENCE = Evidence(inside=(item(A), item(B)), outside=(item(C, inside=False),))


def test_prune_cuts_its_targets_and_nothing_else() -> None:
    failed = failure(nodes=(A, B))
    (change,) = propose_prune(Proposal(action="prune", score=1, reason="r", targets=("a", "c")), EVIDENCE, failed)
    assert (change.edit.kind, change.edit.targets) == ("prune", ("a",))
    assert change.edit.before == {"context_ids": ["a", "b"]}
    assert change.apply(failed.subgraph).ids == ("b",)


def test_prune_brings_a_better_answer_as_an_edit_of_its_own() -> None:
    failed = failure(nodes=(A, B))
    proposal = Proposal(action="prune", score=1, reason="r", targets=("a",), brings=("c",))
    cut, brought = propose_prune(proposal, EVIDENCE, failed)
    assert [change.edit.kind for change in (cut, brought)] == ["prune", "expand"]
    assert brought.apply(cut.apply(failed.subgraph)).ids == ("c", "b")


def test_a_target_that_is_not_in_the_context_is_no_edit() -> None:
    proposal = Proposal(action="prune", score=1, reason="r", targets=("c",))
    assert propose_prune(proposal, EVIDENCE, failure(nodes=(A, B))) == []
