"""The part of an export that one scope may see."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator

from fluxmem_local.types import JsonObject, Scope

__all__ = ["lines_within"]

# What each kind of line is about: all of these must be seen.
_ABOUT = {
    "mention": ("node_id",),
    "edge": ("source_id", "target_id"),
    "outcome": ("node_id", "episode_id"),
    "version": ("node_id",),
    "edit": ("episode_id",),
}


def lines_within(lines: Iterable[str], scope: Scope, seen: Collection[str]) -> Iterator[str]:
    """Go through an export's lines and let pass what is about nodes that the scope sees, whose ids are ``seen``.

    What is about the memory as a whole is left out.
    """
    number = 0
    for line in lines:
        record = json.loads(line)
        kind = record["type"]
        if kind == "end":
            record["lines"] = number
        elif kind == "node":
            if record["id"] not in seen:
                continue
            _forget_unseen(record, seen)
        elif kind == "ingested":
            if not scope.sees(Scope(*json.loads(record["scope"]))):
                continue
        elif kind in _ABOUT:
            named = [record[name] for name in _ABOUT[kind]] + record.get("targets", [])
            if not all(id in seen for id in named):
                continue
        elif kind != "header":
            continue
        yield json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        number += 1


def _forget_unseen(node: JsonObject, seen: Collection[str]) -> None:
    for name in ("variant_of", "trial_of"):
        if node[name] not in seen:
            node[name] = None
    episodes = node["payload"].get("source_episode_ids")
    if episodes is not None:
        node["payload"]["source_episode_ids"] = [id for id in episodes if id in seen]
