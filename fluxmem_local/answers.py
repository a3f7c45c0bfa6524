"""Turns what a language model said into a typed value, or into None: nothing here guesses.

A model's answer is untrusted. Callers treat None as "do nothing" (spec section 4).
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fluxmem_local.types import JsonObject

__all__ = ["Attribution", "is_schema_echo", "parse_attribution", "parse_json_object", "parse_score", "usable_text"]

# One that never ends takes the rest, so that its end is looked for once.
_THOUGHT = re.compile(r"<think(?:ing)?>(?:.*?</think(?:ing)?>|.*\Z)", re.DOTALL | re.IGNORECASE)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(\s*[}\]])', re.DOTALL)
# A broken answer may open thousands of braces; more starts than this are not looked at.
_MOST_STARTS = 64
_LONGEST_ANSWER = 200_000

_NUMBER = r"(?:\d+(?:[.,]\d+)?|[.,]\d+)(?:e[+-]?\d+)?"
_RATIO = re.compile(rf"(?<![\w.,])(-?{_NUMBER})\s*(?:/|out\s+of)\s*({_NUMBER})(?![\w/])", re.IGNORECASE)
_SCALE = re.compile(
    rf"(?:\bout\s+of|\bon\s+a\s+scale\s+(?:of|from)|\bscale\s*:?)\s*{_NUMBER}(?:\s*(?:to|-|–)\s*{_NUMBER})?"
    rf"(?:\s*points?)?",
    re.IGNORECASE,
)
_VALUE = re.compile(rf"(?<![\w.,])([-−–]?\s?{_NUMBER})(\s*%)?(?![\w]|[.,]\d)", re.IGNORECASE)
# A whole number inside a sentence is more likely a count or a label ("fact 1") than a verdict.
_BARE_WHOLE = re.compile(
    r"\W*(?:score|relevance|rating|answer|verdict|value)?\s*(?:is)?\s*[:=]?\s*[01]\W*", re.IGNORECASE
)

_TYPE_OF_ACTION = {"expand": "connection", "prune": "connection", "reshape": "unit", "none": "none"}
_GRANULARITIES = ("fine", "coarse")
_MOST_DETAILS = 2000

# One word ten times in a row is no sentence in any language.
_MOST_REPEATS = 10
_LONGEST_PERIOD_WORDS = 8
_COMPRESSION_MIN_CHARS = 240
# Prose in the languages tried packs to 0.3-0.6 of its size; tables to 0.15; a loop to less than 0.05.
_LOWEST_COMPRESSION = 0.1


@dataclass(frozen=True, slots=True)
class Attribution:
    """The cause of a failed step as a model named it, with the edit that would mend it (spec section 4).

    ``type`` is "connection", "unit" or "none"; ``action`` "expand", "prune", "reshape" or "none"; ``targets`` are node
    ids; ``granularity`` is "fine" or "coarse" for reshape and None for all else.
    """

    type: str
    action: str
    details: str = ""
    targets: tuple[str, ...] = ()
    granularity: str | None = None


def usable_text(text: str, max_chars: int) -> str | None:
    """Return a model's text without thoughts and outer space.

    Returns:
        None if it is blank, too long, repeats itself, or holds half a surrogate pair, which no text that is stored may.
    """
    plain = _without_thoughts(text).strip()
    if any("\ud800" <= sign <= "\udfff" for sign in plain[: max_chars + 1]):
        return None
    if not plain or len(plain) > max_chars or not any(sign.isalnum() for sign in plain):
        return None
    return None if _repeats(plain) else plain


def is_schema_echo(text: str) -> bool:
    """Tell whether a model gave back a JSON schema in place of an answer."""
    values = [_load(piece) for piece in _objects(_without_thoughts(text[:_LONGEST_ANSWER]))]
    return any(value is not None and _is_schema(value) for value in values)


def parse_json_object(text: str, required: Sequence[str] = ()) -> JsonObject | None:
    """Find the one JSON object in a model's answer.

    Thoughts, prose and code fences around it are passed over, trailing commas are forgiven, and an echo of the JSON
    schema is no answer.

    Args:
        text: the whole answer.
        required: names that the object must have; others are passed over.

    Returns:
        The object; None when there is none, when it is cut off, or when there are several that differ.
    """
    found: list[JsonObject] = []
    for piece in _objects(_without_thoughts(text[:_LONGEST_ANSWER])):
        value = _load(piece)
        if value is not None and not _is_schema(value) and all(name in value for name in required):
            found.append(value)
    return found[0] if found and all(value == found[0] for value in found) else None


def parse_score(text: str) -> float | None:
    """Read a verdict in [0, 1] from a model's answer: "0.8", "80%", "4/5", ``{"score": 0.8}``.

    Returns:
        The value; None when there is no number, when it is out of range, or when it is not clear which number is meant.
    """
    plain = _without_thoughts(text[:_LONGEST_ANSWER]).strip()
    value = parse_json_object(plain)
    if value is not None:
        numbers = [item for item in value.values() if isinstance(item, (int, float)) and not isinstance(item, bool)]
        return _in_range(numbers[0]) if len(numbers) == 1 else None
    ratios = _RATIO.findall(plain)
    if ratios:
        part, whole = (_number(piece) for piece in ratios[0])
        return _in_range(part / whole) if len(ratios) == 1 and whole > 0 else None
    values = _VALUE.findall(_SCALE.sub(" ", plain))
    if len(values) != 1:
        return None
    number, percent = values[0]
    # With one space for a run of them: the pattern could divide a long one in too many ways.
    if number.strip().isdigit() and not percent and not _BARE_WHOLE.fullmatch(" ".join(plain.split())):
        return None
    return _in_range(_number(number) / (100 if percent else 1))


def parse_attribution(value: Mapping[str, Any]) -> Attribution | None:
    """Check an attribution that a model gave.

    Returns:
        The attribution; None when the action is unknown, contradicts the type, or lacks what it needs.
    """
    action = _word(value.get("action"))
    if action not in _TYPE_OF_ACTION:
        return None
    kind = _word(value.get("type")) or _TYPE_OF_ACTION[action]
    if kind.removesuffix("-level") != _TYPE_OF_ACTION[action]:
        return None
    granularity = _word(value.get("granularity"))
    if action == "reshape" and granularity not in _GRANULARITIES:
        return None
    targets = value.get("targets")
    targets = [targets] if isinstance(targets, str) else [] if targets is None else targets
    if not isinstance(targets, Sequence) or not all(isinstance(target, str) for target in targets):
        return None
    details = value.get("details")
    return Attribution(
        type=_TYPE_OF_ACTION[action],
        action=action,
        details=(usable_text(details, _MOST_DETAILS) or "") if isinstance(details, str) else "",
        targets=tuple(dict.fromkeys(target.strip() for target in targets if target.strip())),
        granularity=granularity if action == "reshape" else None,
    )


def _without_thoughts(text: str) -> str:
    return _THOUGHT.sub("", text)


def _repeats(text: str) -> bool:
    words = text.casefold().split()
    for period in range(1, _LONGEST_PERIOD_WORDS + 1):
        run = 0
        for word, before in zip(words[period:], words, strict=False):
            run = run + 1 if word == before else 0
            if run >= (_MOST_REPEATS - 1) * period:
                return True
    if len(text) < _COMPRESSION_MIN_CHARS:
        return False
    raw = text.encode("utf-8", "surrogatepass")
    return len(zlib.compress(raw)) < _LOWEST_COMPRESSION * len(raw)


def _objects(text: str) -> Iterator[str]:
    start = text.find("{")
    for _ in range(_MOST_STARTS):
        if start < 0:
            return
        end = _closing(text, start)
        if end is not None:
            yield text[start:end]
        start = text.find("{", start + 1 if end is None else end)


def _closing(text: str, start: int) -> int | None:
    depth, quoted, escaped = 0, False, False
    for at in range(start, len(text)):
        sign = text[at]
        if quoted:
            if escaped:
                escaped = False
            elif sign == "\\":
                escaped = True
            elif sign == '"':
                quoted = False
        elif sign == '"':
            quoted = True
        elif sign == "{":
            depth += 1
        elif sign == "}":
            depth -= 1
            if depth == 0:
                return at + 1
    return None


def _load(piece: str) -> JsonObject | None:
    try:
        value = json.loads(
            _TRAILING_COMMA.sub(lambda found: found[1] or found[2], piece), strict=False, parse_constant=_no_constant
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _is_schema(value: JsonObject) -> bool:
    return "$schema" in value or (value.get("type") == "object" and isinstance(value.get("properties"), dict))


def _number(text: str) -> float:
    return float(text.replace(" ", "").replace("−", "-").replace("–", "-").replace(",", "."))


def _in_range(value: float) -> float | None:
    return float(value) if math.isfinite(value) and 0 <= value <= 1 else None


def _word(value: Any) -> str | None:
    return value.strip().casefold() or None if isinstance(value, str) else None
