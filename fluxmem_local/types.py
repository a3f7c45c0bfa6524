"""Words that every layer shares: the three layers of the graph, scopes, array aliases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fluxmem_local.errors import InvalidInputError

__all__ = ["FloatArray", "JsonObject", "Layer", "NodeState", "Origin", "Scope"]

FloatArray: TypeAlias = npt.NDArray[np.float32]
JsonObject: TypeAlias = dict[str, Any]


class Layer(str, Enum):
    """A layer of the graph (spec section 2)."""

    SEMANTIC = "semantic"
    EPISODIC = "episodic"
    PROCEDURAL = "procedural"

    def __str__(self) -> str:
        return self.value


class NodeState(str, Enum):
    """Whether retrieval may use a node.

    ``ACTIVE`` nodes are found by everyone. A ``TRIAL`` node is an unfinished reshape: only the task that made it sees
    it. A ``DEMOTED`` node is kept and listed, but not retrieved.
    """

    ACTIVE = "active"
    TRIAL = "trial"
    DEMOTED = "demoted"

    def __str__(self) -> str:
        return self.value


class Origin(str, Enum):
    """Who added a node.

    ``USER`` is the memory's owner. What an ``AGENT`` wrote by itself counts less until it is confirmed. ``IMPORT`` came
    with data that does not say who wrote it. ``DERIVED`` was made from other memories: skills and reshaped versions.
    """

    USER = "user"
    AGENT = "agent"
    IMPORT = "import"
    DERIVED = "derived"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """Whom a memory belongs to; each part is optional, and ``None`` means shared.

    A node is visible from a scope when each part that the *node* names equals that part of the asking scope. So
    ``Scope(user="ada")`` sees Ada's memories of no particular agent or session and the shared ones, never Ben's.
    Asking with no scope at all is the owner's view: everything.
    """

    user: str | None = None
    agent: str | None = None
    session: str | None = None

    def __post_init__(self) -> None:
        for name in ("user", "agent", "session"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise InvalidInputError(
                    f"scope {name}={value!r:.200} is not a name; give a non-blank string, or leave it out for shared"
                )

    @classmethod
    def coerce(cls, value: Scope | Mapping[str, str | None] | None) -> Scope:
        """Accept a Scope, a mapping of its parts, or None (shared).

        Raises:
            InvalidInputError: an unknown part, or a blank name.
        """
        if value is None:
            return cls()
        if isinstance(value, Scope):
            return value
        if not isinstance(value, Mapping):
            raise InvalidInputError(f"scope={value!r:.200} is no scope; give one, as {{'user': 'ada'}}")
        unknown = sorted(repr(part) for part in set(value) - {"user", "agent", "session"})
        if unknown:
            raise InvalidInputError(f"unknown scope part {unknown[0]:.200}; a scope has user, agent and session")
        return cls(**value)

    def sees(self, node_scope: Scope) -> bool:
        """Tell whether a node of ``node_scope`` is visible from this scope.

        Raises:
            InvalidInputError: ``node_scope`` is no scope.
        """
        if not isinstance(node_scope, Scope):
            raise InvalidInputError(f"node_scope={node_scope!r:.200} is no scope; give the Scope of a node")
        return all(
            theirs is None or theirs == mine
            for theirs, mine in (
                (node_scope.user, self.user),
                (node_scope.agent, self.agent),
                (node_scope.session, self.session),
            )
        )
