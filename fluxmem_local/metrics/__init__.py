"""PEMS: how mature skills are."""

from .pems import embedding_shift, graph_pems, skill_pems

__all__ = ["embedding_shift", "graph_pems", "skill_pems"]
