"""The case study itself: seed the memory, fail, be repaired, succeed, carry over, consolidate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.agent.results import TaskEvent, TaskResult
from fluxmem_local.graph import EpisodicNode, ProceduralNode
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.types import Layer

from .contexts import context_items, with_only_skill
from .environment import Question, TableWorld
from .policy import TablePolicy
from .seed_memory import SeedMemory
from .tables import MedalTable, write_table

__all__ = ["CaseStudy", "QuestionReport", "StudyReport"]

_TABLES = (
    MedalTable(
        file_name="medals.csv",
        header=("athlete", "country", "sport", "age", "medals"),
        countries={
            "United States": (9000, 1.9),
            "China": (7000, 2.0),
            "Norway": (600, 3.5),
            "Kenya": (900, 2.6),
            "Germany": (5200, 1.7),
        },
        sports=("rowing", "skiing", "athletics", "swimming"),
        seed=1,
    ),
    MedalTable(
        file_name="medaillen.csv",
        header=("Sportler", "Land", "Disziplin", "Alter", "Medaillen"),
        countries={
            "Vereinigte Staaten": (8000, 1.8),
            "China": (7500, 1.9),
            "Norwegen": (700, 2.4),
            "Kenia": (800, 3.6),
            "Deutschland": (5000, 2.0),
        },
        sports=("Rudern", "Ski", "Leichtathletik", "Schwimmen"),
        seed=2,
    ),
    MedalTable(
        file_name="medallas.csv",
        header=("deportista", "país", "deporte", "edad", "medallas"),
        countries={
            "Estados Unidos": (7000, 2.1),
            "China": (6500, 1.9),
            "Noruega": (500, 2.2),
            "Jamaica": (400, 3.9),
            "Alemania": (4800, 1.6),
        },
        sports=("remo", "esquí", "atletismo", "natación"),
        seed=3,
    ),
    MedalTable(
        file_name="youth_games.csv",
        header=("athlete", "country", "sport", "age", "medals"),
        countries={"Brazil": (4000, 1.2), "Japan": (3500, 1.4), "Fiji": (120, 2.9), "Italy": (3000, 1.3)},
        sports=("judo", "sailing", "fencing"),
        seed=4,
    ),
)


def _question(table: MedalTable) -> Question:
    return Question(
        text=f"Which country in {table.file_name} has the highest average of medals per athlete?",
        file_name=table.file_name,
        group_column=table.header[1],
        value_column=table.header[4],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionReport:
    """One question: what was done in each round, and the contexts before and after."""

    question: str
    file_name: str
    num_rows: int
    result: TaskResult
    attempts: tuple[str, ...]
    context_before: tuple[tuple[str, str], ...]
    context_after: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """Give the report as JSON data."""
        return {
            "question": self.question,
            "file_name": self.file_name,
            "num_rows": self.num_rows,
            "attempts": list(self.attempts),
            "context_before": [{"layer": layer, "content": text} for layer, text in self.context_before],
            "context_after": [{"layer": layer, "content": text} for layer, text in self.context_after],
            **self.result.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyReport:
    """The whole study."""

    questions: tuple[QuestionReport, ...]
    consolidation: Any
    skills: tuple[ProceduralNode, ...]
    stats: dict[str, Any]

    @property
    def success(self) -> bool:
        """Tell whether the first question was solved and the second one at its first try."""
        first, second, *_ = self.questions
        return first.result.success and second.result.success and second.result.rounds == 1

    def to_dict(self) -> dict[str, Any]:
        """Give the study as JSON data."""
        return {
            "success": self.success,
            "questions": [question.to_dict() for question in self.questions],
            "consolidation": self.consolidation.to_dict(),
            "skills": [
                {
                    "id": skill.id,
                    "skill_text": skill.skill_text,
                    "version": skill.version,
                    "pems_score": skill.pems_score,
                    "version_history": [
                        {"version": old.version, "pems_score": old.pems_score, "ended_because": old.ended_because}
                        for old in skill.version_history
                    ],
                }
                for skill in self.skills
            ],
            "stats": self.stats,
        }


class CaseStudy:
    """Runs the study on a memory. Which nodes to cut, add or rewrite is decided by the memory alone."""

    def __init__(self, agent: FluxMemAgent, embedder: BaseEmbedder, directory: Path) -> None:
        self._agent = agent
        self._directory = directory
        self._policy = TablePolicy(embedder, directory)

    async def run(
        self,
        seed_memory: SeedMemory | None = None,
        *,
        on_question: Callable[[str], None] = lambda text: None,
        on_event: Callable[[TaskEvent], None] | None = None,
    ) -> StudyReport:
        """Seed the memory, ask the questions in turn, consolidate."""
        for table in _TABLES:
            write_table(table, self._directory)
        await (seed_memory or SeedMemory()).store_in(self._agent)
        reports = []
        for table in _TABLES:
            on_question(_question(table).text)
            reports.append(await self._ask(table, on_event))
        consolidation = await self._agent.consolidate(replay_fn=self._replay)
        skills = self._agent.store.select(layers=(Layer.PROCEDURAL,))
        return StudyReport(
            questions=tuple(reports),
            consolidation=consolidation,
            skills=tuple(node for node in skills if isinstance(node, ProceduralNode)),
            stats=self._agent.stats,
        )

    async def _ask(self, table: MedalTable, on_event: Callable[[TaskEvent], None] | None) -> QuestionReport:
        question = _question(table)
        world = TableWorld(self._policy, self._directory, question)
        contexts: list[str] = []

        async def execute(context: str) -> tuple[str, str, bool]:
            contexts.append(context)
            return await world.execute(context)

        result = await self._agent.run_task(question.text, execute, on_event=on_event)
        return QuestionReport(
            question=question.text,
            file_name=table.file_name,
            num_rows=table.num_rows,
            result=result,
            attempts=tuple(str(attempt) for attempt in world.attempts),
            context_before=tuple(context_items(contexts[0])),
            context_after=tuple(context_items(contexts[-1])),
        )

    async def _replay(self, episode: EpisodicNode, skill: ProceduralNode) -> bool:
        """Do an episode's task again with this skill in place of all others, for real."""
        question = next((q for q in map(_question, _TABLES) if q.text == episode.task_description), None)
        if question is None:
            return bool(episode.success)
        context = with_only_skill(await self._agent.context(question.text), skill.skill_text)
        _, _, success = await TableWorld(self._policy, self._directory, question).execute(context)
        return success
