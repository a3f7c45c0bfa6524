"""The agent of the case study: a small fixed policy that does what the memory context tells it.

It sees the context string, the task and the folder of files, nothing of the memory behind them. It has no opinion of
its own on tools or on statistics: it takes the tool from the first fact that speaks of one, and the operation from the
instruction in procedural or episodic memory that fits the task best.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.types import FloatArray

from .contexts import context_items
from .tools import OPERATIONS, TOOLS, aggregate_rows, read_header, view_spreadsheet

__all__ = ["Attempt", "TablePolicy"]

# A text under this cosine to every tool does not speak of tools.
_TOOL_SIMILARITY = 0.4
_ASKED_FOR = re.compile(r"\b[Ww]hich (\w+)")
_SENTENCE_END = re.compile(r"(?<=[.;!?])\s+|\n+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What the agent did in one execution."""

    tool: str
    operation: str
    file_name: str
    group_column: str = ""
    value_column: str = ""
    answer: str = ""
    value: float | None = None

    def __str__(self) -> str:
        if self.value is None:
            return f"opened {self.file_name} with {self.tool}"
        return (
            f"used {self.tool} on {self.file_name}: {self.operation} of {self.value_column} by {self.group_column} "
            f"gives {self.answer} ({self.value:.2f})"
        )


class TablePolicy:
    """Answers questions on the CSV files of a folder by following a memory context."""

    def __init__(self, embedder: BaseEmbedder, directory: Path) -> None:
        self._embedder = embedder
        self._directory = directory

    async def act(self, context: str, task: str) -> Attempt:
        """Carry out one attempt.

        Raises:
            LookupError: the context names no tool.
            RenderLimitError: the viewer refused the file.
        """
        items = context_items(context)
        facts = [text for kind, text in items if kind == "fact"]
        tool = await self._choose_tool(facts)
        path = self._directory / self._choose_file(task)
        if tool == "spreadsheet_viewer":
            view_spreadsheet(path)
            return Attempt(tool=tool, operation="look", file_name=path.name)
        instructions = [text for kind, text in items if kind != "fact"]
        operation = await self._choose_operation(instructions, task)
        group_column, value_column = await self._choose_columns(path, task)
        (answer, value), *_ = aggregate_rows(path, group_column, value_column, operation)
        return Attempt(
            tool=tool,
            operation=operation,
            file_name=path.name,
            group_column=group_column,
            value_column=value_column,
            answer=answer,
            value=value,
        )

    async def _choose_tool(self, facts: list[str]) -> str:
        if facts:
            similarities = await self._similarities(facts, list(TOOLS.values()))
            for row in similarities:
                if row.max() >= _TOOL_SIMILARITY:
                    return list(TOOLS)[int(row.argmax())]
        raise LookupError("no tool to read the table is known: the memory context says nothing about one")

    def _choose_file(self, task: str) -> str:
        names = sorted(path.name for path in self._directory.glob("*.csv"))
        return next((name for name in names if name in task), names[0])

    async def _choose_operation(self, instructions: list[str], task: str) -> str:
        parts = [part.strip() for text in instructions for part in _SENTENCE_END.split(text)]
        # A question that was asked once tells nobody what to do.
        sentences = [part for part in parts if part and not part.endswith("?")]
        if not sentences:
            return "total"
        to_operations = await self._similarities(sentences, list(OPERATIONS.values()))
        to_task = await self._similarities(sentences, [task])
        scores = (np.clip(to_operations, 0, None) * np.clip(to_task, 0, None)).max(axis=0)
        return list(OPERATIONS)[int(scores.argmax())]

    async def _choose_columns(self, path: Path, task: str) -> tuple[str, str]:
        header, rows = read_header(path)
        numeric = [i for i in range(len(header)) if all(_is_number(row[i]) for row in rows)]
        # A column with a new value in each row names the row, so nothing can be grouped by it.
        groupable = [i for i in range(len(header)) if i not in numeric and len({row[i] for row in rows}) < len(rows)]
        asked = _ASKED_FOR.search(task)
        group = asked[1] if asked else task
        # Names and values together, since a header may be in another language than the question.
        described = [f"{header[i]}: {', '.join(sorted({row[i] for row in rows}))}" for i in groupable]
        by_group = (await self._similarities(described, [group]))[:, 0]
        by_value = (await self._similarities([header[i] for i in numeric], [task.replace(group, "")]))[:, 0]
        return header[groupable[int(by_group.argmax())]], header[numeric[int(by_value.argmax())]]

    async def _similarities(self, texts: list[str], others: list[str]) -> FloatArray:
        vectors = await self._embedder.embed_batch([*texts, *others])
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(unit[: len(texts)] @ unit[len(texts) :].T, dtype=np.float32)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
