"""SkillWriter: what a language model may add to skills, each answer checked before it is used."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import replace

from fluxmem_local.answers import is_schema_echo, parse_json_object, usable_text
from fluxmem_local.graph import EpisodicNode, Skill
from fluxmem_local.interfaces import BaseLLM, approximate_tokens
from fluxmem_local.retrieval import render_episode
from fluxmem_local.text import is_blank

from .antiunification import similarity, words_of
from .budget import Budget
from .grounding import grounded_text

__all__ = ["SkillWriter"]

# A prompt must not grow with the memory.
_MOST_EPISODES = 8
_MOST_CHARS_OF_EPISODE = 1500
_MOST_CHARS_OF_DESCRIPTION = 600
_MOST_CHARS_OF_NAME = 64
_MOST_CHARS_OF_STEP = 160
_MOST_STEPS_ADDED = 3
# From this likeness on, a step is one that the skill has.
_LEAST_LIKENESS = 0.5
_LEAST_ROOM_FOR_SKILL = 600
# A consolidation is not waited for, so that a slow model gets longer than in a running task.
_LLM_TIMEOUT_S = 600.0


class SkillWriter:
    """Asks a language model, or nobody (``llm`` None, or one that cannot write), within a budget.

    An answer that can't be used, and any error of the model, is None: the text that was made without it stands, and
    ``bad_answers`` counts it by what was wrong. A model that hangs is not asked again.
    """

    def __init__(self, llm: BaseLLM | None, budget: Budget | None = None) -> None:
        self._llm = llm
        self._author = llm if llm is not None and llm.writes_memories else None
        self.budget = budget if budget is not None else Budget()
        self.bad_answers: Counter[str] = Counter()

    @property
    def num_calls(self) -> int:
        """How often the model was asked."""
        return self.budget.num_calls

    @property
    def num_failures(self) -> int:
        """How many of its answers could not be used."""
        return self.bad_answers.total()

    @property
    def is_hopeless(self) -> bool:
        """Whether the model was asked and not one of its answers could be used."""
        return 0 < self.num_calls == self.num_failures

    def count_tokens(self, text: str) -> int:
        """Count tokens as the model does, or roughly without one."""
        return approximate_tokens(text) if self._llm is None else self._llm.count_tokens(text)

    async def advise(self, skill: Skill, episodes: Sequence[EpisodicNode]) -> Skill:
        """Let the model name and describe a skill, and add steps, in words that the episodes hold.

        It answers with a JSON object of "name", "description" and "steps" (each an "action" and the numbers of the
        "records" that hold it), or with a description alone. Steps that the skill has already are passed over; others
        become ``unsupported``, three at most, unless they name what no episode does.
        """
        if self._author is None or not self.budget.has_calls:
            return skill
        texts = _episode_texts(episodes)
        answer = await self._answer(self._author.extract_skills(texts))
        if answer is None:
            return skill
        value = parse_json_object(answer) if isinstance(answer, str) else None
        if value is None:
            description = self._grounded(answer, texts, _MOST_CHARS_OF_DESCRIPTION)
            return skill if description is None else replace(skill, description=" ".join(description.split()))
        steps = value.get("steps")
        steps = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
        if not all(_are_records(step.get("records"), len(texts)) for step in steps):
            self.bad_answers["wrong ids"] += 1
            return skill
        name = grounded_text(str(value.get("name", "")).replace("-", " "), texts, _MOST_CHARS_OF_NAME)
        description = grounded_text(value.get("description"), texts, _MOST_CHARS_OF_DESCRIPTION)
        actions = [grounded_text(step.get("action"), texts, _MOST_CHARS_OF_STEP) for step in steps]
        if not any([name, description, *actions]):
            self.bad_answers["not about the episodes"] += 1
            return skill
        added = [" ".join(action.split()) for action in actions if action is not None and not _is_known(action, skill)]
        return replace(
            skill,
            name=skill.name if name is None else "-".join(name.casefold().split()),
            description="" if description is None else " ".join(description.split()),
            unsupported=tuple(dict.fromkeys(added))[:_MOST_STEPS_ADDED],
        )

    async def refine(self, skill_text: str, observed: str, episodes: Sequence[EpisodicNode]) -> str | None:
        """Rewrite a skill by what was observed of it; the skill as it is, when the model sees nothing to change."""
        if self._author is None or not self.budget.has_calls:
            return None
        sources = [skill_text, observed, *_episode_texts(episodes)]
        room = max(_LEAST_ROOM_FOR_SKILL, 2 * len(skill_text))
        answer = await self._answer(self._author.refine_skill(skill_text, observed))
        return None if answer is None else self._grounded(answer, sources, room)

    def _grounded(self, answer: object, sources: Sequence[str], max_chars: int) -> str | None:
        text = grounded_text(answer, sources, max_chars)
        if text is None:
            self.bad_answers[_what_is_wrong(answer, max_chars)] += 1
        return text

    async def _answer(self, call: Awaitable[object]) -> object | None:
        """Wait for the model; None when it fails, which is counted."""
        self.budget.num_calls += 1
        left = self.budget.seconds_left
        try:
            answer = await asyncio.wait_for(call, _LLM_TIMEOUT_S if left is None else min(left, _LLM_TIMEOUT_S))
            return "" if answer is None else answer
        except asyncio.TimeoutError:
            self._author = None
            self.bad_answers["no answer in time"] += 1
            return None
        except Exception:  # a user's own backend may raise anything; nothing is lost by doing without it
            self.bad_answers["error"] += 1
            return None


def _what_is_wrong(answer: object, max_chars: int) -> str:
    if not isinstance(answer, str):
        return "no text"
    if is_blank(answer):
        return "empty"
    if is_schema_echo(answer):
        return "echo of the schema"
    if usable_text(answer, max_chars) is None:
        # Of the longest allowed it would be usable but for its length.
        return "too long" if usable_text(answer, len(answer)) is not None else "repetition"
    return "not about the episodes"


def _are_records(numbers: object, count: int) -> bool:
    """Tell whether numbers, if there are any, are those of records that were shown."""
    if numbers is None:
        return True
    return isinstance(numbers, list) and all(type(number) is int and 1 <= number <= count for number in numbers)


def _is_known(action: str, skill: Skill) -> bool:
    words = words_of(action)
    ways = [way for step in skill.steps for way in (step.template, *(other.template for other in step.alternatives))]
    return any(similarity(words, words_of(way)) >= _LEAST_LIKENESS for way in ways)


def _episode_texts(episodes: Sequence[EpisodicNode]) -> list[str]:
    newest = sorted(episodes, key=lambda episode: (-episode.created_at, episode.id))[:_MOST_EPISODES]
    return [render_episode(episode)[:_MOST_CHARS_OF_EPISODE] for episode in newest]
