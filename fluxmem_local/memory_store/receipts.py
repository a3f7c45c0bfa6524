"""What `forget` and `verify` report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Receipt", "VerifyReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What forgetting did, or would do in a dry run: ids that are gone, kept (with why) and changed (with what).

    ``num_edges``, ``num_edits`` (of which some were only cleaned) and ``num_versions`` went with them. ``purged`` tells
    whether no byte is left in any file: None when that was not asked for, False while another process still reads an
    older state; it is made up for when the memory is next opened or purged.
    """

    removed: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    changed: tuple[tuple[str, str], ...] = ()
    num_edges: int = 0
    num_edits: int = 0
    num_versions: int = 0
    purged: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "removed": list(self.removed),
            "kept": [{"id": id, "reason": reason} for id, reason in self.kept],
            "changed": [{"id": id, "reason": reason} for id, reason in self.changed],
            "num_edges": self.num_edges,
            "num_edits": self.num_edits,
            "num_versions": self.num_versions,
            "purged": self.purged,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What checking found: how many things each check looked at, what is wrong, and what was put right.

    ``notes`` tell of what is not wrong, but worth knowing: tasks that a killed process left running.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether nothing is wrong; what was put right no longer is."""
        return len(self.problems) == len(self.fixed)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "ok": self.ok,
            "counts": dict(self.counts),
            "problems": list(self.problems),
            "fixed": list(self.fixed),
            "notes": list(self.notes),
        }
