"""Stage II: the loop execute, feedback, attribute, edit, execute (spec section 4)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import Edit, EpisodicNode, Subgraph
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM, approximate_tokens
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.retrieval import RenderedContext, Retriever, serialize_context
from fluxmem_local.types import JsonObject, Scope

from .attribution import Attribution, Diagnosis, diagnose
from .edits import Change
from .events import EventListener, FailureAttributed, GraphEdited, RoundStarted, StepExecuted, TaskEvent
from .evidence import Failure
from .execution import ExecuteFn, Execution, execute
from .expand import propose_expand
from .feedback import same_feedback
from .formation import step_links
from .outwardness import Outwardness
from .proposals import Proposal, Trial
from .prune import propose_prune
from .reshape import propose_reshape

__all__ = ["Progress", "StageII", "StepResult"]

# What a context shows: ids with texts, as a skill may show other cases than before.
_Contents: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(slots=True, kw_only=True)
class Progress:
    """What a running task has done so far; it changes while the task runs.

    ``active`` are the changes in force. ``edits`` holds every edit made, by id, as it stands; ``tested`` the ids of
    the last round's, ``refuted`` of those after which the step failed as before. ``activated`` has the subgraph of each
    round, ``succeeded`` those of the rounds that succeeded.
    """

    episode: EpisodicNode
    scope: Scope
    listener: EventListener | None = None
    active: list[Change] = field(default_factory=list)
    edits: dict[str, Edit] = field(default_factory=dict)
    tested: frozenset[str] = frozenset()
    refuted: set[str] = field(default_factory=set)
    attributions: list[Attribution] = field(default_factory=list)
    rounds: list[JsonObject] = field(default_factory=list)
    trajectory: list[tuple[str, str]] = field(default_factory=list)
    succeeded: list[Subgraph] = field(default_factory=list)
    activated: list[Subgraph] = field(default_factory=list)
    linked: set[tuple[int, str]] = field(default_factory=set)
    llm_failed: bool = False

    def tell(self, event: TaskEvent) -> None:
        """Report to whoever listens."""
        if self.listener is not None:
            self.listener(event)

    def apply_to(self, subgraph: Subgraph) -> Subgraph:
        """Carry the changes in force over to a subgraph."""
        for change in self.active:
            subgraph = change.apply(subgraph)
        return subgraph


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """How one step ended; ``rounds`` counts executions."""

    success: bool
    result: str
    feedback: str
    rounds: int


class StageII:
    """Runs a step until it succeeds, no repair is left to test, or T repairs were made."""

    def __init__(
        self,
        store: MemoryStore,
        retriever: Retriever,
        embedder: BaseEmbedder | None,
        llm: BaseLLM | None,
        config: FluxMemConfig,
    ) -> None:
        self.store = store
        self.retriever = retriever
        self.embedder = embedder
        self.llm = llm
        self.config = config
        self._outwardness = None if embedder is None else Outwardness(embedder)

    async def run_step(
        self, formed: Subgraph, execute_fn: ExecuteFn, progress: Progress, *, step_index: int = 0
    ) -> StepResult:
        """Execute the step once a round, at most 1 + T times, and repair its context in between.

        Raises:
            InvalidInputError: the task function returned something else than ``(result, feedback, success)``.
        """
        episode_id = progress.episode.id
        trials: list[Trial] = []
        shown: set[_Contents] = set()
        before: Execution | None = None
        for round_ in range(1, self.config.max_refinement_rounds + 2):
            subgraph = self._present(progress.apply_to(formed))
            rendered = self._render(subgraph)
            subgraph = _shown(subgraph, rendered)
            shown.add(_contents(subgraph))
            self._link(subgraph, progress, step_index)
            progress.tell(
                RoundStarted(
                    episode_id=episode_id,
                    step_index=step_index,
                    round=round_,
                    context_ids=subgraph.ids,
                    num_tokens=rendered.num_tokens,
                )
            )
            done = await execute(execute_fn, rendered.text)
            self._note(done, subgraph, progress, step_index, round_)
            if done.success:
                progress.succeeded.append(subgraph)
                return StepResult(success=True, result=done.result, feedback=done.feedback, rounds=round_)
            if before is not None:
                trials = _judged(trials, progress, not same_feedback(before.feedback, done.feedback))
            before = done
            if round_ > self.config.max_refinement_rounds:
                break
            # The next edit is made on what stands once refuted ones are gone, so the evidence is about that, too.
            stands = self._present(_edited(formed, _staying(progress)))
            standing = self._render(stands)
            failure = Failure(
                task=formed.task,
                observation=formed.observation,
                result=done.result,
                feedback=done.feedback,
                subgraph=_shown(stands, standing),
                context=standing.text,
                episode_id=episode_id,
                scope=progress.scope,
                round=round_,
                outside=done.outside,
            )
            if not await self._repair(failure, formed, trials, shown, progress, step_index):
                break
        return StepResult(success=False, result=done.result, feedback=done.feedback, rounds=round_)

    def _present(self, subgraph: Subgraph) -> Subgraph:
        """Leave out what anyone forgot since the step was formed: it must not be shown, and cannot be linked."""
        there = self.store.present(subgraph.ids)
        return subgraph.with_nodes([node for node in subgraph.nodes if node.id in there])

    def _render(self, subgraph: Subgraph) -> RenderedContext:
        return serialize_context(
            subgraph,
            token_budget=self.config.context_token_budget,
            count_tokens=self.llm.count_tokens if self.llm is not None else approximate_tokens,
        )

    def _link(self, subgraph: Subgraph, progress: Progress, step_index: int) -> None:
        """Link what this round activates for the first time in its step; the first link stores the episode too."""
        links = [
            link
            for link in step_links(progress.episode.id, subgraph, step_index)
            if (step_index, link.target_id) not in progress.linked
        ]
        if links:
            with self.store.transaction() as transaction:
                there = self.store.present([link.target_id for link in links])
                transaction.add_edges([link for link in links if link.target_id in there])
            progress.linked |= {(step_index, link.target_id) for link in links}

    def _note(self, done: Execution, subgraph: Subgraph, progress: Progress, step_index: int, round_: int) -> None:
        progress.activated.append(subgraph)
        progress.rounds.append(
            {
                "step": step_index,
                "round": round_,
                "context_ids": list(subgraph.ids),
                "result": done.result,
                "feedback": done.feedback,
                "success": done.success,
                "seconds": round(done.seconds, 6),
            }
        )
        progress.tell(
            StepExecuted(
                episode_id=progress.episode.id,
                step_index=step_index,
                round=round_,
                result=done.result,
                feedback=done.feedback,
                success=done.success,
                seconds=done.seconds,
            )
        )

    async def _repair(
        self,
        failure: Failure,
        formed: Subgraph,
        trials: list[Trial],
        shown: set[_Contents],
        progress: Progress,
        step_index: int,
    ) -> bool:
        """Attribute the failure and make the best edit that is left; tell whether there is one to test."""
        llm = None if progress.llm_failed else self.llm
        diagnosis = await diagnose(
            failure,
            tried=trials,
            store=self.store,
            retriever=self.retriever,
            embedder=self.embedder,
            llm=llm,
            config=self.config,
            outwardness=self._outwardness,
        )
        # A model that hangs or fails is not asked again in this task; one that talks nonsense may be.
        progress.llm_failed |= diagnosis.llm_failed
        for proposal in diagnosis.proposals:
            trial = Trial(
                action=proposal.action,
                targets=proposal.targets,
                granularity=proposal.granularity,
                refutes=proposal.refutes,
            )
            trials.append(trial)
            changes = await self._changes(proposal, diagnosis, failure, llm)
            if any("llm_error" in change.edit.after for change in changes):
                progress.llm_failed, llm = True, None
            staying = _unless_cut(_staying(progress, proposal.action), changes)
            changes = _at_originals(changes, [change for change in progress.active if change not in staying])
            context = _edited(formed, [*staying, *changes])
            if not changes or _contents(_shown(context, self._render(context))) in shown:
                continue
            self._attributed(diagnosis.attribution.choosing(proposal), progress, step_index)
            self._store_changes(changes, staying, progress, step_index, failure.round)
            return True
        nothing = diagnosis.attribution
        if nothing.action != "none":
            nothing = replace(
                nothing, type="none", action="none", targets=(), granularity=None, reason="no edit is left to test"
            )
        self._attributed(nothing, progress, step_index)
        return False

    async def _changes(
        self, proposal: Proposal, diagnosis: Diagnosis, failure: Failure, llm: BaseLLM | None
    ) -> list[Change]:
        if proposal.action == "prune":
            return propose_prune(proposal, diagnosis.evidence, failure)
        change = (
            propose_expand(diagnosis.evidence, failure, proposal.targets, proposal.reason)
            if proposal.action == "expand"
            else await propose_reshape(proposal, failure, embedder=self.embedder, llm=llm)
        )
        return [] if change is None else [change]

    def _attributed(self, attribution: Attribution, progress: Progress, step_index: int) -> None:
        progress.attributions.append(attribution)
        progress.tell(
            FailureAttributed(
                episode_id=progress.episode.id,
                step_index=step_index,
                round=attribution.round,
                attribution=attribution,
            )
        )

    def _store_changes(
        self, changes: list[Change], staying: list[Change], progress: Progress, step_index: int, round_: int
    ) -> None:
        """Write a round's edits and take back refuted ones, all in one transaction."""
        dropped = [change for change in progress.active if change not in staying]
        with self.store.transaction() as transaction:
            # What anyone has forgotten meanwhile is not brought back by an edit that quotes it.
            there = self.store.present([id for change in changes for id in change.edit.targets])
            changes = [change for change in changes if there.issuperset(change.edit.targets)]
            written = [
                *(change.edit for change in changes),
                *(replace(progress.edits[change.edit.id], kept=False) for change in dropped),
            ]
            # Whoever forgets an original forgets its versions with it.
            versions = self.store.present([node.id for change in dropped for node in change.variants.values()])
            if versions:
                transaction.delete_nodes(list(versions))
            fresh = [node for change in changes for node in change.variants.values()]
            if fresh:
                transaction.add_nodes(fresh, trial_of=progress.episode.id)
            for edit in written:
                transaction.put_edit(edit)
        progress.edits |= {edit.id: edit for edit in written}
        progress.active = [*staying, *changes]
        progress.tested = frozenset(change.edit.id for change in changes)
        progress.tell(
            GraphEdited(
                episode_id=progress.episode.id,
                step_index=step_index,
                round=round_,
                edits=tuple(change.edit for change in changes),
                rolled_back=tuple(change.edit.id for change in dropped),
            )
        )


