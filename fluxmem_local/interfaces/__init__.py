"""The three base classes that user code may subclass."""

from .embedder import BaseEmbedder
from .llm import LLM_TIMEOUT_S, UNMEASURED_ATTRIBUTION, BaseLLM, approximate_tokens
from .vectorstore import BaseVectorStore

__all__ = [
    "LLM_TIMEOUT_S",
    "UNMEASURED_ATTRIBUTION",
    "BaseEmbedder",
    "BaseLLM",
    "BaseVectorStore",
    "approximate_tokens",
]
