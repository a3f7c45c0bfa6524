"""The world of the case study: it runs the agent's attempt and checks the answer against the files' true statistics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .policy import Attempt, TablePolicy
from .tools import RenderLimitError, aggregate_rows

__all__ = ["Question", "TableWorld"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A task with what is needed to check its answer."""

    text: str
    file_name: str
    group_column: str
    value_column: str


class TableWorld:
    """Executes one question at a time; ``attempts`` keeps what was done."""

    def __init__(self, policy: TablePolicy, directory: Path, question: Question) -> None:
        self._policy = policy
        self._question = question
        path = directory / question.file_name
        self._averages = dict(aggregate_rows(path, question.group_column, question.value_column, "average"))
        self._right_answer = max(self._averages, key=lambda group: self._averages[group])
        self.attempts: list[Attempt | str] = []

    async def execute(self, context: str) -> tuple[str, str, bool]:
        """Run one attempt: the result, what the world says to it, and whether it is right."""
        try:
            attempt = await self._policy.act(context, self._question.text)
        except (RenderLimitError, LookupError) as error:
            self.attempts.append(str(error))
            return "", f"{type(error).__name__}: {error}", False
        self.attempts.append(attempt)
        if attempt.value is None:
            return str(attempt), f"{attempt.tool} showed the cells, but no answer could be read from them.", False
        if attempt.answer == self._right_answer and abs(self._averages[attempt.answer] - attempt.value) < 1e-9:
            return str(attempt), "", True
        return str(attempt), self._objection(attempt), False

    def _objection(self, attempt: Attempt) -> str:
        question = self._question
        if (attempt.group_column, attempt.value_column) != (question.group_column, question.value_column):
            return (
                f"Self-check failed: the answer is about {attempt.value_column} by {attempt.group_column}, "
                "which the question does not ask for."
            )
        return (
            f"Self-check failed: {attempt.value:.2f} for {attempt.answer} is the {attempt.operation} of "
            f"{attempt.value_column}, not an average per athlete as the question asks. The procedure is too coarse: "
            "it ranks an existing statistic and does not derive the average for each group."
        )
