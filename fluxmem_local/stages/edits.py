"""Edits: what one does to the running subgraph, and how a kept one is undone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import Edit, Node, Subgraph
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.types import NodeState

__all__ = ["Change", "undo_edit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An edit with the nodes it needs: those it adds, the ids it cuts, the versions that stand in for others.

    ``views`` are nodes as the context shows them from now on; in the memory they stay as they are.
    """

    edit: Edit
    added: tuple[Node, ...] = ()
    cut: frozenset[str] = frozenset()
    variants: Mapping[str, Node] = field(default_factory=dict)
    views: Mapping[str, Node] = field(default_factory=dict)

    def apply(self, subgraph: Subgraph) -> Subgraph:
        """Make the edited subgraph."""
        return subgraph.pruned(self.cut).reshaped({**self.views, **self.variants}).expanded(self.added)


def undo_edit(store: MemoryStore, edit_id: str) -> Edit:
    """Take back what a kept edit did to the memory, and return the edit as it stands then.

    A pruned node loses the mark against it; an expanded one its success and the edges it earned; a rewritten one
    serves again, and its new version is kept but no longer retrieved.

    Raises:
        NotFoundError: no such edit.
        InvalidInputError: the edit changes nothing (any more).
    """
    # Within, as two who undo it at once must not both take its outcomes back.
    with store.transaction() as transaction:
        edit = store.get_edit(edit_id)
        if edit.after.get("undone_at") is not None:
            raise InvalidInputError(f"edit {edit_id!r} was undone already; `fluxmem history NODE` shows what stands")
        if edit.kept is not True:
            state = "still belongs to a running task" if edit.kept is None else "was rolled back by its own task"
            raise InvalidInputError(
                f"edit {edit_id!r} {state}, so there is nothing to undo; only kept edits can be undone"
            )
        undone = replace(edit, kept=False, after={**edit.after, "undone_at": time.time()})
        outcomes = _taken_back(store, edit)
        if outcomes:
            transaction.record_outcomes(outcomes)
        edges = set(edit.after.get("edge_ids", ()))
        known = [edge.id for edge in store.edges(target_ids=_ends(edit)) if edge.id in edges]
        known += [edge.id for edge in store.edges(source_ids=_ends(edit)) if edge.id in edges and edge.id not in known]
        if known:
            transaction.delete_edges(known)
        variants = [id for id in edit.after.get("variants", {}).values() if _is_there(store, id)]
        if variants:
            transaction.set_state(variants, NodeState.DEMOTED)
        transaction.put_edit(undone)
    return undone


def _ends(edit: Edit) -> list[str]:
    return [*edit.targets, *edit.after.get("variants", {}).values()]


def _is_there(store: MemoryStore, id: str) -> bool:
    try:
        store.get(id)
    except LookupError:
        return False
    return True


def _taken_back(store: MemoryStore, edit: Edit) -> list[Outcome]:
    """The outcomes that cancel those the edit earned its nodes, as far as they are there."""
    if edit.episode_id is None:
        return []
    helped = set(edit.after.get("helped", ()))
    hurt = set(edit.after.get("hurt", ()))
    there = store.outcomes(episode_ids=[edit.episode_id], node_ids=sorted(helped | hurt))
    cancelled = []
    for outcome in there:
        minus_helped = -1 if outcome.node_id in helped and outcome.helped > 0 else 0
        minus_hurt = -1 if outcome.node_id in hurt and outcome.hurt > 0 else 0
        if minus_helped or minus_hurt:
            cancelled.append(
                Outcome(node_id=outcome.node_id, episode_id=outcome.episode_id, helped=minus_helped, hurt=minus_hurt)
            )
    return cancelled
