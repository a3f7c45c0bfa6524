"""Proposals: each edit that the evidence speaks for, with a score in about [0, 1] and the reason in words.

The scores are sums of a few measured shares, so that a record can be read: what the context holds on the subject,
what stands outside of it, which item the step followed, and whether that item has a rival, ties or lumped parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import ProceduralNode
from fluxmem_local.retrieval import refute_values
from fluxmem_local.types import Layer, NodeState

from .evidence import Evidence, Failure, Item
from .feedback import (
    lack_sign,
    mentions,
    missing_command,
    outside_sign,
    refusal_sign,
    trim_feedback,
    wording_sign,
)

__all__ = ["ACTIONS", "Proposal", "Trial", "rule_proposals"]

ACTIONS = ("expand", "prune", "reshape", "none")

# Cosine from which two items are on the same subject: distinct facts of one subject start about there.
_SAME_SUBJECT = 0.45
# The same, of the part of the cosine that the task does not explain.
_BESIDE_TASK = 0.3
# Cosine from which items of one layer are instances of one thing, to be rewritten together.
_SAME_KIND = 0.65
# Each test of a kind without effect leaves this share of the kind's further scores.
_AFTER_NO_EFFECT = {"expand": 0.55, "prune": 0.85, "reshape": 0.85, "none": 1.0}
_CHEAP_TEST = 0.2
# What an expansion gains where a memory outside means what the failure is about as well as all within do, and from
# where on: of 72 labelled failures, all 18 by a missing memory lie above -0.2, and more than half of the others below.
_NEARER, _FAR_BELOW = 0.1, -0.2
# What the feedback's own word that something is not known adds to an expansion.
_SAID_TO_LACK = 0.4
# Share of use from which an item is what the step followed.
_CLEARLY_USED = 0.8
_MOST_CHARS_SAID = 200
# What an outside sign adds to doing nothing, and what of it a memory takes away that knows of this very failure: its
# cosine to the feedback was 0.33 to 0.8 in trials, that of others under 0.3.
_OUTSIDE, _KNOWN_REMEDY = 0.5, 0.25
_KNOWS_FROM, _KNOWS_WELL = 0.25, 0.5
# A step that failed with what it sought by a skill has refuted that, unless the world outside failed.
_REFUTED, _REFUTED_OUTSIDE = 0.8, 0.4
# What feedback adds that only sounds so (a memory that knows of the failure takes it away), and each test that changed
# nothing: of 72 labelled failures, the fifth test solved none.
_SOUNDS_OUTSIDE, _EACH_FUTILE_TEST = 0.3, 0.04
# Instance marks, or strung-together parts, that make an item wholly tied or wholly lumped.
_MANY_MARKS = 5
_MANY_PARTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One possible edit.

    ``brings`` are nodes that a prune adds in the same round: they answer the failure better. ``refutes`` are the values
    that a prune takes out of what a skill shows, and ``view`` is the skill without them.
    """

    action: str
    score: float
    reason: str
    targets: tuple[str, ...] = ()
    granularity: str | None = None
    brings: tuple[str, ...] = ()
    refutes: tuple[str, ...] = ()
    view: ProceduralNode | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two edits the same test."""
        return self.action, tuple(sorted(self.targets)), self.granularity, self.refutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An edit that was tested. ``had_effect`` is None until the next round is known."""

    action: str
    targets: tuple[str, ...]
    granularity: str | None = None
    refutes: tuple[str, ...] = ()
    had_effect: bool | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two edits the same test."""
        return self.action, tuple(sorted(self.targets)), self.granularity, self.refutes


def rule_proposals(
    failure: Failure, evidence: Evidence, *, tried: Sequence[Trial], config: FluxMemConfig
) -> list[Proposal]:
    """List the edits that were not tried yet, scored by the evidence alone, and ``none``."""
    if failure.outside:
        said = " ".join(failure.feedback.split())[:_MOST_CHARS_SAID]
        return [Proposal(action="none", score=1.0, reason=f'the step itself tells that it is outside: "{said}"')]
    proposals = [
        *_refutations(failure),
        *_expansions(failure, evidence, tried, config),
        *_prunings(failure, evidence, config),
        *_reshapings(failure, evidence),
        _nothing(failure, evidence, tried),
    ]
    done = {trial.key for trial in tried}
    futile = dict.fromkeys(ACTIONS, 1.0)
    for trial in tried:
        if trial.had_effect is False:
            futile[trial.action] *= _AFTER_NO_EFFECT[trial.action]
    # Adding takes nothing away, so it is the cheapest test once another one had no effect.
    untested = bool(tried) and all(trial.action != "expand" for trial in tried)
    lift = {"expand": _CHEAP_TEST if untested and tried[-1].had_effect is False else 0.0}
    return [
        replace(proposal, score=min(1.0, proposal.score * futile[proposal.action] + lift.get(proposal.action, 0.0)))
        for proposal in proposals
        if proposal.key not in done
    ]


def _expansions(failure: Failure, evidence: Evidence, tried: Sequence[Trial], config: FluxMemConfig) -> list[Proposal]:
    seen = {id for trial in tried if trial.action == "expand" for id in trial.targets}
    fresh = [item for item in evidence.outside if item.node.id not in seen]
    if not fresh:
        return []
    chosen = fresh[: config.expand_top_k]
    best = max(item.relevance for item in chosen)
    at_hand = max((item.relevance for item in evidence.inside), default=0.0)
    nearest = max(item.to_whole for item in chosen)
    score = 0.4 + 0.35 * (best - at_hand) + 0.35 * max(0.0, nearest - 0.3)
    reason = (
        f"{len(chosen)} memories outside of the context fit the failure ({best:.2f} at best; "
        f"the context's best has {at_hand:.2f})"
    )
    meant = max((item.to_whole for item in evidence.inside), default=0.0)
    score += _NEARER * _scaled(nearest - meant, _FAR_BELOW, 0.0)
    lack = lack_sign(failure.feedback)
    if lack:
        score += _SAID_TO_LACK
        reason += f', and the feedback says "{lack}"'
    return [
        Proposal(
            action="expand",
            score=min(1.0, max(0.0, score)),
            reason=reason,
            targets=tuple(item.node.id for item in chosen),
        )
    ]


def _refutations(failure: Failure) -> list[Proposal]:
    """Take out of a skill's cases what the step sought by them and failed with: that much the failure proves."""
    proposals = []
    for node in failure.subgraph.procedural:
        refuted = refute_values(node, failure.task, failure.result)
        if refuted is not None:
            values, view = refuted
            sought = ", ".join(value for value in values if value)
            proposals.append(
                Proposal(
                    action="prune",
                    score=_REFUTED_OUTSIDE if outside_sign(failure.feedback) else _REFUTED,
                    reason=f'the step sought "{sought}" by this skill and failed; its other cases come up',
                    targets=(node.id,),
                    refutes=values,
                    view=view,
                )
            )
    return proposals


