"""Local models: the registry, loading, and the shipped backends (spec section 8)."""

from .embedder import SentenceTransformerEmbedder
from .imported import import_model
from .llm import TransformersLLM
from .loading import prepare_model
from .prompted import PromptedLLM
from .registry import list_models, model_path, verify_model

__all__ = [
    "PromptedLLM",
    "SentenceTransformerEmbedder",
    "TransformersLLM",
    "import_model",
    "list_models",
    "model_path",
    "prepare_model",
    "verify_model",
]
