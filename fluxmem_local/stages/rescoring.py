"""Rescoring: a skill's PEMS by recorded evidence alone, after some of its source episodes were forgotten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fluxmem_local.graph import EpisodicNode, ProceduralNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.metrics import skill_pems

from .antiunification import words_of
from .evolution import covers
from .families import known_structure

__all__ = ["rescored"]


def rescored(store: MemoryStore, skill: ProceduralNode) -> ProceduralNode:
    """Return a skill with the score that what is left of its sources gives it; without a score if it never had one.

    The next consolidation judges it anew, with a replay where there is one.
    """
    structure, measured = known_structure(skill), skill.metadata.get("evidence")
    if structure is None or not isinstance(measured, dict) or not {"num_tokens", "shift"} <= measured.keys():
        return skill
    ids = [id for id in skill.source_episode_ids if id in store.present(skill.source_episode_ids)]
    words = {word.key for word in words_of(skill.skill_text)}
    results = [
        bool(episode.success) and covers(structure, words, episode.id)
        for episode in store.get_many(ids)
        if isinstance(episode, EpisodicNode)
    ]
    used = store.outcomes(node_ids=[skill.id])
    results += [each.helped > each.hurt for each in used if (each.helped or each.hurt) and each.episode_id not in ids]
    if not results:
        return skill
    rate = float(np.mean(results))
    pems = skill_pems([rate], [measured["num_tokens"]], [measured["shift"]])
    evidence = {**measured, "success_rate": rate}
    return replace(skill, pems_score=float(pems[0]), metadata={**skill.metadata, "evidence": evidence})
