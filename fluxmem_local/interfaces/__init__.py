"""The three base classes that user code may subclass."""

from .embedder import BaseEmbedder
from .llm import BaseLLM, approximate_tokens
from .vectorstore import BaseVectorStore

__all__ = ["BaseEmbedder", "BaseLLM", "BaseVectorStore", "approximate_tokens"]
