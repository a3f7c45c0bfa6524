"""Results by attribute and by key, and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fluxmem_local.graph import Edit, SemanticNode
from fluxmem_local.results import ByKey, to_json
from fluxmem_local.types import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(ByKey):
    success: bool
    edits: tuple[Any, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


def test_a_result_is_read_by_attribute_and_by_key() -> None:
    result = Result(success=True)
    assert result["success"] is result.success is True
    assert result.keys() == ("success", "edits", "extra")
    assert dict(result) == {"success": True, "edits": (), "extra": {}}
    assert "success" in result
    assert "keys" not in result
    assert (result.get("success"), result.get("other", 7)) == (True, 7)


@pytest.mark.parametrize("name", ["other", "keys", "to_dict", "__class__"])
def test_what_is_no_field_is_no_key(name: str) -> None:
    with pytest.raises(KeyError, match="none of success, edits, extra"):
        Result(success=True)[name]


def test_everything_in_it_becomes_json() -> None:
    node = SemanticNode(id="f", content="text", embedding=np.ones(3, np.float32))
    result = Result(
        success=False,
        edits=(Edit(kind="prune", targets=("f",), reason="r"),),
        extra={
            "node": node,
            "layer": Layer.SEMANTIC,
            "score": np.float32(0.5),
            "ids": {"b", "a"},
            "in": Result(success=True),
        },
    )
    data = json.loads(json.dumps(result.to_dict()))
    assert data["edits"][0]["targets"] == ["f"]
    assert data["extra"]["node"]["content"] == "text"
    assert "embedding" not in data["extra"]["node"]
    assert data["extra"]["ids"] == ["a", "b"]
    assert (data["extra"]["layer"], data["extra"]["score"], data["extra"]["in"]["success"]) == ("semantic", 0.5, True)


def test_plain_values_stay_as_they_are() -> None:
    assert [to_json(value) for value in (1, "a", None, 0.5, [1, (2,)])] == [1, "a", None, 0.5, [1, [2]]]
