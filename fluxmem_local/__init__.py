"""Agent memory that heals itself, running wholly on your own machine.

Public names are resolved when first used, so importing the package loads no model library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent.agent import FluxMemAgent
    from .agent.answering import Answer
    from .agent.results import TaskResult
    from .agent.sync import FluxMem
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
        OutsideFailureError,
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
    from .memory_store import MemoryStore, Receipt, VerifyReport
    from .models.embedder import SentenceTransformerEmbedder
    from .models.llm import TransformersLLM
    from .retention import RetentionRule
    from .retrieval import Hit
    from .stages.consolidation import ConsolidationReport
    from .types import Layer, NodeState, Origin, Scope

__all__ = [
    "Answer",
    "BaseEmbedder",
    "BaseLLM",
    "BaseVectorStore",
    "BlankTextError",
    "ConfigError",
    "ConsolidationReport",
    "DimensionError",
    "DistillEdge",
    "Edge",
    "Edit",
    "EmbedderMismatchError",
    "EpisodicNode",
    "FluxMem",
    "FluxMemAgent",
    "FluxMemConfig",
    "FluxMemError",
    "GroundEdge",
    "HNSWVectorStore",
    "Hit",
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
    "Origin",
    "OutsideFailureError",
    "ProceduralNode",
    "Receipt",
    "RetentionRule",
    "SchemaVersionError",
    "Scope",
    "SemanticNode",
    "SentenceTransformerEmbedder",
    "SkillVersion",
    "StepLinkEdge",
    "StorageError",
    "Subgraph",
    "TaskResult",
    "TransformersLLM",
    "VerifyReport",
]

__version__ = "0.1.0"

# Module -> the public names it gives. A type checker reads the imports above; a test keeps both and __all__ equal.
_HOMES = {
    "agent.agent": ("FluxMemAgent",),
    "agent.answering": ("Answer",),
    "agent.results": ("TaskResult",),
    "agent.sync": ("FluxMem",),
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
        "OutsideFailureError",
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
    "memory_store": ("MemoryStore", "Receipt", "VerifyReport"),
    "models.embedder": ("SentenceTransformerEmbedder",),
    "models.llm": ("TransformersLLM",),
    "retention": ("RetentionRule",),
    "retrieval": ("Hit",),
    "stages.consolidation": ("ConsolidationReport",),
    "types": ("Layer", "NodeState", "Origin", "Scope"),
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
