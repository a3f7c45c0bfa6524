"""LeftOut: the part of an import that must not come back: what was forgotten here, and what dead tasks left."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace

from fluxmem_local.graph import Edit, Node, ProceduralNode
from fluxmem_local.text.quotes import Quotes

from .journal import edit_without
from .refusals import is_mention_refused, is_refused, refused_ids

__all__ = ["LeftOut", "runs"]


def runs(connection: sqlite3.Connection, episode_id: str | None) -> bool:
    """Tell whether this is a running task of the memory."""
    row = connection.execute("SELECT payload FROM nodes WHERE id = ?", (episode_id,)).fetchone()
    return row is not None and json.loads(row["payload"]).get("status") == "running"


class LeftOut:
    """Decides which nodes of an import stay away, and remembers them, so that nothing else leads to them.

    ``sources`` are those of what was forgotten, ``num_forgotten`` its nodes.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._texts: dict[str, str] = {}
        self._quotes: Quotes | None = None
        self.sources: set[str] = set()
        self.num_forgotten = 0

    def takes(self, node: Node, *, trial_of: str | None, source: str) -> bool:
        """Leave out a node that was forgotten, is a version of one that was, or was on trial in a task that is over."""
        forgotten = node.variant_of in self._texts or is_refused(
            self._connection, node.id, node.layer, node.scope, node.content
        )
        if not forgotten and (trial_of is None or runs(self._connection, trial_of)):
            return False
        self._texts[node.id] = node.content
        self._quotes = None
        if forgotten:
            self.num_forgotten += 1
            self.sources.add(source)
        return True

    def takes_mention(self, node_id: str, known_id: str | None, source: str) -> bool:
        """Leave out a source's word on a fact; ``known_id`` is the fact's id in the memory, if it is there."""
        if node_id in self._texts or (known_id is not None and is_mention_refused(self._connection, known_id, source)):
            self.sources.add(source)
            return True
        return False

    def holds(self, *ids: str) -> bool:
        """Tell whether one of these nodes was left out."""
        return not self._texts.keys().isdisjoint(ids)

    def cleaned(self, edit: Edit) -> Edit | None:
        """Return an edit without what was left out, and as not kept when its task is over without having settled it."""
        if self._quotes is None:
            self._quotes = Quotes(self._texts.values())
        cleaned = edit_without(edit, self._texts, self._quotes) if self._texts else edit
        if cleaned is None or cleaned.kept is not None or cleaned.episode_id is None:
            return cleaned
        return cleaned if runs(self._connection, cleaned.episode_id) else replace(cleaned, kept=False)

    def without_forgotten_sources(self, skill: ProceduralNode) -> ProceduralNode:
        """Return a skill without the episodes that were forgotten."""
        gone = refused_ids(self._connection, skill.source_episode_ids)
        return replace(skill, source_episode_ids=tuple(id for id in skill.source_episode_ids if id not in gone))
