"""Conditions on nodes as SQL: scope, states, times, metadata filters; each finds its rows by an index."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.types import Layer, NodeState, Origin, Scope

from .times import period

__all__ = ["Condition", "check_filters", "matching", "scope_within", "visible"]

# (SQL, its parameters)
Condition = tuple[str, list[Any]]

_COLUMNS = ("id", "source", "created_at", "added_by")
_ORDERS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_KNOWN = "in, ne, gt, gte, lt, lte, exists, contains"
# Of a text the index holds so many characters; a longer one is compared with the metadata itself.
_INDEXED_CHARS = 100
_TYPES = ("text", "number", "true", "false", "array", "object")


def visible(
    *,
    layers: Collection[Layer] = tuple(Layer),
    scope: Scope | None = None,
    filters: Mapping[str, Any] | None = None,
    states: Collection[NodeState] = (NodeState.ACTIVE,),
    source: str | None = None,
    trial_of: str | None = None,
    exclude: Collection[str] = (),
    valid_at: float | None = None,
    known_at: float | None = None,
) -> Condition:
    """Return the condition that a row of ``nodes`` must meet.

    ``trial_of`` lets that episode's trial nodes in. ``valid_at`` asks for what holds at that time, ``known_at`` for
    what was stored by then, both in seconds since 1970 (UTC).

    Raises:
        InvalidInputError: filters that cannot be read.
    """
    parts: list[Condition] = [matching(filters)] if filters else []
    # A sign before a column keeps SQLite from choosing its index; here another condition selects far fewer rows.
    selected = source is not None or scope is not None or bool(filters and _selects(filters))
    sign = "+" if selected or known_at is not None else ""
    if set(layers) != set(Layer):
        parts.append(_one_of(f"{sign}layer", [str(Layer(layer)) for layer in layers]))
    if set(states) != set(NodeState):
        state = _one_of(f"{sign}state", [str(NodeState(state)) for state in states])
        if trial_of is not None:
            state = (f"({state[0]} OR (state = 'trial' AND trial_of = ?))", [*state[1], trial_of])
        parts.append(state)
    if scope is not None:
        # Each combination by itself is one place in the index.
        seen = product(*(dict.fromkeys((None, asked)) for asked in (scope.user, scope.agent, scope.session)))
        one = "(scope_user IS ? AND scope_agent IS ? AND scope_session IS ?)"
        parts.append(_joined([(one, list(each)) for each in seen], "OR"))
    if source is not None:
        parts.append(("id IN (SELECT node_id FROM mentions WHERE source = ?)", [source]))
    if exclude:
        parts.append(("id NOT IN (SELECT value FROM json_each(?))", [json.dumps(list(exclude))]))
    if known_at is not None:
        parts.append((f"{'+' if selected else ''}created_at <= ?", [known_at]))
    if valid_at is not None:
        parts.append(
            (
                "NOT EXISTS (SELECT 1 FROM validity WHERE validity.node = nodes.key "
                "AND (validity.valid_from > ? OR validity.valid_to <= ?))",
                [valid_at, valid_at],
            )
        )
    return _joined(parts, "AND")


def scope_within(scope: Scope) -> Condition:
    """Return the condition that a node names each part that ``scope`` names, with the same value."""
    named = [(part, getattr(scope, part)) for part in ("user", "agent", "session")]
    return _joined([(f"scope_{part} = ?", [value]) for part, value in named if value is not None], "AND")


def check_filters(filters: Any) -> None:
    """Refuse filters that cannot be read, before anything is done.

    Raises:
        InvalidInputError: an unknown operator, or operands of another form.
    """
    if filters is not None:
        matching(filters)


def matching(filters: Mapping[str, Any]) -> Condition:
    """Translate filters; all of one mapping must hold.

    ``{"key": value}`` is equality, and None means: absent or null. ``{"key": {operator: operand}}`` knows ``in``,
    ``ne``, ``gt``, ``gte``, ``lt``, ``lte`` (a number with numbers, a text with texts), ``exists`` (true or false) and
    ``contains`` (a text or number in a list). ``{"and": [...]}``, ``{"or": [...]}`` and ``{"not": {...}}`` join
    filters. The keys ``id``, ``source``, ``added_by`` and ``created_at`` are those of the node; the last is compared as
    a time.

    Raises:
        InvalidInputError: an unknown operator, or operands of another form.
    """
    if not isinstance(filters, Mapping):
        raise InvalidInputError(f"filters={filters!r:.200} must be a mapping, as {{'topic': 'sport'}}")
    parts: list[Condition] = []
    for key, wanted in filters.items():
        if not isinstance(key, str):
            raise InvalidInputError(f"filter key {key!r:.200} is no text; name a metadata key")
        if key in ("and", "or"):
            if not isinstance(wanted, Sequence) or isinstance(wanted, str) or not wanted:
                raise InvalidInputError(f"filter {key!r} takes a list of filters, not {wanted!r:.200}")
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


def _selects(filters: Mapping[str, Any]) -> bool:
    """Tell whether an index finds the rows that filters let through, and not only those that they keep out."""
    return any(_selects_by(key, wanted) for key, wanted in filters.items())


def _selects_by(key: str, wanted: Any) -> bool:
    if key in ("and", "or"):
        each = [isinstance(part, Mapping) and _selects(part) for part in wanted]
        return any(each) if key == "and" else all(each)
    if isinstance(wanted, Mapping):
        return any(
            operator in ("in", "contains", *_ORDERS) or (operator == "exists" and value is True)
            for operator, value in wanted.items()
        )
    return key != "not" and wanted is not None


def _compared(key: str, operator: str, value: Any) -> Condition:
    if operator == "in":
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise InvalidInputError(f"filter {key!r}: 'in' takes a list, not {value!r:.200}")
        return _any_of(key, list(value))
    if operator == "ne":
        sql, values = _equal(key, value)
        return f"NOT {sql}", values
    if operator == "exists":
        if not isinstance(value, bool):
            raise InvalidInputError(f"filter {key!r}: 'exists' takes true or false, not {value!r:.200}")
        sql, values = ("1", []) if key in _COLUMNS else _indexed(key, _TYPES)
        return (sql if value else f"NOT {sql}"), values
    if operator == "contains":
        if isinstance(value, bool) or not isinstance(value, (int, float, str)) or key in _COLUMNS:
            raise InvalidInputError(f"filter {key!r}: 'contains' asks a list for a text or number, not {value!r:.200}")
        _check_size(key, value)
        if not _is_indexed(value):
            return _in_metadata(
                "type = 'array' AND EXISTS (SELECT 1 FROM json_each(entry.value) AS item WHERE item.value = ?)",
                key,
                [value],
            )
        return _indexed(key, ("item",), "value = ?", [value])
    if operator not in _ORDERS:
        raise InvalidInputError(f"filter {key!r}: unknown operator {operator!r}; known are {_KNOWN}")
    if key == "created_at":
        begin, end = period(value, "filter 'created_at'")
        # After a day means after all of it, and up to a day with all of it.
        bound = end if operator in ("gt", "lte") else begin
        order = {"gt": ">" if begin == end else ">=", "lte": "<=" if begin == end else "<"}.get(operator)
        return f"(created_at {order or _ORDERS[operator]} ?)", [bound]
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InvalidInputError(f"filter {key!r}: {operator!r} takes a number or a text, not {value!r:.200}")
    _check_size(key, value)
    if key in _COLUMNS:
        return f"({key} {_ORDERS[operator]} ?)", [value]
    if not _is_indexed(value):
        return _in_metadata(f"type = 'text' AND value {_ORDERS[operator]} ?", key, [value])
    return _indexed(key, ("text" if isinstance(value, str) else "number",), f"value {_ORDERS[operator]} ?", [value])


def _any_of(key: str, values: Sequence[Any]) -> Condition:
    """Compare with each of several values; texts that the index holds are looked up as one list."""
    texts = [value for value in values if isinstance(value, str) and _is_indexed(value)]
    parts = [_equal(key, value) for value in values if not (isinstance(value, str) and _is_indexed(value))]
    if key == "id" and not parts:
        return "id IN (SELECT value FROM json_each(?))", [json.dumps(texts)]
    if key in _COLUMNS or len(texts) < 2:
        parts += [_equal(key, text) for text in texts]
    else:
        parts.append(_indexed(key, ("text",), "value IN (SELECT value FROM json_each(?))", [json.dumps(texts)]))
    return _joined(parts, "OR")


def _equal(key: str, value: Any) -> Condition:
    if key == "created_at":
        begin, end = period(value, "filter 'created_at'")
        return ("(created_at = ?)", [begin]) if begin == end else ("(created_at >= ? AND created_at < ?)", [begin, end])
    if key in _COLUMNS:
        if not isinstance(value, str):
            raise InvalidInputError(f"filter {key!r}: {value!r:.200} is no text")
        if key == "source":
            # A fact that several sources state is found under each of them.
            return "(source = ? OR id IN (SELECT node_id FROM mentions WHERE source = ?))", [value, value]
        if key == "added_by" and value != Origin.USER:
            # The index has only those, which are few.
            return "(added_by = ? AND added_by != 'user')", [value]
        return f"({key} = ?)", [value]
    if value is None:
        sql, values = _indexed(key, _TYPES)
        return f"NOT {sql}", values
    if isinstance(value, bool):
        return _indexed(key, ("true" if value else "false",))
    if isinstance(value, str):
        if not _is_indexed(value):
            return _in_metadata("type = 'text' AND value = ?", key, [value])
        return _indexed(key, ("text",), "value = ?", [value])
    if isinstance(value, (int, float)):
        _check_size(key, value)
        return _indexed(key, ("number",), "value = ?", [value])
    if isinstance(value, (list, tuple)):
        text = json.dumps(list(value), ensure_ascii=False, separators=(",", ":"))
        found, names = _indexed(key, ("array",))
        same, values = _in_metadata("type = 'array' AND value = ?", key, [text])
        return f"({found} AND {same})", [*names, *values]
    raise InvalidInputError(f"filter {key!r}: {value!r:.200} is not a text, number, boolean, None or list")


def _check_size(key: str, value: int | float | str) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidInputError(f"filter {key!r}: {value!r:.200} has more than 64 bits")


def _is_indexed(value: int | float | str) -> bool:
    return not isinstance(value, str) or len(value) < _INDEXED_CHARS


def _indexed(key: str, types: Sequence[str], test: str = "1", values: Sequence[Any] = ()) -> Condition:
    among, names = _one_of("type", types)
    return f"key IN (SELECT node FROM attributes WHERE name = ? AND {among} AND {test})", [key, *names, *values]


def _in_metadata(test: str, key: str, values: list[Any]) -> Condition:
    # json_each and not a path: a key may hold dots and quotes, for which old SQLite paths have no escape.
    return f"EXISTS (SELECT 1 FROM json_each(metadata) AS entry WHERE entry.key = ? AND {test})", [key, *values]


def _one_of(column: str, values: Sequence[str]) -> Condition:
    return f"{column} IN ({', '.join('?' * len(values))})", list(values)


def _joined(parts: Sequence[Condition], word: str) -> Condition:
    if not parts:
        return ("1" if word == "AND" else "0"), []
    return f"({f' {word} '.join(sql for sql, _ in parts)})", [value for _, values in parts for value in values]
