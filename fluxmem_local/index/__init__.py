"""Derived indexes: vectors by similarity, texts by BM25. The database is the truth; these can be rebuilt from it."""

from .bm25 import LexicalIndex
from .exact import ExactVectorStore
from .hnsw import HNSWVectorStore
from .statistics import TermStatistics

__all__ = ["ExactVectorStore", "HNSWVectorStore", "LexicalIndex", "TermStatistics"]
