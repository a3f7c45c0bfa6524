"""Teaching: which episodes can teach a skill, and which of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import regex

from fluxmem_local.graph import EpisodicNode
from fluxmem_local.text import is_blank, is_question

from .antiunification import words_of
from .execution import ANSWERED

__all__ = ["actions_of", "counts_as_success", "followed", "is_content_word", "looks_like_doing", "share_subject"]

# A family's subject are the words in this part of its tasks, and this part of a task's words it must be on average.
_MOST_TASKS = 0.8
_LEAST_SUBJECT = 0.2
_ASKING = regex.compile(
    r"(?i)^\W*(?:who|whom|whose|what|which|when|where|why|how|is|are|was|were|do|does|did|has|have)\b"
)
# Asked for a way, or politely to do something: the answer is what was done.
_REQUEST = regex.compile(r"(?i)^\W*(?:how (?:do|can|could|should|would|to)\b|(?:can|could|will|would) you\b|please\b)")
# What a sentence has not, but a call, a command or a report of one has.
_DOING = regex.compile(r"[_()\[\]{}=`$|<>/\\]|(?<!\w)--?\w|\w:\s")
_FUNCTION = (
    "a an and any are as at be been but by can do does each every for from has have if in into is it its may more "
    "most must no not of on one or other should so such than that the their them then there these they this those "
    "to up use used using was were what when where which while who will with you your"
)
_FUNCTION_WORDS = frozenset(_FUNCTION.split())


def counts_as_success(episode: EpisodicNode) -> bool:
    """Tell whether an episode can teach a skill: it succeeded, did more than answer, and was not rolled back."""
    return (
        episode.status == "succeeded"
        and episode.success is True
        and not episode.metadata.get("rolled_back")
        and bool(actions_of(episode))
        and not _only_answers(episode)
    )


def share_subject(episodes: Sequence[EpisodicNode]) -> bool:
    """Tell whether the tasks of episodes have more in common than function words, as a skill for all of them needs."""
    subjects = [_subject(episode.task_description) for episode in episodes]
    counts = Counter(word for words in subjects for word in words)
    common = {word for word, count in counts.items() if count >= _MOST_TASKS * len(episodes)}
    shares = [len(words & common) / max(1, len(words)) for words in subjects]
    return sum(shares) >= _LEAST_SUBJECT * len(episodes) > 0


def actions_of(episode: EpisodicNode) -> list[str]:
    """Return what was done in an episode, each action as one line."""
    return [" ".join(action.split()) for _, action in episode.trajectory if not is_blank(action)]


def followed(episode: EpisodicNode) -> list[str]:
    """Return what was observed after each action of ``actions_of``, as one line; after the last one, the feedback."""
    seen = [*(observation for observation, _ in episode.trajectory[1:]), episode.feedback]
    return [
        " ".join(after.split())
        for (_, action), after in zip(episode.trajectory, seen, strict=True)
        if not is_blank(action)
    ]


def is_content_word(word: str) -> bool:
    """Tell whether a casefolded word says something by itself."""
    return (
        word not in _FUNCTION_WORDS and any(sign.isalnum() for sign in word) and (len(word) > 1 or not word.isascii())
    )


def looks_like_doing(text: str) -> bool:
    """Tell whether a text holds signs that calls, commands and reports of them have, and sentences do not."""
    return _DOING.search(text) is not None


def _only_answers(episode: EpisodicNode) -> bool:
    """Tell whether all that was done is to say something, as to a question of facts."""
    if episode.metadata.get(ANSWERED):
        return True
    steps = [step for step in episode.trajectory if not is_blank(step[1])]
    task = episode.task_description
    return (
        len(steps) == 1
        and is_blank(steps[0][0])
        and not looks_like_doing(steps[0][1])
        and (is_question(task) or _ASKING.search(task) is not None)
        and _REQUEST.search(task) is None
    )


def _subject(task: str) -> set[str]:
    return {word.key for word in words_of(task) if is_content_word(word.key)}
