"""Conversations of LoCoMo (Maharana et al., ACL 2024), read from a folder that the caller has: for evaluation only."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CATEGORIES", "Conversation", "Turn", "TurnQuestion", "load_conversations"]

# Category 5 has no answer and no evidence.
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
_TURN_ID = re.compile(r"D\d+:\d+")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as it goes into a memory; ``session`` is its source, ``place`` its number in it."""

    dia_id: str
    session: str
    place: int
    date: str
    content: str


@dataclass(frozen=True, slots=True)
class TurnQuestion:
    """A question and the ids of the turns that answer it."""

    question: str
    category: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    turns: tuple[Turn, ...]
    questions: tuple[TurnQuestion, ...]


def load_conversations(folder: Path) -> list[Conversation]:
    """Read every ``*.json`` of a folder, in the order of their names."""
    return [_conversation(path.stem, json.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("*.json"))]


def _conversation(name: str, data: dict[str, Any]) -> Conversation:
    sessions = data.get("conversation", data)
    turns = []
    for number in range(1, 100):
        date = str(sessions.get(f"session_{number}_date_time", ""))
        for place, turn in enumerate(sessions.get(f"session_{number}") or ()):
            caption = f" (image: {turn['blip_caption']})" if turn.get("blip_caption") else ""
            content = f"{turn['speaker']}: {turn.get('clean_text') or turn.get('text') or ''}{caption}"
            turns.append(Turn(turn["dia_id"], f"{name}/session_{number}", place, date, content))
    known = {turn.dia_id for turn in turns}
    questions = []
    for asked in data["qa"]:
        named = [id for text in asked.get("evidence", ()) for id in _TURN_ID.findall(text) if id in known]
        if asked["category"] in CATEGORIES and named:
            category = CATEGORIES[asked["category"]]
            questions.append(TurnQuestion(asked["question"], category, tuple(dict.fromkeys(named))))
    return Conversation(name, tuple(turns), tuple(questions))