def _shown(subgraph: Subgraph, rendered: RenderedContext) -> Subgraph:
    """Leave out what the token budget left out."""
    return subgraph.with_nodes([node for node in subgraph.nodes if node.id in set(rendered.ids)])


def _contents(subgraph: Subgraph) -> _Contents:
    return tuple((node.id, node.content) for node in subgraph.nodes)


def _edited(formed: Subgraph, changes: list[Change]) -> Subgraph:
    for change in changes:
        formed = change.apply(formed)
    return formed


def _unless_cut(staying: list[Change], changes: list[Change]) -> list[Change]:
    """Leave out a reshape whose versions are cut now: without them, it would only hide that their originals go too."""
    cut = {id for change in changes for id in change.cut}
    return [change for change in staying if not change.variants or {node.id for node in change.variants.values()} - cut]


def _at_originals(changes: list[Change], dropped: list[Change]) -> list[Change]:
    """Keep off versions that are taken back in the same round: a cut hits their originals, an expansion omits them."""
    originals = {version.id: id for change in dropped for id, version in change.variants.items()}
    kept = []
    for change in changes:
        added = tuple(node for node in change.added if node.id not in originals)
        cut = frozenset(originals.get(id, id) for id in change.cut)
        if (added, cut) == (change.added, change.cut):
            kept.append(change)
        elif added or cut:
            omitted = originals.keys() - change.cut
            targets = tuple(originals.get(id, id) for id in change.edit.targets if id not in omitted)
            kept.append(replace(change, added=added, cut=cut, edit=replace(change.edit, targets=targets)))
    return kept


def _judged(trials: list[Trial], progress: Progress, had_effect: bool) -> list[Trial]:
    """Write the test's outcome to the edits of the last round."""
    if trials[-1].refutes:
        # What was refuted stays so, however the next try fails.
        return [*trials[:-1], replace(trials[-1], had_effect=True)]
    last = replace(trials[-1], had_effect=had_effect)
    if had_effect:
        # The step fails in another way now: what was of no use against the first failure may be what this one needs.
        return [last]
    progress.refuted |= progress.tested
    # Those before the last one gave no edit, so nothing was learned from them.
    return [*trials[:-1], last]


def _staying(progress: Progress, next_action: str = "") -> list[Change]:
    """The changes in force that stay: an edit after which the step failed as before is taken back.

    Expansions add up while the loop goes on expanding, as a step may need memories from more than one.
    """
    return [
        change
        for change in progress.active
        if change.edit.id not in progress.refuted or (change.edit.kind == next_action == "expand")
    ]
