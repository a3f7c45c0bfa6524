"""Attribution: from a failed round to its likely cause, as one value with its reason.

Two voices are joined. The rules weigh what the memory knows of the failure (``evidence.py``); the language model's
answer adds as much as its measured accuracy is worth. Rounds are tests: what was tried without effect is not tried
again, and counts against its kind.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fluxmem_local.answers import parse_attribution
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import ModelOutputError
from fluxmem_local.interfaces import LLM_TIMEOUT_S, UNMEASURED_ATTRIBUTION, BaseEmbedder, BaseLLM
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.results import ByKey
from fluxmem_local.retrieval import Retriever

from .evidence import Evidence, Failure, gather_evidence
from .feedback import storable, trim_feedback
from .outwardness import Outwardness
from .proposals import ACTIONS, Proposal, Trial, rule_proposals

__all__ = ["Attribution", "Diagnosis", "Voice", "ask_llm", "decide", "diagnose"]

# One unit of log-odds in the rules' scores: as a distribution over the four actions they fit 48 labelled failures best
# at 0.14, and 24 others at 0.17.
_SCORE_PER_LOGIT = 0.15
# Causes that a model's word is one of.
_NUM_ACTIONS = 4
# Of what the word is worth, the part that depends on its naming the same nodes.
_TARGET_PART = 0.4
# An edit of the kind it named had no effect: its word is worth this share of what it was.
_WORD_AFTER_NO_EFFECT = 0.5
# Below this, neither voice has evidence.
_FLOOR = 0.2
_PROMPT_FEEDBACK_CHARS = 2000

_TYPES = {"expand": "connection", "prune": "connection", "reshape": "unit", "none": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution(ByKey):
    """The cause of one failed round.

    ``type`` is connection, unit or none; ``action`` expand, prune, reshape or none; ``targets`` the nodes to add, cut
    or rewrite. ``scores`` has the best score of each action, ``confidence`` the lead of the chosen one, in [0, 1].
    ``source`` says whose voice decided: rules, llm or both. ``error`` tells why a language model was not heard.
    """

    type: str
    action: str
    targets: tuple[str, ...] = ()
    granularity: str | None = None
    reason: str = ""
    details: str = ""
    confidence: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict)
    source: str = "rules"
    round: int = 1
    error: str = ""

    def choosing(self, proposal: Proposal) -> Attribution:
        """Name another of the proposals as the cause, as when the first one gave no edit."""
        return replace(
            self,
            type=_TYPES[proposal.action],
            action=proposal.action,
            targets=proposal.targets,
            granularity=proposal.granularity,
            reason=proposal.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """An attribution with the edits that are worth a test, best first, and the evidence behind them.

    ``llm_failed`` tells that the language model raised or hung.
    """

    attribution: Attribution
    proposals: tuple[Proposal, ...]
    evidence: Evidence
    llm_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """What a language model said of a failure, checked; ``action`` None is silence, and ``error`` says why.

    ``accuracy`` is how often such a word is right. ``failed`` tells that the model raised or hung, so that there is no
    use in asking again.
    """

    action: str | None = None
    targets: frozenset[str] = frozenset()
    granularity: str | None = None
    details: str = ""
    error: str = ""
    accuracy: float = UNMEASURED_ATTRIBUTION
    failed: bool = False

    @property
    def worth(self) -> float:
        """What the word adds to a score: its log-odds over those of a guess, nothing for chance or less."""
        right = min(0.99, max(0.0, self.accuracy))
        if right * _NUM_ACTIONS <= 1:
            return 0.0
        return _SCORE_PER_LOGIT * math.log(right * (_NUM_ACTIONS - 1) / (1 - right))


async def diagnose(
    failure: Failure,
    *,
    tried: Sequence[Trial] = (),
    store: MemoryStore,
    retriever: Retriever,
    embedder: BaseEmbedder | None,
    llm: BaseLLM | None,
    config: FluxMemConfig,
    outwardness: Outwardness | None = None,
) -> Diagnosis:
    """Say what the failure comes from, and what to do about it.

    Args:
        failure: the failed round.
        tried: the edits that this task tried before.
        store: the memory.
        retriever: searches it.
        embedder: None compares by words only.
        llm: None lets the rules decide alone.
        config: the settings.
        outwardness: how feedback sounds; None leaves that to its signs.
    """
    if failure.outside:
        return decide(failure, Evidence(inside=(), outside=()), Voice(), tried=tried, config=config)
    cut = [id for trial in tried if trial.action == "prune" for id in trial.targets]
    evidence = await gather_evidence(
        failure,
        store=store,
        retriever=retriever,
        embedder=embedder,
        config=config,
        exclude=cut,
        outwardness=outwardness,
    )
    voice = await ask_llm(llm, failure) if llm is not None and llm.attributes_failures else Voice()
    return decide(failure, evidence, voice, tried=tried, config=config)


async def ask_llm(llm: BaseLLM, failure: Failure) -> Voice:
    """Ask a language model for the cause; whatever cannot be used is silence."""
    feedback = trim_feedback(failure.feedback, _PROMPT_FEEDBACK_CHARS)
    try:
        answer = await asyncio.wait_for(llm.attribute_failure(failure.context, feedback), LLM_TIMEOUT_S)
    except ModelOutputError as error:
        return Voice(error=storable(f"ModelOutputError: {error}"[:500]))
    # A user's backend may raise anything, and none of it may end the task.
    except Exception as error:
        return Voice(error=storable(f"{type(error).__name__}: {error}"[:500]), failed=True)
    return replace(_checked_voice(answer, frozenset(failure.subgraph.ids)), accuracy=llm.attribution_accuracy)


def _checked_voice(answer: Any, known_ids: frozenset[str]) -> Voice:
    if not isinstance(answer, Mapping):
        return Voice(error=f"ModelOutputError: the answer is a {type(answer).__name__}, not an object")
    parsed = parse_attribution(answer)
    if parsed is None:
        return Voice(error=storable(f"ModelOutputError: this answer names no cause: {str(dict(answer))[:200]}"))
    return Voice(
        action=parsed.action,
        targets=frozenset(parsed.targets) & known_ids,
        granularity=parsed.granularity,
        details=parsed.details,
    )


def decide(
    failure: Failure, evidence: Evidence, voice: Voice, *, tried: Sequence[Trial], config: FluxMemConfig
) -> Diagnosis:
    """Join both voices over the proposals that are left; the best one is the cause, or none if nothing speaks."""
    by_rules = rule_proposals(failure, evidence, tried=tried, config=config)
    failed = sum(trial.had_effect is False and trial.action == voice.action for trial in tried)
    worth = voice.worth * _WORD_AFTER_NO_EFFECT**failed
    scored = sorted((_joined(proposal, voice, worth) for proposal in by_rules), key=lambda each: -each.score)
    best = {action: max((each.score for each in scored if each.action == action), default=0.0) for action in ACTIONS}
    first = scored[0]
    common: dict[str, Any] = {
        "details": voice.details,
        "scores": {action: round(score, 3) for action, score in best.items()},
        "round": failure.round,
        "error": voice.error,
    }
    if first.action == "none" or first.score < _FLOOR:
        told = first.action == "none" and first.score >= _FLOOR
        nothing = Attribution(
            type="none",
            action="none",
            reason=first.reason if told else "nothing in the memory speaks for a cause that an edit could mend",
            confidence=_lead(best, "none"),
            source="both" if voice.action == "none" else "rules",
            **common,
        )
        return Diagnosis(attribution=nothing, proposals=(), evidence=evidence, llm_failed=voice.failed)
    agreed = voice.action == first.action
    favourite = max(by_rules, key=lambda each: each.score)
    attribution = Attribution(
        type=_TYPES[first.action],
        action=first.action,
        targets=first.targets,
        granularity=first.granularity,
        reason=first.reason,
        confidence=_lead(best, first.action),
        source="rules" if not agreed else "both" if favourite.action == first.action else "llm",
        **common,
    )
    edits = tuple(each for each in scored if each.action != "none" and each.score >= max(_FLOOR, best["none"]))
    return Diagnosis(attribution=attribution, proposals=edits, evidence=evidence, llm_failed=voice.failed)


def _lead(best: Mapping[str, float], action: str) -> float:
    return round(min(1.0, max(0.0, best[action] - max(score for other, score in best.items() if other != action))), 3)


def _joined(proposal: Proposal, voice: Voice, worth: float) -> Proposal:
    if voice.action != proposal.action:
        return proposal
    # A model sees the context alone, so it cannot name what an expansion brings.
    named = voice.targets if proposal.action in ("prune", "reshape") else frozenset()
    overlap = len(named & set(proposal.targets)) / len(proposal.targets) if named else 1.0
    fits = 1.0 if voice.granularity in (None, proposal.granularity) else 0.5
    return replace(proposal, score=proposal.score + worth * fits * (1 - _TARGET_PART + _TARGET_PART * overlap))
