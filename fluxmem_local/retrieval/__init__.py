"""Retrieval: candidates, signals, fusion, and the context they end in."""

from .cases import CaseIndex, case_episodes, refute_values
from .context import RenderedContext, render_episode, serialize_context
from .filters import AsOf
from .hits import Explanation, Hit
from .query import Query
from .retriever import Retriever

__all__ = [
    "AsOf",
    "CaseIndex",
    "Explanation",
    "Hit",
    "Query",
    "RenderedContext",
    "Retriever",
    "case_episodes",
    "refute_values",
    "render_episode",
    "serialize_context",
]
