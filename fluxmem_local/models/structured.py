"""JSON by construction: outlines lets the model write only what the schema allows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fluxmem_local.errors import ModelOutputError
from fluxmem_local.types import JsonObject

from .loading import LoadedLLM

__all__ = ["ATTRIBUTION_SCHEMA", "SKILL_SCHEMA", "VERDICT_SCHEMA", "GrammarMask", "grammar", "schema_key", "typed_json"]

# A model that may write spaces anywhere can write nothing else until it is cut off.
_WHITESPACE = "[ ]?"

VERDICT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"score": {"type": "number", "enum": [round(step / 20, 2) for step in range(21)]}},
    "required": ["score"],
    "additionalProperties": False,
}
# Bounded in each part, so that an answer ends within a known number of tokens; notes are named by their number.
ATTRIBUTION_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "details": {"type": "string", "minLength": 1, "maxLength": 64},
        "action": {"type": "string", "enum": ["expand", "prune", "reshape", "none"]},
        "granularity": {"type": "string", "enum": ["fine", "coarse", "none"]},
        "targets": {"type": "array", "items": {"type": "integer", "enum": list(range(1, 17))}, "maxItems": 2},
    },
    "required": ["details", "action", "granularity", "targets"],
    "additionalProperties": False,
}

# Records are named by their number; which of them exist is checked when the answer is used. Texts are short, because
# the grammar is compiled state by state, and a state is a character.
SKILL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 48},
        "description": {"type": "string", "minLength": 1, "maxLength": 120},
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "action": {"type": "string", "minLength": 1, "maxLength": 64},
                    "records": {
                        "type": "array",
                        "items": {"type": "integer", "enum": list(range(1, 9))},
                        "maxItems": 4,
                    },
                },
                "required": ["action", "records"],
                "additionalProperties": False,
            },
            "maxItems": 4,
        },
    },
    "required": ["name", "description", "steps"],
    "additionalProperties": False,
}


def schema_key(schema: Mapping[str, Any]) -> str:
    """Return a schema as the text that is compiled; its properties keep their order, which is that of the answer."""
    return json.dumps(schema)


class GrammarMask:
    """Leaves each row of a batch only the tokens with which its answer can still become what the schema asks."""

    def __init__(self, index: Any, num_rows: int) -> None:
        from outlines_core import Guide

        self._guides = [Guide(index) for _ in range(num_rows)]
        self._started = False

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Set the scores ``(n, vocabulary)`` of tokens that are not allowed to minus infinity."""
        import torch

        allowed = torch.full_like(scores, -torch.inf)
        for guide, row, last in zip(self._guides, allowed, input_ids[:, -1].tolist(), strict=True):
            # A finished row goes on with padding while others write.
            if self._started and not guide.is_finished():
                guide.advance(last, return_tokens=False)
            row[torch.tensor(guide.get_tokens(), device=scores.device)] = 0
        self._started = True
        return scores + allowed


def grammar(loaded: LoadedLLM, schema: str, num_rows: int) -> GrammarMask:
    """Return the mask of a schema for a new batch; the grammar is compiled once a model and schema.

    outlines' own mask is compiled by torch at its first use, which takes 20 s and a C++ compiler; this one needs none.
    """
    index = loaded.grammars.get(schema)
    if index is None:
        import outlines
        from outlines.backends.outlines_core import OutlinesCoreBackend

        backend = OutlinesCoreBackend(outlines.from_transformers(loaded.model, loaded.tokenizer))
        index = backend.get_json_schema_logits_processor(schema, _WHITESPACE).index
        loaded.grammars[schema] = index
    return GrammarMask(index, num_rows)


def typed_json(text: str) -> JsonObject:
    """Read an answer that was written under a grammar.

    Raises:
        ModelOutputError: it was cut off before its end.
    """
    try:
        value = json.loads(text, strict=False)
    except ValueError as error:
        raise ModelOutputError(
            f"the model's JSON was cut off after {len(text)} characters; raise max_new_tokens or use a larger model"
        ) from error
    if not isinstance(value, dict):
        raise ModelOutputError(f"the model answered {text[:40]!r}, which is no JSON object; use a larger model")
    return value
