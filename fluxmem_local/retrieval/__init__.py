"""Retrieval: candidates, signals, fusion, and the context they end in."""

from .context import RenderedContext, render_episode, serialize_context
from .filters import AsOf
from .hits import Explanation, Hit
from .query import Query
from .retriever import Retriever

__all__ = ["AsOf", "Explanation", "Hit", "Query", "RenderedContext", "Retriever", "render_episode", "serialize_context"]
