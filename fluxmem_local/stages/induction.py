"""Induction: one skill from the episodes of a cluster, by alignment, without a language model (spec section 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import regex

from fluxmem_local.answers import usable_text
from fluxmem_local.graph import EpisodicNode, Pitfall, Skill, Slot, Step
from fluxmem_local.text import tokenize

from .antiunification import Pattern, Word, align, anti_unify, substitute, words_of
from .rewriting import names_in
from .teaching import actions_of, is_content_word

__all__ = ["grounded_text", "induce_skill"]

# More successes of one kind add counts, not steps; aligning costs the product of their lengths.
_MOST_ALIGNED = 64
_MOST_PITFALLS = 3
_MOST_CHARS_OF_VALUE = 60
_MOST_CHARS_OF_FEEDBACK = 160
_MOST_CHARS_OF_ACTION = 240
_MOST_WORDS_OF_NAME = 6
# Tasks that share less than this have no wording in common worth showing; their frequent words are named instead.
_LEAST_SHARE = 0.3
# Of an added text's content words, this part must be found in the episodes.
_GROUNDED_SHARE = 0.5
# Numbers of a list are no claims.
_LIST_NUMBER = regex.compile(r"(?m)^[^\S\n]*\d+[.)]\s")
_CONTENT_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+(?:[._\-/:@+][\p{L}\p{M}\p{N}]+)*")
# Numbers, paths, addresses and identifiers: nearly right is wrong.
_EXACT = regex.compile(r"[\p{N}._/:@]")
_FIRST_MARK = 0xF0000
_MARKED = regex.compile("\x01(.)\x02")


@dataclass(slots=True)
class _Column:
    """One aligned step: the words that its instances share so far, and each episode's action."""

    words: list[Word]
    actions: dict[str, list[Word]]


def induce_skill(successes: Sequence[EpisodicNode], failures: Sequence[EpisodicNode] = ()) -> Skill:
    """Distil a skill from episodes that succeeded, and its pitfalls from some that failed.

    Actions are aligned across the episodes; a step is what more than half of them did, with slots where they differ.
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
    task = anti_unify([words_of(_one_line(episode.task_description)) for episode in episodes])
    slots = _Slots()
    use_gaps = slots.of(task, ids)
    columns = _aligned({episode.id: _with_task_slots(episode, task, place) for place, episode in enumerate(episodes)})
    shared = [column for column in columns if 2 * len(column.actions) > len(episodes)]
    if not shared:
        shared = [column for column in columns if ids[0] in column.actions]
    patterns = [_usual(anti_unify(list(column.actions.values()))) for column in shared]
    step_gaps = [slots.of(pattern, list(column.actions)) for pattern, column in zip(patterns, shared, strict=True)]
    use_texts = slots.named(use_gaps)
    word_texts = {_task_key(gap): text for gap, text in use_texts.items()}
    failed_steps = _steps_of_failures(shared, failures)
    return Skill(
        name=_name(task, episodes),
        use=_use(task, use_texts, episodes),
        steps=tuple(
            Step(
                template=_shorten(pattern.render(slots.named(gaps), word_texts)),
                words=tuple(
                    word.key for word in pattern.common if is_content_word(word.key) and word.key not in word_texts
                ),
                succeeded_ids=tuple(sorted(column.actions)),
                failed_ids=tuple(failed),
            )
            for pattern, gaps, column, failed in zip(patterns, step_gaps, shared, failed_steps, strict=True)
        ),
        slots=slots.numbered(),
        examples=slots.examples(ids),
        pitfalls=_pitfalls(failures),
    )


def grounded_text(answer: object, sources: Sequence[str], max_chars: int) -> str | None:
    """Return a model's text on some sources, or None if it can't be used.

    It must be usable at all (not blank, too long, repetitive) and grounded: most of its content words, and each number,
    path, date and name, are found in the sources.
    """
    if not isinstance(answer, str):
        return None
    text = usable_text(answer, max_chars)
    if text is None or text[0] in "{[<":
        return None
    known: set[str] = set()
    for source in sources:
        known.update(tokenize(source))
        known.update(word.casefold() for word in _CONTENT_WORD.findall(source))
    words = [word.casefold() for word in _CONTENT_WORD.findall(_LIST_NUMBER.sub("", text))]
    words = [word for word in words if is_content_word(word)]
    found, named = (
        [any(token in known for token in (word, *tokenize(word))) for word in some]
        for some in (words, filter(is_content_word, names_in(text)))
    )
    exact = [word in known for word in words if _EXACT.search(word)]
    if not words or sum(found) < _GROUNDED_SHARE * len(words) or not all(exact + named):
        return None
    return text


class _Slots:
    """Gaps of patterns, joined where they have the same values in all episodes that both are seen in.

    A gap whose values are made of those of slots, as ``shop-web`` and ``blog-web`` of ``shop`` and ``blog``, is written
    with them.
    """

    def __init__(self) -> None:
        self._values: list[dict[str, str]] = []

    def of(self, pattern: Pattern, ids: Sequence[str]) -> dict[int, str]:
        """Map each gap of a pattern of these episodes to its text, in which a slot is written as ``_mark`` of it."""
        return {
            gap: self._text(dict(zip(ids, map(_shorten_value, pattern.values(gap)), strict=True)))
            for gap in sorted(pattern.gaps)
        }

    def named(self, texts: Mapping[int, str]) -> dict[int, str]:
        """Write the slots in texts of gaps by number and kind."""
        numbered = self.numbered()
        return {
            gap: _MARKED.sub(lambda found: str(numbered[ord(found[1]) - _FIRST_MARK]), text)
            for gap, text in texts.items()
        }

    def numbered(self) -> tuple[Slot, ...]:
        """Return the slots with their numbers and the word for their kind."""
        return tuple(
            Slot(number=number, kind=_kind(list(values.values())), values=_by_frequency(values.values()))
            for number, values in enumerate(self._values, start=1)
        )

    def examples(self, ids: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the values that the slots had together, most frequent first."""
        rows = [tuple(values.get(id, "") for values in self._values) for id in ids]
        counted = Counter(row for row in rows if any(row))
        return tuple(sorted(counted, key=lambda row: (-counted[row], row)))

    def _text(self, values: dict[str, str]) -> str:
        for place, known in enumerate(self._values):
            both = known.keys() & values.keys()
            if len(both) > 1 and all(known[id].casefold() == values[id].casefold() for id in both):
                known.update(values)
                return _mark(place)
        return self._composed(values) or self._new(values)

    def _composed(self, values: Mapping[str, str]) -> str | None:
        """Write values by the slots whose values are parts of them, if that makes them all the same."""
        texts = dict(values)
        for place, known in enumerate(self._values):
            parts = {id: known.get(id, "") for id in texts}
            if all(len(part) > 1 and part.casefold() in texts[id].casefold() for id, part in parts.items()):
                texts = {
                    id: regex.sub(regex.escape(parts[id]), _mark(place), text, flags=regex.IGNORECASE)
                    for id, text in texts.items()
                }
        written = next(iter(texts.values()))
        same = all(text.casefold() == written.casefold() for text in texts.values())
        return written if len(texts) > 1 and same and _MARKED.search(written) else None

    def _new(self, values: dict[str, str]) -> str:
        self._values.append(values)
        return _mark(len(self._values) - 1)


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