def _suspicion(item: Item, strongest: float) -> float:
    """How clearly the step followed this item, in [0, 1]."""
    share = max(0.0, item.to_doing) / strongest if strongest > 0 else 0.0
    return 0.5 * item.used + 0.5 * share


def _strongest(evidence: Evidence) -> float:
    return max((item.to_doing for item in evidence.inside), default=0.0)


def _prunings(failure: Failure, evidence: Evidence, config: FluxMemConfig) -> list[Proposal]:
    strongest = _strongest(evidence)
    # What the world outside refuses is no sign against the memory.
    refusal = None if outside_sign(failure.feedback) else refusal_sign(failure.feedback)
    proposals = []
    for item in evidence.inside:
        followed = _suspicion(item, strongest)
        rival = evidence.item(item.rival.id) if item.rival else None
        closeness = item.rival.similarity if item.rival else 0.0
        same_subject = max(0.0, item.rival.beside - _BESIDE_TASK) if item.rival else 0.0
        # Two instances of one kind are no contradiction.
        of_one_kind = rival is not None and closeness >= _SAME_KIND and rival.node.layer is item.node.layer
        lived = 0.1 if item.node.layer is Layer.EPISODIC and rival is not None and not of_one_kind else 0.0
        marks = 0.1 * min(2, item.shared_marks)
        past = 0.15 * (item.hurt - item.helped) / (1 + item.hurt + item.helped)
        refused = 0.15 * followed if refusal and item.used >= _CLEARLY_USED else 0.0
        score = refused + 0.45 * followed + 0.8 * min(0.3, same_subject) + lived + marks + past
        brings: tuple[str, ...] = ()
        reason = f"the step followed it ({followed:.2f})"
        if refused:
            reason += f', and was refused: "{refusal}"'
        if item.rival is not None and closeness >= _SAME_SUBJECT:
            place = "in the context" if item.rival.inside else "outside of the context"
            reason += f", and another memory {place} says something else on its subject ({closeness:.2f})"
        answers = _better_answers(item, evidence)[: config.expand_top_k]
        if answers:
            brings = tuple(answer.node.id for answer in answers)
            reason += f"; {len(answers)} outside of the context answer the failure better than what is left"
        proposals.append(
            Proposal(action="prune", score=min(1.0, score), reason=reason, targets=(item.node.id,), brings=brings)
        )
    clutter = tuple(
        item.node.id
        for item in evidence.inside
        if item.to_whole < config.prune_similarity_threshold and item.to_task < config.prune_similarity_threshold
    )
    if clutter and len(clutter) < len(evidence.inside):
        proposals.append(
            Proposal(
                action="prune",
                score=0.22,
                reason=f"{len(clutter)} memories are under {config.prune_similarity_threshold} to the step",
                targets=clutter,
            )
        )
    return proposals


def _better_answers(cut: Item, evidence: Evidence) -> list[Item]:
    """The memories outside that could take the cut one's place: nearer to it and to the failure than all that stays."""

    def fits(item: Item) -> float:
        return evidence.beside.get((cut.node.id, item.node.id), 0.0) + 0.5 * item.to_feedback + 0.5 * item.used

    left = max((fits(other) for other in evidence.inside if other is not cut), default=0.0)
    return sorted((item for item in evidence.outside if fits(item) > left), key=lambda item: -fits(item))


