"""Pitfalls: what ended the failed episodes of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from fluxmem_local.graph import EpisodicNode, Pitfall
from fluxmem_local.retrieval.markup import shorten

from .teaching import actions_of

__all__ = ["find_pitfalls"]

_MOST_PITFALLS = 12
_MOST_CHARS_OF_FEEDBACK = 160
_MOST_CHARS_OF_ACTION = 240


def find_pitfalls(successes: Sequence[EpisodicNode], failures: Sequence[EpisodicNode]) -> tuple[Pitfall, ...]:
    """Say what ended the failed episodes, most frequent first."""
    ends: dict[tuple[str, str], list[str]] = {}
    for episode in failures:
        actions = actions_of(episode)
        feedback = shorten(" ".join(episode.feedback.split()), _MOST_CHARS_OF_FEEDBACK)
        if actions:
            ends.setdefault((shorten(actions[-1], _MOST_CHARS_OF_ACTION), feedback), []).append(episode.id)
    worst = sorted(ends, key=lambda end: (-len(ends[end]), end))[:_MOST_PITFALLS]
    over = _final_actions(successes, failures)
    return tuple(
        Pitfall(action=end[0], feedback=end[1], episode_ids=tuple(sorted(ends[end])), final=end[0] in over)
        for end in worst
    )


def _final_actions(successes: Sequence[EpisodicNode], failures: Sequence[EpisodicNode]) -> set[str]:
    """Find actions that ended a failed episode before its time, as nothing like them ever was gone on after.

    Like them are actions of the same first word that no success took. Before its time means before the longest episode
    here ended: others had steps left.
    """
    taken = {action for episode in successes for action in actions_of(episode)}
    longest = max(len(actions_of(episode)) for episode in [*successes, *failures])
    went_on = {_verb(action) for episode in failures for action in actions_of(episode)[:-1] if action not in taken}
    return {
        shorten(actions[-1], _MOST_CHARS_OF_ACTION)
        for actions in map(actions_of, failures)
        if actions and len(actions) < longest and actions[-1] not in taken and _verb(actions[-1]) not in went_on
    }


def _verb(action: str) -> str:
    return action.split()[0].casefold()
