"""Derived indexes: vectors by similarity, texts by BM25. The database is the truth; these can be rebuilt from it."""

from .bm25 import LexicalIndex, TermStatistics
from .exact import ExactVectorStore
from .hnsw import HNSWVectorStore

__all__ = ["ExactVectorStore", "HNSWVectorStore", "LexicalIndex", "TermStatistics"]
