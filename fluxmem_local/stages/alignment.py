"""Alignment of a cluster's episodes: which actions are one step, and which stand in each other's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fluxmem_local.graph import EpisodicNode

from .antiunification import Word, align, anti_unify, words_of
from .teaching import actions_of

__all__ = ["Column", "aligned_columns", "choose_ways", "matched_columns"]

_MOST_ALTERNATIVES = 4
# What this many did in a step's place, or this part of those who did not do the step, is a way and no accident.
_LEAST_OF_WAY = 2
_LEAST_SHARE_OF_WAY = 0.25


@dataclass(slots=True)
class Column:
    """One aligned step: the words that its instances share so far, each episode's action, and which one that was."""

    words: list[Word]
    actions: dict[str, list[Word]]
    places: dict[str, int]


def aligned_columns(actions_of: Mapping[str, list[list[Word]]]) -> list[Column]:
    """Align the episodes' actions, as words, one episode after the other: the columns in their order."""
    columns: list[Column] = []
    for episode_id, actions in actions_of.items():
        merged: list[Column] = []
        for column_place, action_place in align([column.words for column in columns], actions):
            if action_place is None:
                assert column_place is not None
                merged.append(columns[column_place])
                continue
            words = actions[action_place]
            if column_place is None:
                merged.append(Column(words, {episode_id: words}, {episode_id: action_place}))
                continue
            column = columns[column_place]
            column.actions[episode_id] = words
            column.places[episode_id] = action_place
            column.words = list(anti_unify([column.words, words]).common)
            merged.append(column)
        columns = merged
    return columns


def choose_ways(columns: Sequence[Column], num_episodes: int) -> list[list[Column]]:
    """Choose the steps: lists of a column and of those that stand in its place, most frequent first.

    Two columns stand for each other when no episode has both and no step is between them.
    """
    shared = [place for place, column in enumerate(columns) if 2 * len(column.actions) > num_episodes]
    ways: list[list[Column]] = []
    for begin, end in zip([-1, *shared], [*shared, len(columns)], strict=True):
        between = list(columns[begin + 1 : end])
        following = [[columns[end]]] if end < len(columns) else []
        for way in [*ways[-1:], *following]:
            _add_others(way, between, num_episodes - len(way[0].actions))
        ways += [*_split_ways(between, num_episodes), *following]
    return ways


def _add_others(way: list[Column], between: list[Column], lacking: int) -> None:
    """Move to a step the columns that other episodes have in its place."""
    done = set(way[0].actions).union(*(other.actions for other in way[1:]))
    for column in sorted(between, key=lambda column: -len(column.actions)):
        count = len(column.actions)
        often = count >= _LEAST_OF_WAY or count >= _LEAST_SHARE_OF_WAY * lacking
        if often and done.isdisjoint(column.actions) and len(way) <= _MOST_ALTERNATIVES:
            way.append(column)
            between.remove(column)
            done.update(column.actions)


def _split_ways(between: Sequence[Column], num_episodes: int) -> list[list[Column]]:
    """Find a step in which most take part though no way has the majority."""
    way = [max(between, key=lambda column: len(column.actions))] if between else []
    if not way or len(way[0].actions) < _LEAST_OF_WAY:
        return []
    _add_others(way, [column for column in between if column is not way[0]], num_episodes - len(way[0].actions))
    return [way] if 2 * sum(len(column.actions) for column in way) > num_episodes else []


def matched_columns(
    columns: Sequence[Column], ways: Sequence[Sequence[Column]], episodes: Sequence[EpisodicNode]
) -> dict[int, list[str]]:
    """List for each column of a step, by its identity, those of other episodes that did it too."""
    chosen = {id(column) for way in ways for column in way}
    ordered = [column for column in columns if id(column) in chosen]
    found: dict[int, list[str]] = {}
    for episode in sorted(episodes, key=lambda episode: episode.id):
        pairs = align([column.words for column in ordered], [words_of(action) for action in actions_of(episode)])
        for column_place, action_place in pairs:
            if column_place is not None and action_place is not None:
                found.setdefault(id(ordered[column_place]), []).append(episode.id)
    return found
