"""Conditions on nodes as SQL: scope, states, metadata filters."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.types import Layer, NodeState, Scope

__all__ = ["Condition", "matching", "scope_within", "visible"]

# (SQL, its parameters)
Condition = tuple[str, list[Any]]

_COLUMNS = ("id", "source", "created_at")
_ORDERS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_KNOWN = "in, ne, gt, gte, lt, lte"


def visible(
    *,
    layers: Collection[Layer] = tuple(Layer),
    scope: Scope | None = None,
    filters: Mapping[str, Any] | None = None,
    states: Collection[NodeState] = (NodeState.ACTIVE,),
    source: str | None = None,
    trial_of: str | None = None,
    exclude: Collection[str] = (),
) -> Condition:
    """Return the condition that a row of ``nodes`` must meet; ``trial_of`` lets that episode's trial nodes in.

    Raises:
        InvalidInputError: filters that cannot be read.
    """
    parts: list[Condition] = []
    # A sign before a column keeps SQLite from choosing its index; here another condition selects far fewer rows.
    sign = "+" if source is not None or (scope is not None and scope.user is not None) else ""
    if set(layers) != set(Layer):
        parts.append(_one_of(f"{sign}layer", [str(Layer(layer)) for layer in layers]))
    if set(states) != set(NodeState):
        state = _one_of(f"{sign}state", [str(NodeState(state)) for state in states])
        if trial_of is not None:
            state = (f"({state[0]} OR (state = 'trial' AND trial_of = ?))", [*state[1], trial_of])
        parts.append(state)
    if scope is not None:
        for part in ("user", "agent", "session"):
            asked = getattr(scope, part)
            parts.append(
                (f"scope_{part} IS NULL", [])
                if asked is None
                else (f"(scope_{part} IS NULL OR scope_{part} = ?)", [asked])
            )
    if source is not None:
        parts.append(("id IN (SELECT node_id FROM mentions WHERE source = ?)", [source]))
    if exclude:
        parts.append(("id NOT IN (SELECT value FROM json_each(?))", [json.dumps(list(exclude))]))
    if filters:
        parts.append(matching(filters))
    return _joined(parts, "AND")


def scope_within(scope: Scope) -> Condition:
    """Return the condition that a node names each part that ``scope`` names, with the same value."""
    named = [(part, getattr(scope, part)) for part in ("user", "agent", "session")]
    return _joined([(f"scope_{part} = ?", [value]) for part, value in named if value is not None], "AND")


def matching(filters: Mapping[str, Any]) -> Condition:
    """Translate filters: ``{"key": value}``, ``{"key": {"gte": 3}}``, and, or, not.

    Raises:
        InvalidInputError: an unknown operator, or operands of another form.
    """
    if not isinstance(filters, Mapping):
        raise InvalidInputError(f"filters={filters!r} must be a mapping, as {{'topic': 'sport'}}")
    parts: list[Condition] = []
    for key, wanted in filters.items():
        if not isinstance(key, str):
            raise InvalidInputError(f"filter key {key!r} is no text; name a metadata key, id, source or created_at")
        if key in ("and", "or"):
            if not isinstance(wanted, Sequence) or isinstance(wanted, str) or not wanted:
                raise InvalidInputError(f"filter {key!r} takes a list of filters, not {wanted!r}")
            parts.append(_joined([matching(each) for each in wanted], key.upper()))
        elif key == "not":
            sql, values = matching(wanted)
            parts.append((f"NOT {sql}", values))
        elif isinstance(wanted, Mapping):
            if not wanted:
                raise InvalidInputError(f"filter {key!r} has no operator; known are {_KNOWN}")
            parts.extend(_compared(key, operator, value) for operator, value in wanted.items())
        else:
            parts.append(_equal(key, wanted))
    return _joined(parts, "AND")


def _compared(key: str, operator: str, value: Any) -> Condition:
    if operator == "in":
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise InvalidInputError(f"filter {key!r}: 'in' takes a list, not {value!r}")
        return _joined([_equal(key, each) for each in value], "OR")
    if operator == "ne":
        sql, values = _equal(key, value)
        return f"NOT {sql}", values
    if operator not in _ORDERS:
        raise InvalidInputError(f"filter {key!r}: unknown operator {operator!r}; known are {_KNOWN}")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InvalidInputError(f"filter {key!r}: {operator!r} takes a number or a text, not {value!r}")
    _check_size(key, value)
    if key in _COLUMNS:
        return f"({key} {_ORDERS[operator]} ?)", [value]
    types = "'text'" if isinstance(value, str) else "'integer', 'real'"
    return _in_metadata(f"type IN ({types}) AND value {_ORDERS[operator]} ?", key, [value])


def _equal(key: str, value: Any) -> Condition:
    if key in _COLUMNS:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise InvalidInputError(f"filter {key!r}: {value!r} is neither a text nor a number")
        if key == "source":
            # A fact that several sources state is found under each of them.
            return "(source = ? OR id IN (SELECT node_id FROM mentions WHERE source = ?))", [value, value]
        return f"({key} = ?)", [value]
    if value is None:
        sql, values = _in_metadata("type != 'null'", key, [])
        return f"NOT {sql}", values
    if isinstance(value, bool):
        return _in_metadata("type = ?", key, ["true" if value else "false"])
    if isinstance(value, str):
        return _in_metadata("type = 'text' AND value = ?", key, [value])
    if isinstance(value, (int, float)):
        _check_size(key, value)
        return _in_metadata("type IN ('integer', 'real') AND value = ?", key, [value])
    if isinstance(value, (list, tuple)):
        text = json.dumps(list(value), ensure_ascii=False, separators=(",", ":"))
        return _in_metadata("type = 'array' AND value = ?", key, [text])
    raise InvalidInputError(f"filter {key!r}: {value!r} is not a text, number, boolean, None or list")


def _check_size(key: str, value: int | float | str) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidInputError(f"filter {key!r}: {value!r} has more than 64 bits")


def _in_metadata(test: str, key: str, values: list[Any]) -> Condition:
    # json_each and not a path: a key may hold dots and quotes, for which old SQLite paths have no escape.
    return f"EXISTS (SELECT 1 FROM json_each(metadata) AS entry WHERE entry.key = ? AND {test})", [key, *values]


def _one_of(column: str, values: Sequence[str]) -> Condition:
    return f"{column} IN ({', '.join('?' * len(values))})", list(values)


def _joined(parts: Sequence[Condition], word: str) -> Condition:
    if not parts:
        return ("1" if word == "AND" else "0"), []
    return f"({f' {word} '.join(sql for sql, _ in parts)})", [value for _, values in parts for value in values]
