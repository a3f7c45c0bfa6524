"""The three base classes that user code may subclass."""

from .embedder import BaseEmbedder
from .llm import LLM_TIMEOUT_S, BaseLLM, approximate_tokens
from .vectorstore import BaseVectorStore

__all__ = ["LLM_TIMEOUT_S", "BaseEmbedder", "BaseLLM", "BaseVectorStore", "approximate_tokens"]
