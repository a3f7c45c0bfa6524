"""The graph as a page to look at."""

from .page import MOST_NODES, render_graph_page

__all__ = ["MOST_NODES", "render_graph_page"]
