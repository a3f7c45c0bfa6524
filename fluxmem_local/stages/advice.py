"""SkillWriter: what a language model may add to skills, each answer checked before it is used."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence

from fluxmem_local.answers import is_schema_echo, usable_text
from fluxmem_local.graph import EpisodicNode
from fluxmem_local.interfaces import BaseLLM, approximate_tokens
from fluxmem_local.retrieval import render_episode
from fluxmem_local.text import is_blank

from .budget import Budget
from .grounding import grounded_text

__all__ = ["SkillWriter"]

# A prompt must not grow with the memory.
_MOST_EPISODES = 8
_MOST_CHARS_OF_EPISODE = 1500
_MOST_CHARS_OF_DESCRIPTION = 600
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

    async def describe(self, episodes: Sequence[EpisodicNode]) -> str | None:
        """Say in a few words, all of them grounded in the episodes, what they have in common."""
        if self._author is None or not self.budget.has_calls:
            return None
        texts = _episode_texts(episodes)
        answer = await self._ask(self._author.extract_skills(texts), texts, _MOST_CHARS_OF_DESCRIPTION)
        return None if answer is None else " ".join(answer.split())

    async def refine(self, skill_text: str, observed: str, episodes: Sequence[EpisodicNode]) -> str | None:
        """Rewrite a skill by what was observed of it; the skill as it is, when the model sees nothing to change."""
        if self._author is None or not self.budget.has_calls:
            return None
        sources = [skill_text, observed, *_episode_texts(episodes)]
        room = max(_LEAST_ROOM_FOR_SKILL, 2 * len(skill_text))
        return await self._ask(self._author.refine_skill(skill_text, observed), sources, room)

    async def _ask(self, call: Awaitable[str], sources: Sequence[str], max_chars: int) -> str | None:
        self.budget.num_calls += 1
        left = self.budget.seconds_left
        try:
            answer = await asyncio.wait_for(call, _LLM_TIMEOUT_S if left is None else min(left, _LLM_TIMEOUT_S))
        except asyncio.TimeoutError:
            self._author = None
            self.bad_answers["no answer in time"] += 1
            return None
        except Exception:  # a user's own backend may raise anything; nothing is lost by doing without it
            self.bad_answers["error"] += 1
            return None
        text = grounded_text(answer, sources, max_chars)
        if text is None:
            self.bad_answers[_what_is_wrong(answer, max_chars)] += 1
        return text


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


def _episode_texts(episodes: Sequence[EpisodicNode]) -> list[str]:
    newest = sorted(episodes, key=lambda episode: (-episode.created_at, episode.id))[:_MOST_EPISODES]
    return [render_episode(episode)[:_MOST_CHARS_OF_EPISODE] for episode in newest]
