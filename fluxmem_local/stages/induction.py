"""Induction: one skill from the episodes of a cluster, by alignment, without a language model (spec section 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import regex

from fluxmem_local.graph import Alternative, EpisodicNode, Followed, Route, Skill, Step
from fluxmem_local.retrieval.markup import shorten

from .alignment import Column, aligned_columns, choose_ways, matched_columns
from .antiunification import Pattern, Word, anti_unify, substitute, words_of
from .pitfalls import find_pitfalls
from .slots import SlotTable
from .teaching import actions_of, followed, is_content_word

__all__ = ["induce_skill"]

# More successes of one kind add counts, not steps; aligning costs the product of their lengths.
_MOST_ALIGNED = 64
_MOST_FOLLOWED = 2
_MOST_ROUTES = 12
_MOST_CHARS_OF_OBSERVATION = 160
_MOST_CHARS_OF_ACTION = 240
_MOST_WORDS_OF_NAME = 6
# Tasks that share less than this have no wording in common worth showing; their frequent words are named instead.
_LEAST_SHARE = 0.3


def induce_skill(successes: Sequence[EpisodicNode], failures: Sequence[EpisodicNode] = ()) -> Skill:
    """Distil a skill from episodes that succeeded, and its pitfalls from some that failed.

    Actions are aligned across the episodes; a step is what more than half of them did, with slots where they differ.
    What others did in its place are its alternatives; where no way has the majority, the most frequent one is the step.
    When they share no step, the shortest way that succeeded stands in. The same episodes in another order give the
    same skill.

    Args:
        successes: at least one episode for which ``counts_as_success`` holds.
        failures: episodes of the same kind of task that failed.
    """
    episodes = sorted(successes, key=lambda episode: (-episode.created_at, episode.id))[:_MOST_ALIGNED]
    episodes.sort(
        key=lambda episode: (len(actions_of(episode)), actions_of(episode), episode.task_description, episode.id)
    )
    ids = [episode.id for episode in episodes]
    task = anti_unify([words_of(" ".join(episode.task_description.split())) for episode in episodes])
    slots = SlotTable()
    use_gaps = slots.of(task, ids)
    columns = aligned_columns(
        {episode.id: _with_task_slots(episode, task, place) for place, episode in enumerate(episodes)}
    )
    ways = choose_ways(columns, len(episodes))
    if not ways:
        ways = [[column] for column in columns if ids[0] in column.actions]
    patterns = [[_usual(anti_unify(list(column.actions.values()))) for column in way] for way in ways]
    gaps = [
        [slots.of(pattern, list(column.actions)) for pattern, column in zip(way_patterns, way, strict=True)]
        for way_patterns, way in zip(patterns, ways, strict=True)
    ]
    use_texts = slots.named(use_gaps)
    word_texts = {_task_key(gap): text for gap, text in use_texts.items()}
    failed = matched_columns(columns, ways, failures)
    aligned = set(ids)
    also = matched_columns(columns, ways, [episode for episode in successes if episode.id not in aligned])
    after = {episode.id: followed(episode) for episode in episodes}

    def written(pattern: Pattern, texts: Mapping[int, str]) -> str:
        return shorten(pattern.render(slots.named(texts), word_texts), _MOST_CHARS_OF_ACTION)

    steps = []
    for way, way_patterns, way_gaps in zip(ways, patterns, gaps, strict=True):
        others = [
            Alternative(
                template=written(pattern, texts),
                succeeded_ids=tuple(sorted([*column.actions, *also.get(id(column), ())])),
                failed_ids=tuple(failed.get(id(column), ())),
            )
            for column, pattern, texts in list(zip(way, way_patterns, way_gaps, strict=True))[1:]
        ]
        main, pattern = way[0], way_patterns[0]
        steps.append(
            Step(
                template=written(pattern, way_gaps[0]),
                words=tuple(
                    word.key for word in pattern.common if is_content_word(word.key) and word.key not in word_texts
                ),
                succeeded_ids=tuple(sorted([*main.actions, *also.get(id(main), ())])),
                failed_ids=tuple(failed.get(id(main), ())),
                alternatives=tuple(others),
                followed_by=_followed_by(main, after, slots),
            )
        )
    return Skill(
        name=_name(task, episodes),
        use=_use(task, use_texts, episodes),
        steps=tuple(steps),
        slots=slots.numbered(),
        examples=slots.examples(ids),
        pitfalls=find_pitfalls(episodes, failures),
        routes=_routes(episodes, slots),
    )


def _routes(episodes: Sequence[EpisodicNode], slots: SlotTable) -> tuple[Route, ...]:
    """Write the whole ways of the episodes over the slots, each different one once."""
    found: dict[Route, list[str]] = {}
    for episode in episodes:
        # A longer observation is no answer to the action, but a view of all there is.
        seen = [text if len(text) <= _MOST_CHARS_OF_OBSERVATION else "" for text in followed(episode)]
        route = Route(
            actions=tuple(slots.written(action, episode.id) for action in actions_of(episode)),
            followed_by=tuple(slots.written(text, episode.id) for text in seen),
            values=slots.values_in(episode.id),
        )
        found.setdefault(route, []).append(episode.id)
    return tuple(replace(route, episode_ids=tuple(sorted(ids))) for route, ids in found.items())[:_MOST_ROUTES]


def _with_task_slots(episode: EpisodicNode, task: Pattern, position: int) -> list[list[Word]]:
    """Split an episode's actions into words, with what its task has in a gap as one word for that gap."""
    actions = [words_of(action) for action in actions_of(episode)]
    for gap, runs in sorted(task.gaps.items(), key=lambda item: -len(item[1][position])):
        if any(is_content_word(word.key) for word in runs[position]):
            actions = [substitute(words, runs[position], _task_key(gap)) for words in actions]
    return actions


