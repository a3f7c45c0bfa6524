"""Kinds of tasks: words that tell tasks apart and are never acted on say what is to be done, not to what."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from fluxmem_local.graph import EpisodicNode
from fluxmem_local.types import Scope

from .antiunification import words_of
from .teaching import actions_of, counts_as_success, is_content_word

__all__ = ["regroup_by_kind"]

_NUMBER = regex.compile(r"[\p{N}.,:%\-+]+")


def regroup_by_kind(clusters: Sequence[Sequence[EpisodicNode]], *, min_support: int) -> list[tuple[EpisodicNode, ...]]:
    """Give each kind of task with enough successes a cluster of its own; what is left stays as it was.

    Embeddings put "melt lead" beside "boil lead" and far from "melt ice". Lead and ice are acted on, so that they are
    values of a slot; melting and boiling are not, and no step of the one serves the other. A kind is the set of a
    task's words that say something, without numbers and without the words of anybody's actions. A task with no such
    word has no kind, and stays in its cluster: "restart nginx" and "rotate logs" are named whole by what was done.

    Args:
        clusters: of episodes of one scope each.
        min_support: successes that a kind needs.
    """
    acted_on = _acted_on(clusters)
    kinds: dict[tuple[Scope, frozenset[str]], list[EpisodicNode]] = {}
    for episode in (episode for cluster in clusters for episode in cluster):
        kind = _kind(episode, acted_on[episode.scope])
        if kind:
            kinds.setdefault((episode.scope, kind), []).append(episode)
    supported = [episodes for episodes in kinds.values() if sum(map(counts_as_success, episodes)) >= min_support]
    taken = {episode.id for episodes in supported for episode in episodes}
    left = [[episode for episode in cluster if episode.id not in taken] for cluster in clusters]
    return [
        tuple(sorted(episodes, key=lambda episode: (episode.created_at, episode.id)))
        for episodes in (*supported, *left)
        if episodes
    ]


def _acted_on(clusters: Sequence[Sequence[EpisodicNode]]) -> dict[Scope, frozenset[str]]:
    """Collect by scope the words of all actions but their verbs."""
    words: dict[Scope, set[str]] = {}
    for cluster in clusters:
        for episode in cluster:
            known = words.setdefault(episode.scope, set())
            known.update(word.key for action in set(actions_of(episode)) for word in words_of(action)[1:])
    return {scope: frozenset(known) for scope, known in words.items()}


def _kind(episode: EpisodicNode, acted_on: frozenset[str]) -> frozenset[str]:
    words = {word.key for word in words_of(episode.task_description)}
    return frozenset(
        word for word in words if word not in acted_on and is_content_word(word) and _NUMBER.fullmatch(word) is None
    )
