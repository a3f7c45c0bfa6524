"""The cause of a failure by likelihood: a model too small to write a verdict can still find one likelier."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fluxmem_local.answers import Attribution

from .fitting import MEMORY_ELEMENT, cut_to_tokens
from .templates import render
from .verification import LikelihoodModel

__all__ = ["Note", "attribute_by_likelihood", "notes_of", "render_notes"]

_TASK = re.compile(r"<task>(.*?)</task>", re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")

_PROMPT_TOKENS = 384
_FEEDBACK_TOKENS = 128
_NOTE_TOKENS = 128
_MOST_NOTES = 16

_VERDICTS = {
    "expand": " a note that is needed for this task is missing.",
    "prune": " one of the notes led to the wrong tool or the wrong way.",
    "reshape": " the right note is there, but it is not precise enough to follow.",
    "none": " something outside of the notes is broken, such as the network or a service.",
}
_GRANULARITIES = {
    "fine": " a step is missing or was done in the wrong way, so the note must say more exactly what to do.",
    "coarse": " the note is about one special case, so it must state the general rule.",
}
_TYPES = {"expand": "connection", "prune": "connection", "reshape": "unit", "none": "none"}


@dataclass(frozen=True, slots=True)
class Note:
    """One memory of a serialised context."""

    id: str
    text: str


def notes_of(context: str) -> list[Note]:
    """Find the memories in a serialised context: elements that carry an id, in their order."""
    return [Note(html.unescape(found[2]), _plain(found[3])) for found in MEMORY_ELEMENT.finditer(context)]


def render_notes(context: str, notes: Sequence[Note]) -> str:
    """Write the task and the notes, numbered from 1, one a line; a context without ids is given as it is."""
    if not notes:
        return context
    task = _TASK.search(context)
    lines = [f"{number}. {note.text}" for number, note in enumerate(notes, 1)]
    return "\n".join([f"Task: {_plain(task[1])}", *lines] if task and task[1].strip() else lines)


def _plain(markup: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", markup)).split())


async def attribute_by_likelihood(
    model: LikelihoodModel, context: str, notes: Sequence[Note], feedback: str
) -> Attribution:
    """Choose the action whose sentence gains most by notes and feedback, against the same prompt without them.

    The target of a prune or reshape is the note that makes the feedback likeliest.
    """
    feedback = cut_to_tokens(feedback, _FEEDBACK_TOKENS, model.count_tokens)

    def prompt(context: str, outcome: str) -> str:
        return render("attribute_likelihood", _PROMPT_TOKENS, model.count_tokens, context=context, feedback=outcome)

    told, untold = prompt(render_notes(context, notes), feedback), prompt("none", "none")
    choices = [*_VERDICTS.values(), *_GRANULARITIES.values()]
    scores = await model.score_batch([told] * len(choices) + [untold] * len(choices), choices * 2)
    gains = scores[: len(choices)] - scores[len(choices) :]
    action = list(_VERDICTS)[int(np.argmax(gains[: len(_VERDICTS)]))]
    granularity = list(_GRANULARITIES)[int(np.argmax(gains[len(_VERDICTS) :]))] if action == "reshape" else None
    targets: tuple[str, ...] = ()
    if action in ("prune", "reshape") and notes:
        asked = notes[:_MOST_NOTES]
        blamed = await model.score_batch(
            [f"Note: {cut_to_tokens(note.text, _NOTE_TOKENS, model.count_tokens)}\nWhat went wrong:" for note in asked],
            [f" {feedback.strip()}"] * len(asked),
        )
        targets = (asked[int(np.argmax(blamed))].id,)
    return Attribution(_TYPES[action], action, f"The step failed because{_VERDICTS[action]}", targets, granularity)