def _usual(pattern: Pattern) -> Pattern:
    """Leave out the gaps of a step in which most episodes have nothing: one's extra word is no parameter."""
    gaps = {place: runs for place, runs in pattern.gaps.items() if 2 * sum(map(bool, runs)) >= len(runs)}
    return replace(pattern, gaps=gaps)


def _task_key(gap: int) -> str:
    # No text has such a word: controls are never words.
    return f"\x00{gap}"


def _followed_by(column: Column, after: Mapping[str, Sequence[str]], slots: SlotTable) -> tuple[Followed, ...]:
    texts = [shorten(after[id][place], _MOST_CHARS_OF_OBSERVATION) for id, place in column.places.items()]
    counts = Counter(slots.written(text, id) for id, text in zip(column.places, texts, strict=True) if text)
    usual = sorted(counts, key=lambda text: (-counts[text], len(text), text))[:_MOST_FOLLOWED]
    return tuple(Followed(text=text, count=counts[text]) for text in usual)


def _use(task: Pattern, names: Mapping[int, str], episodes: Sequence[EpisodicNode]) -> str:
    if task.share >= _LEAST_SHARE and any(is_content_word(word.key) for word in task.common):
        # Whole: the values of its slots are read off the next task.
        return task.render(names, {})
    words = _frequent_words(episodes)
    if words:
        return f"tasks on {', '.join(words)}"
    return shorten(" ".join(episodes[0].task_description.split()), _MOST_CHARS_OF_ACTION)


def _name(task: Pattern, episodes: Sequence[EpisodicNode]) -> str:
    words = [word.key for word in task.common if is_content_word(word.key)] if task.share >= _LEAST_SHARE else []
    words = words or _frequent_words(episodes) or [word.key for word in words_of(episodes[0].task_description)]
    return "-".join(regex.sub(r"[^\p{L}\p{M}\p{N}]+", "-", word).strip("-") for word in words[:_MOST_WORDS_OF_NAME])


def _frequent_words(episodes: Sequence[EpisodicNode]) -> list[str]:
    """Content words of at least half of the tasks, most frequent first."""
    counts = Counter(
        word
        for episode in episodes
        for word in {word.key for word in words_of(episode.task_description) if is_content_word(word.key)}
    )
    frequent = [word for word, count in counts.items() if 2 * count >= len(episodes) and count > 1]
    return sorted(frequent, key=lambda word: (-counts[word], word))[:_MOST_WORDS_OF_NAME]
