"""Reshape: a new version of a memory at another granularity, beside the original."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fluxmem_local.answers import usable_text
from fluxmem_local.errors import ModelOutputError
from fluxmem_local.graph import Edit, EpisodicNode, Node, ProceduralNode, SemanticNode, SkillVersion
from fluxmem_local.interfaces import LLM_TIMEOUT_S, BaseEmbedder, BaseLLM
from fluxmem_local.text import content_key, is_blank
from fluxmem_local.types import FloatArray, Layer, NodeState, Origin

from .edits import Change
from .evidence import Failure
from .feedback import storable, trim_feedback
from .proposals import Proposal
from .rewriting import generalise, is_grounded, spell_out

__all__ = ["propose_reshape"]

# A version may be this much longer than original, task and feedback together.
_MAX_CHARS = 1600
# Cosine to the original under which a model's text is another memory and no version of it.
_NEAR_ORIGINAL = 0.4
# A model's text must be this much nearer to what is asked than the one composed of its sources' own words.
_MODEL_MARGIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    text: str
    by: str


async def propose_reshape(
    proposal: Proposal, failure: Failure, *, embedder: BaseEmbedder | None, llm: BaseLLM | None
) -> Change | None:
    """Write a new version of each target; None if no usable text came of one of them.

    A fact or a skill gets a version in its own layer. An episode happened as it did and is never rewritten: its
    coarse version is a skill drawn from it. A model that raises or hangs is named in the edit (``after["llm_error"]``)
    and not asked again.
    """
    granularity = proposal.granularity
    originals = [node for node in failure.subgraph.nodes if node.id in proposal.targets]
    if granularity not in ("fine", "coarse") or not originals:
        return None
    if granularity == "fine" and any(node.layer is Layer.EPISODIC for node in originals):
        return None
    variants: dict[str, Node] = {}
    error = ""
    for original in originals:
        candidates, failed = await _candidates(original, granularity, failure, None if error else llm)
        error = error or failed
        chosen = await _choose(candidates, original, failure, embedder)
        if chosen is None:
            return None
        candidate, vector = chosen
        variants[original.id] = _version(original, candidate, vector, granularity, failure, proposal.reason)
    return Change(
        edit=Edit(
            kind="reshape",
            targets=tuple(variants),
            reason=proposal.reason,
            granularity=granularity,
            round=failure.round,
            episode_id=failure.episode_id,
            before={"contents": {node.id: node.content for node in originals}},
            after={
                "variants": {id: node.id for id, node in variants.items()},
                "contents": {node.id: node.content for node in variants.values()},
                **({"llm_error": error} if error else {}),
            },
        ),
        variants=variants,
    )


async def _candidates(
    original: Node, granularity: str, failure: Failure, llm: BaseLLM | None
) -> tuple[list[_Candidate], str]:
    """Write the texts to choose from, and say what a model failed with."""
    feedback = trim_feedback(failure.feedback, 1200)
    composed = (
        spell_out(original.content, failure.task, feedback)
        if granularity == "fine"
        else generalise(original.content, failure.task)
    )
    candidates = [_Candidate(text=composed, by="composition")]
    if llm is None or not llm.writes_memories:
        return candidates, ""
    context = f"{failure.subgraph.query}\n{feedback}"
    try:
        answer = await asyncio.wait_for(llm.reshape_content(original.content, granularity, context), LLM_TIMEOUT_S)
    except ModelOutputError:
        return candidates, ""
    # A user's backend may raise anything; the composed text serves without it.
    except Exception as failed:
        return candidates, storable(f"{type(failed).__name__}: {failed}"[:500])
    text = usable_text(answer, _MAX_CHARS) if isinstance(answer, str) else None
    if text is not None and is_grounded(text, original.content, granularity, f"{failure.task}\n{failure.doing}"):
        candidates.append(_Candidate(text=text, by="llm"))
    return candidates, ""


async def _choose(
    candidates: Sequence[_Candidate], original: Node, failure: Failure, embedder: BaseEmbedder | None
) -> tuple[_Candidate, FloatArray | None] | None:
    """Take the candidate that is nearest to what is asked and still near to the original."""
    fresh = [
        each
        for each in candidates
        if not is_blank(each.text) and content_key(each.text) != content_key(original.content)
    ]
    if not fresh:
        return None
    if embedder is None:
        return fresh[-1], None
    asked = f"{failure.task}\n{trim_feedback(failure.feedback, 1200)}"
    rows = await embedder.embed_batch([*(each.text for each in fresh), original.content, asked])
    versions, before, wanted = rows[:-2], rows[-2], rows[-1]
    # What was composed is made of the original; a model may have written about something else.
    near = np.array([each.by == "composition" for each in fresh]) | (versions @ before >= _NEAR_ORIGINAL)
    if not near.any():
        return None
    margin = np.array([0.0 if each.by == "composition" else _MODEL_MARGIN for each in fresh], np.float32)
    best = int(np.where(near, versions @ wanted - margin, -np.inf).argmax())
    return fresh[best], versions[best]


def _version(
    original: Node,
    candidate: _Candidate,
    vector: FloatArray | None,
    granularity: str,
    failure: Failure,
    reason: str,
) -> Node:
    # The task's scope and not the original's, which may be wider: the text holds words of the task and its feedback.
    metadata = {**original.metadata, "granularity": granularity, "written_by": candidate.by}
    if isinstance(original, SemanticNode):
        return SemanticNode(
            content=candidate.text,
            embedding=vector,
            metadata=metadata,
            scope=failure.scope,
            state=NodeState.TRIAL,
            variant_of=original.id,
            added_by=Origin.DERIVED,
            source=original.source,
            chunk_index=original.chunk_index,
        )
    if isinstance(original, EpisodicNode):
        return ProceduralNode(
            skill_text=candidate.text,
            embedding=vector,
            metadata=metadata,
            scope=failure.scope,
            state=NodeState.TRIAL,
            variant_of=original.id,
            added_by=Origin.DERIVED,
            source_episode_ids=(original.id, failure.episode_id),
        )
    ended = SkillVersion(
        version=original.version,
        skill_text=original.skill_text,
        pems_score=original.pems_score,
        created_at=original.created_at,
        ended_because=f"reshaped ({granularity}): {reason}",
    )
    return ProceduralNode(
        skill_text=candidate.text,
        embedding=vector,
        metadata=metadata,
        scope=failure.scope,
        state=NodeState.TRIAL,
        variant_of=original.id,
        added_by=Origin.DERIVED,
        version=original.version + 1,
        version_history=(*original.version_history, ended),
        source_episode_ids=tuple(dict.fromkeys((*original.source_episode_ids, failure.episode_id))),
    )
