"""Agent memory that heals itself, running wholly on your own machine.

Public names are resolved when first used, so importing the package loads no model library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import FluxMemConfig
    from .errors import (
        BlankTextError,
        ConfigError,
        DimensionError,
        EmbedderMismatchError,
        FluxMemError,
        ImportFormatError,
        InvalidInputError,
        MemoryDamagedError,
        MemoryLockedError,
        MemoryNotFoundError,
        ModelError,
        ModelIntegrityError,
        ModelNotFoundError,
        ModelOutputError,
        NotFoundError,
        SchemaVersionError,
        StorageError,
    )
    from .graph import (
        DistillEdge,
        Edge,
        Edit,
        EpisodicNode,
        GroundEdge,
        Node,
        ProceduralNode,
        SemanticNode,
        SkillVersion,
        StepLinkEdge,
        Subgraph,
    )
    from .index import HNSWVectorStore
    from .interfaces import BaseEmbedder, BaseLLM, BaseVectorStore
    from .memory_store import MemoryStore
    from .types import Layer, NodeState, Scope

__all__ = [
    "BaseEmbedder",
    "BaseLLM",
    "BaseVectorStore",
    "BlankTextError",
    "ConfigError",
    "DimensionError",
    "DistillEdge",
    "Edge",
    "Edit",
    "EmbedderMismatchError",
    "EpisodicNode",
    "FluxMemConfig",
    "FluxMemError",
    "GroundEdge",
    "HNSWVectorStore",
    "ImportFormatError",
    "InvalidInputError",
    "Layer",
    "MemoryDamagedError",
    "MemoryLockedError",
    "MemoryNotFoundError",
    "MemoryStore",
    "ModelError",
    "ModelIntegrityError",
    "ModelNotFoundError",
    "ModelOutputError",
    "Node",
    "NodeState",
    "NotFoundError",
    "ProceduralNode",
    "SchemaVersionError",
    "Scope",
    "SemanticNode",
    "SkillVersion",
    "StepLinkEdge",
    "StorageError",
    "Subgraph",
]

__version__ = "0.1.0"

# Module -> the public names it gives. A type checker reads the imports above; a test keeps both and __all__ equal.
_HOMES = {
    "config": ("FluxMemConfig",),
    "errors": (
        "BlankTextError",
        "ConfigError",
        "DimensionError",
        "EmbedderMismatchError",
        "FluxMemError",
        "ImportFormatError",
        "InvalidInputError",
        "MemoryDamagedError",
        "MemoryLockedError",
        "MemoryNotFoundError",
        "ModelError",
        "ModelIntegrityError",
        "ModelNotFoundError",
        "ModelOutputError",
        "NotFoundError",
        "SchemaVersionError",
        "StorageError",
    ),
    "graph": (
        "DistillEdge",
        "Edge",
        "Edit",
        "EpisodicNode",
        "GroundEdge",
        "Node",
        "ProceduralNode",
        "SemanticNode",
        "SkillVersion",
        "StepLinkEdge",
        "Subgraph",
    ),
    "index": ("HNSWVectorStore",),
    "interfaces": ("BaseEmbedder", "BaseLLM", "BaseVectorStore"),
    "memory_store": ("MemoryStore",),
    "types": ("Layer", "NodeState", "Scope"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
