"""Prune: cut memories that mislead the step, and bring the one that answers it better."""

from __future__ import annotations

from fluxmem_local.graph import Edit

from .edits import Change
from .evidence import Evidence, Failure
from .expand import propose_expand
from .proposals import Proposal

__all__ = ["propose_prune"]


def propose_prune(proposal: Proposal, evidence: Evidence, failure: Failure) -> list[Change]:
    """Make the edit that cuts the proposal's targets, and an expansion beside it when the proposal brings nodes.

    A refutation cuts no node: it shows its skill without what was refuted.
    """
    targets = tuple(id for id in proposal.targets if id in failure.subgraph.ids)
    if not targets:
        return []
    edit = Edit(
        kind="prune",
        targets=targets,
        reason=proposal.reason,
        round=failure.round,
        episode_id=failure.episode_id,
        before={"context_ids": list(failure.subgraph.ids)},
        after={"refuted": list(proposal.refutes)} if proposal.view is not None else {},
    )
    if proposal.view is not None:
        return [Change(edit=edit, views={proposal.view.id: proposal.view})]
    cut = Change(edit=edit, cut=frozenset(targets))
    brought = propose_expand(
        evidence, failure, proposal.brings, "it answers the failure better than what the cut leaves"
    )
    return [cut] if brought is None else [cut, brought]
