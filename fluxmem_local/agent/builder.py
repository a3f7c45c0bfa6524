"""The only place that names concrete models: from settings to an embedder and a language model."""

from __future__ import annotations

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM

__all__ = ["NO_MODEL", "build_embedder", "build_llm"]

NO_MODEL = "none"


def build_embedder(config: FluxMemConfig) -> BaseEmbedder | None:
    """Make the configured embedder, which loads at its first use; None when ``embedding_model`` is 'none'.

    Raises:
        ModelNotFoundError: there is no such model on this machine.
    """
    if config.embedding_model == NO_MODEL:
        return None
    from fluxmem_local.models.embedder import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(
        config.embedding_model, device=config.device, dtype=config.dtype, batch_size=config.embedding_batch_size
    )


def build_llm(config: FluxMemConfig) -> BaseLLM | None:
    """Make the configured language model, which loads at its first use; None when ``llm_model`` is 'none'.

    Raises:
        ModelNotFoundError: there is no such model on this machine.
    """
    if config.llm_model == NO_MODEL:
        return None
    from fluxmem_local.models.llm import TransformersLLM

    return TransformersLLM(
        config.llm_model,
        device=config.device,
        dtype=config.dtype,
        batch_size=config.llm_batch_size,
        max_new_tokens=config.max_new_tokens,
        seed=config.seed,
    )
