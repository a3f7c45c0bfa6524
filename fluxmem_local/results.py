"""ByKey: results that are read as attributes or by key, and written as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np

from fluxmem_local.types import JsonObject

__all__ = ["ByKey", "to_json"]


class ByKey:
    """Lets a dataclass be read by key too: ``result["success"]``, ``dict(result)``, ``"success" in result``."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        if key not in self.keys():
            raise KeyError(f"{key!r} is none of {', '.join(self.keys())}")
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def keys(self) -> tuple[str, ...]:
        """Name the fields, in their order."""
        return tuple(spec.name for spec in dataclasses.fields(self))  # type: ignore[arg-type]

    def get(self, key: str, default: Any = None) -> Any:
        """Return a field, or ``default`` if there is none of this name."""
        return getattr(self, key) if key in self.keys() else default

    def to_dict(self) -> JsonObject:
        """Return the fields as data that JSON can hold, all the way down."""
        return {key: to_json(getattr(self, key)) for key in self.keys()}


def to_json(value: Any) -> Any:
    """Turn results, nodes, edits and containers of them into data that JSON can hold.

    Embeddings are left out: a field that holds an array is not written.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, ByKey):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((spec.name, getattr(value, spec.name)) for spec in dataclasses.fields(value))
        return {name: to_json(item) for name, item in fields if not isinstance(item, np.ndarray)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    return value
