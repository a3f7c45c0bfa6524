"""What limits a verb to a part of the memory: `--filter` and `--as-of`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import regex

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.types import Origin

__all__ = ["added_by_option", "as_of_option", "filter_option"]

_OPERATORS = {"=": None, "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_FILTER = regex.compile(
    r"\s*(?P<key>[^=<>!]*[^=<>!\s])\s*(?P<operator>!=|>=|<=|=|>|<)\s*(?P<value>.*?)\s*", regex.DOTALL
)

_HELP = (
    "Only where the metadata is so: team=ops, year>=2020, also with !=, >, <, <=. The value is read as JSON where it "
    'is JSON (7, true, "7"), else as text. Or a JSON object with and, or, not, in, exists, contains: '
    '{"or": [{"year": {"lt": 2000}}, {"tags": {"contains": "new"}}]}. Several must all hold.'
)


def filter_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb --filter, which it gets as ``filters``: a mapping, or None."""
    return click.option("--filter", "filters", metavar="CONDITION", multiple=True, callback=_read_filters, help=_HELP)(
        function
    )


def as_of_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb --as-of, which it gets as ``as_of``: a text, or None."""
    return click.option(
        "--as-of",
        metavar="TIME",
        help="Ask about this moment, as 2026-05-31 or 2026-05-31T14:00+02:00: what was known then, and what held "
        "(valid_from and valid_to in the metadata). 'any' asks for all, whenever it holds.  [default: now]",
    )(function)


def added_by_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb --added-by, which it gets as ``added_by``: user or agent."""
    return click.option(
        "--added-by",
        type=click.Choice([str(Origin.USER), str(Origin.AGENT)]),
        default=str(Origin.USER),
        show_default=True,
        help="Who says it. An agent's own word counts less, and is marked, until it is confirmed: by a task that "
        "succeeds with it, by `confirm`, or by your adding the same.",
    )(function)


def _read_filters(_context: click.Context, _option: click.Parameter, parts: tuple[str, ...]) -> dict[str, Any] | None:
    read = [_read(part) for part in parts]
    return {"and": read} if read else None


def _read(part: str) -> dict[str, Any]:
    if part.lstrip().startswith("{"):
        try:
            whole = _from_json(part)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"--filter {part!r:.200} is not JSON: {error}") from None
        assert isinstance(whole, dict)
        return whole
    found = _FILTER.fullmatch(part)
    if found is None:
        raise InvalidInputError(
            f"--filter {part!r:.200} must be KEY=VALUE, such as team=ops, KEY>=VALUE and the like, or a JSON object"
        )
    try:
        value = _from_json(found["value"])
    except (ValueError, RecursionError):
        value = found["value"]
    name = _OPERATORS[found["operator"]]
    return {found["key"]: value if name is None else {name: value}}


def _from_json(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)