def _reshapings(failure: Failure, evidence: Evidence) -> list[Proposal]:
    strongest = _strongest(evidence)
    feedback = trim_feedback(failure.feedback, 4000)
    wording = {granularity: wording_sign(feedback, granularity) for granularity in ("fine", "coarse")}
    proposals = []
    for item in evidence.inside:
        if item.node.state is NodeState.TRIAL:
            continue
        rival = evidence.item(item.rival.id) if item.rival else None
        closeness = item.rival.similarity if item.rival else 0.0
        kin = _kin(item, evidence)
        alone = 1.0 if len(kin) > 1 else 1.0 - min(1.0, max(0.0, closeness - 0.3) / 0.4)
        followed = _suspicion(item, strongest)
        to_whole = max(0.0, item.to_whole)
        base = 0.2 * followed + 0.25 * to_whole + 0.12 * alone
        for granularity, share in (
            ("fine", min(1.0, item.lumped / _MANY_PARTS)),
            ("coarse", min(1.0, item.tied / _MANY_MARKS)),
        ):
            if granularity == "fine" and item.node.layer is Layer.EPISODIC:
                continue
            if granularity == "coarse" and item.node.layer is Layer.EPISODIC and rival is not None and len(kin) > 1:
                share = max(share, 0.6)
            said = wording[granularity]
            opposite = wording["coarse" if granularity == "fine" else "fine"]
            score = base + 0.25 * share + (0.3 if said else -0.15 if opposite else 0.0)
            if item.node.layer is Layer.PROCEDURAL:
                score += 0.08
            names = "strings several parts together" if granularity == "fine" else "is tied to one instance"
            reason = f"the step used it ({followed:.2f}), it {names} ({share:.2f})"
            if said:
                reason += f', and the feedback says "{said}"'
            proposals.append(
                Proposal(
                    action="reshape",
                    score=min(1.0, max(0.0, score)),
                    reason=reason,
                    targets=tuple(each.node.id for each in kin),
                    granularity=granularity,
                )
            )
    return list({proposal.key: proposal for proposal in sorted(proposals, key=lambda each: each.score)}.values())


def _kin(item: Item, evidence: Evidence) -> list[Item]:
    """The item and its like: same layer, and each a near neighbour in the context."""
    like = [
        other
        for other in evidence.inside
        if other is not item
        and other.node.layer is item.node.layer
        and other.node.state is not NodeState.TRIAL
        and other.rival is not None
        and other.rival.inside
        and other.rival.similarity >= _SAME_KIND
        and item.rival is not None
        and item.rival.inside
        and item.rival.similarity >= _SAME_KIND
        and item.node.layer is not Layer.SEMANTIC
    ]
    members = [item, *like]
    return [each for each in evidence.inside if any(each is member for member in members)]


def _nothing(failure: Failure, evidence: Evidence, tried: Sequence[Trial]) -> Proposal:
    feedback = trim_feedback(failure.feedback, 4000)
    seen = outside_sign(feedback) or outside_sign(failure.observation)
    fit = max((item.to_feedback for item in (*evidence.inside, *evidence.outside)), default=0.0)
    score = 0.25 * max(0.0, 0.6 - fit) + 0.15
    reason = "no memory in or out of the context is about this failure"
    command = missing_command(feedback)
    if command and any(mentions(item.node.content, command) for item in (*evidence.inside, *evidence.outside)):
        seen = None
    if seen:
        # A memory that the step followed by name may be why the world refused.
        marks = max((item.shared_marks for item in evidence.inside), default=0)
        score += (_OUTSIDE if marks == 0 else 0.35) - _KNOWN_REMEDY * _remedy(evidence)
        reason = f'the failure is outside of the memory: "{seen}"'
    elif not refusal_sign(feedback) and (sounds := evidence.outwardness * (1 - _scaled(fit, _KNOWS_FROM, _KNOWS_WELL))):
        score += _SOUNDS_OUTSIDE * sounds
        reason += f", and it sounds like one of the world outside ({sounds:.2f})"
    futile = sum(trial.had_effect is False for trial in tried)
    if futile:
        score += _EACH_FUTILE_TEST * futile
        reason += f", and {futile} edit{'s' if futile > 1 else ''} changed nothing"
    return Proposal(action="none", score=score, reason=reason)


def _remedy(evidence: Evidence) -> float:
    """How surely a memory outside of the context knows of the failure, better than all within it, in [0, 1]."""
    at_hand = max((item.to_feedback for item in evidence.inside), default=0.0)
    best = max((item.to_feedback for item in evidence.outside), default=0.0)
    if best <= at_hand:
        return 0.0
    return _scaled(best, _KNOWS_FROM, _KNOWS_WELL)


def _scaled(value: float, least: float, most: float) -> float:
    return min(1.0, max(0.0, (value - least) / (most - least)))
