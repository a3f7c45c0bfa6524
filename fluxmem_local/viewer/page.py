"""A graph as one self-contained HTML page: no network, no fonts or scripts from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from typing import Any

from fluxmem_local.graph import Edge, Edit, EpisodicNode, Node, ProceduralNode, SemanticNode
from fluxmem_local.types import JsonObject

__all__ = ["MOST_NODES", "hash_source", "render_graph_page"]

# More than this is no picture any more; a browser lays out this many in some seconds.
MOST_NODES = 2000
_MOST_CHARS = 4000
_MOST_EDITS = 500


def render_graph_page(nodes: Sequence[Node], edges: Sequence[Edge], *, title: str, edits: Sequence[Edit] = ()) -> str:
    """Write the graph as an HTML page that can be opened from disk.

    Of more than 2000 nodes the most connected ones are shown, and the page says so; edges to the others are left out.
    The page may connect to nothing, and runs no script but its own, whatever stands in the memory.

    Args:
        nodes: to show, of any layer.
        edges: among them; edges with an end elsewhere are left out.
        title: shown on top and in the browser's tab.
        edits: repairs to list with the nodes that they touched.
    """
    shown = _most_connected(nodes, edges)
    ids = {node.id for node in shown}
    inside = [edge for edge in edges if edge.source_id in ids and edge.target_id in ids]
    script, style = _asset("page.js"), _asset("page.css")
    policy = (
        f"default-src 'none'; script-src {hash_source(script)}; style-src {hash_source(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    graph = {
        "nodes": [_node(node) for node in shown],
        "edges": [_edge(edge) for edge in inside],
        "edits": [_edit(edit) for edit in edits[-_MOST_EDITS:]],
        "total_nodes": len(nodes),
        "total_edges": len(edges),
    }
    parts = {
        "policy": policy,
        # Half a surrogate pair could not be written to a file.
        "title": html.escape(title.encode("utf-8", "replace").decode()),
        "style": style,
        "graph": _embedded_json(graph),
        "script": script,
    }
    page = []
    for piece in _asset("page.html").split("%%"):
        page.append(parts.get(piece, piece))
    return "".join(page)


def _most_connected(nodes: Sequence[Node], edges: Sequence[Edge]) -> list[Node]:
    if len(nodes) <= MOST_NODES:
        return list(nodes)
    degrees = Counter(id for edge in edges for id in (edge.source_id, edge.target_id))
    best = sorted(range(len(nodes)), key=lambda place: (-degrees[nodes[place].id], place))[:MOST_NODES]
    return [nodes[place] for place in sorted(best)]


def _node(node: Node) -> JsonObject:
    shown: JsonObject = {
        "id": node.id,
        "layer": str(node.layer),
        "state": str(node.state),
        "content": _cut(node.content),
        "created_at": node.created_at,
        "scope": {
            name: value
            for name, value in (
                ("user", node.scope.user),
                ("agent", node.scope.agent),
                ("session", node.scope.session),
            )
            if value is not None
        },
        "variant_of": node.variant_of,
    }
    if isinstance(node, SemanticNode):
        return shown | {"source": _cut(node.source), "count": node.count}
    if isinstance(node, EpisodicNode):
        return shown | {
            "status": node.status,
            "feedback": _cut(node.feedback),
            "trajectory": [[_cut(seen), _cut(done)] for seen, done in node.trajectory],
        }
    return shown | _skill(node)


def _skill(node: ProceduralNode) -> JsonObject:
    return {
        "name": _cut(str(node.metadata.get("name", ""))),
        "version": node.version,
        "pems": node.pems_score,
        "versions": [
            {
                "version": past.version,
                "pems": past.pems_score,
                "text": _cut(past.skill_text),
                "ended_because": _cut(past.ended_because),
            }
            for past in node.version_history
        ],
    }


def _edge(edge: Edge) -> JsonObject:
    return {
        "kind": edge.kind,
        "source": edge.source_id,
        "target": edge.target_id,
        "weight": edge.weight,
        "succeeded": edge.success_count,
        "failed": edge.failure_count,
    }


def _edit(edit: Edit) -> JsonObject:
    return {
        "kind": edit.kind,
        "targets": list(edit.targets),
        "granularity": edit.granularity,
        "reason": _cut(edit.reason),
        "round": edit.round,
        "kept": edit.kept,
        "episode": edit.episode_id,
    }


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}… ({len(text)} characters in all)"


def _embedded_json(value: Any) -> str:
    """Write JSON that can stand in a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def hash_source(text: str) -> str:
    """Name a script or style by its hash, as a content security policy allows it."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