def _mark(slot: int) -> str:
    # One character of private use, between controls that values are cleared of.
    return f"\x01{chr(_FIRST_MARK + slot)}\x02"


def _task_key(gap: int) -> str:
    # No text has such a word: controls are never words.
    return f"\x00{gap}"


def _aligned(actions_of: Mapping[str, list[list[Word]]]) -> list[_Column]:
    columns: list[_Column] = []
    for id, actions in actions_of.items():
        merged: list[_Column] = []
        for column_place, action_place in align([column.words for column in columns], actions):
            if action_place is None:
                assert column_place is not None
                merged.append(columns[column_place])
                continue
            words = actions[action_place]
            if column_place is None:
                merged.append(_Column(words, {id: words}))
                continue
            column = columns[column_place]
            column.actions[id] = words
            column.words = list(anti_unify([column.words, words]).common)
            merged.append(column)
        columns = merged
    return columns


def _steps_of_failures(columns: Sequence[_Column], failures: Sequence[EpisodicNode]) -> list[list[str]]:
    """List for each column the failed episodes that did it too."""
    found: list[list[str]] = [[] for _ in columns]
    for episode in sorted(failures, key=lambda episode: episode.id):
        pairs = align([column.words for column in columns], [words_of(action) for action in actions_of(episode)])
        for column_place, action_place in pairs:
            if column_place is not None and action_place is not None:
                found[column_place].append(episode.id)
    return found


def _pitfalls(failures: Sequence[EpisodicNode]) -> tuple[Pitfall, ...]:
    ends: dict[tuple[str, str], list[str]] = {}
    for episode in failures:
        actions = actions_of(episode)
        feedback = _shorten(_one_line(episode.feedback), _MOST_CHARS_OF_FEEDBACK)
        if actions:
            ends.setdefault((_shorten(actions[-1]), feedback), []).append(episode.id)
    worst = sorted(ends, key=lambda end: (-len(ends[end]), end))[:_MOST_PITFALLS]
    return tuple(Pitfall(action=end[0], feedback=end[1], episode_ids=tuple(sorted(ends[end]))) for end in worst)


def _use(task: Pattern, names: Mapping[int, str], episodes: Sequence[EpisodicNode]) -> str:
    if task.share >= _LEAST_SHARE and any(is_content_word(word.key) for word in task.common):
        return _shorten(task.render(names, {}))
    words = _frequent_words(episodes)
    return f"tasks on {', '.join(words)}" if words else _shorten(_one_line(episodes[0].task_description))


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


def _kind(values: Sequence[str]) -> str:
    """Name the kind of a slot's values: a word that most of them share, or what they look like."""
    given = {value for value in values if value}
    if all(regex.fullmatch(r"[\d.,:%\-]+", value) for value in given):
        return "number"
    counts = Counter(part for value in given for part in set(regex.findall(r"\p{L}{2,}", value.casefold())))
    shared = [part for part, count in counts.items() if 2 * count > len(given) > 1 and is_content_word(part)]
    return max(shared, key=lambda part: (counts[part], part)) if shared else "item"


def _by_frequency(values: Iterable[str]) -> tuple[str, ...]:
    counts = Counter(value for value in values if value)
    return tuple(sorted(counts, key=lambda value: (-counts[value], value)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shorten(text: str, most: int = _MOST_CHARS_OF_ACTION) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _shorten_value(value: str) -> str:
    return _shorten(value.replace("\x01", ""), _MOST_CHARS_OF_VALUE)
