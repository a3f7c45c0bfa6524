"""hnswlib's graph as bytes: written, checked, and made from bytes that were checked."""

from __future__ import annotations

import math
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fluxmem_local.types import FloatArray

__all__ = ["check_graph", "graph_bytes", "graph_of", "vectors_of"]

Bytes: TypeAlias = bytes | bytearray | memoryview

# What hnswlib 0.8 writes first: offset of level 0, room, count, bytes of an element, offsets of label and data, highest
# level, entry point, links of upper levels and of level 0, M, mult, ef_construction.
_GRAPH_HEADER = struct.Struct("<QQQQQQiIQQQdQ")
_MOST_EF_CONSTRUCTION = 10_000
_MIN_ROOM = 1024


def graph_bytes(graph: Any, labels: Sequence[int], dimension: int, path: Path) -> bytes:
    """Return what hnswlib saves of a graph, in which ``labels`` are alive.

    Each deleted element, which hnswlib keeps to walk over, gets the vector of a neighbour that is alive, so that the
    bytes hold no vector of what is not there any more. A folder beside ``path`` is used and removed.
    """
    # hnswlib writes by file name only.
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        place = Path(folder) / "graph"
        graph.save_index(str(place))
        body = place.read_bytes()
    if graph.get_current_count() == len(labels):
        return body
    changed = bytearray(body)
    elements = _elements(changed, dimension)
    dead = ~np.isin(elements["label"], np.asarray(labels, np.uint64))
    # Where no neighbour is alive, any other one will do.
    any_alive = int(np.argmin(dead))
    for place_of_dead in np.flatnonzero(dead):
        linked = elements["links"][place_of_dead][: elements["used"][place_of_dead]]
        alive = linked[~dead[linked]]
        elements["data"][place_of_dead] = elements["data"][alive[0] if len(alive) else any_alive]
    return bytes(changed)


def graph_of(body: Bytes, dimension: int) -> Any:
    """Make a graph from bytes that are known to be sound, without a file."""
    import hnswlib

    level0, _, count, width, label_at, data_at, top, entry, upper, links, m, mult, ef_construction = (
        _GRAPH_HEADER.unpack_from(body)
    )
    room = count + max(_MIN_ROOM, count // 4)
    at = _GRAPH_HEADER.size + count * width
    levels, link_lists = _upper_levels(body, at, count, m)
    state = {
        "ser_version": 1,
        "space": "ip",
        "dim": dimension,
        "index_inited": True,
        "ep_added": True,
        "normalize": False,
        "num_threads": 1,
        "seed": 0,
        "offset_level0": level0,
        "max_elements": room,
        "cur_element_count": count,
        "size_data_per_element": width,
        "label_offset": label_at,
        "offset_data": data_at,
        "max_level": top,
        "enterpoint_node": entry,
        "max_M": upper,
        "max_M0": links,
        "M": m,
        "mult": mult,
        "ef_construction": ef_construction,
        "ef": 10,
        "has_deletions": True,
        "size_links_per_element": 4 + 4 * m,
        "allow_replace_deleted": False,
        "label_lookup_external": _elements(body, dimension)["label"].astype(np.uint64),
        "label_lookup_internal": np.arange(count, dtype=np.uint32),
        "element_levels": np.concatenate([levels, np.zeros(room - count, np.int32)]),
        "data_level0": np.frombuffer(body, np.int8, count * width, _GRAPH_HEADER.size),
        "link_lists": link_lists.view(np.int8).reshape(-1),
    }
    graph = hnswlib.Index.__new__(hnswlib.Index)
    graph.__setstate__((state,))
    return graph


def vectors_of(body: Bytes, labels: Sequence[int], dimension: int) -> FloatArray:
    """Return the vectors of n labels, shape ``(n, d)``."""
    elements = _elements(body, dimension)
    place_of = np.empty(len(elements), dtype=np.intp)
    place_of[elements["label"].astype(np.intp)] = np.arange(len(elements))
    vectors: FloatArray = elements["data"][place_of[np.asarray(labels, dtype=np.intp)]]
    return vectors


def check_graph(body: Bytes, labels: Sequence[int], dimension: int) -> None:
    """Check every size, link and vector in hnswlib's bytes, which it follows unchecked.

    Raises:
        ValueError: a number that would lead outside the graph, or a vector that is none of unit length.
    """
    if len(body) < _GRAPH_HEADER.size:
        raise ValueError("the graph is cut off")
    level0, room, count, width, label_at, data_at, top, entry, upper_links, links, m, mult, ef_construction = (
        _GRAPH_HEADER.unpack_from(body)
    )
    if (
        level0 != 0
        or not 0 < count <= room <= 16 * count + 1024
        or not 1 < m <= 256
        # From these hnswlib draws the levels of new nodes, and how far it looks for their links.
        or not abs(mult * math.log(m) - 1.0) < 1e-9
        or not 0 < ef_construction <= _MOST_EF_CONSTRUCTION
        or (upper_links, links) != (m, 2 * m)
        or (data_at, label_at, width) != (4 + 4 * links, 4 + 4 * links + 4 * dimension, 12 + 4 * links + 4 * dimension)
        or entry >= count
        or len(body) < _GRAPH_HEADER.size + count * (width + 4)
    ):
        raise ValueError("the graph's sizes are wrong")
    elements = _elements(body, dimension)
    within = np.arange(links) < elements["used"][:, None]
    if (
        (elements["used"] > links).any()
        or (elements["links"][within] >= count).any()
        or sorted(elements["label"].tolist()) != list(range(count))
        or not all(type(label) is int for label in labels)
        or len(set(labels)) != len(labels)
        or not set(labels) <= set(range(count))
    ):
        raise ValueError("the graph's links are wrong")
    lengths = np.linalg.norm(elements["data"].astype(np.float64), axis=1)
    if not (np.abs(lengths - 1.0) < 1e-4).all():
        raise ValueError("the graph's vectors are not of unit length")
    levels, tables = _upper_levels(body, _GRAPH_HEADER.size + count * width, count, m)
    used, linked = tables[:, 0], tables[:, 1:]
    own = np.arange(len(tables)) - np.repeat(np.cumsum(levels) - levels, levels)
    given = np.arange(m) < used[:, None]
    if (
        (used > m).any()
        or (linked[given] >= count).any()
        or (levels[linked[given]] <= np.broadcast_to(own[:, None], given.shape)[given]).any()
    ):
        raise ValueError("the graph's upper links are wrong")
    if levels[entry] != top or levels.max() != top:
        raise ValueError("the graph's entry is wrong")


def _elements(body: Bytes, dimension: int) -> npt.NDArray[Any]:
    """View the elements of a graph: how many links each has, the links, its vector and its label."""
    _, _, count, width, label_at, data_at, _, _, _, links, *_ = _GRAPH_HEADER.unpack_from(body)
    element = np.dtype(
        {
            "names": ["used", "links", "data", "label"],
            "formats": ["<u2", ("<u4", (links,)), ("<f4", (dimension,)), "<u8"],
            "offsets": [0, 4, data_at, label_at],
            "itemsize": width,
        }
    )
    return np.frombuffer(body, dtype=element, count=count, offset=_GRAPH_HEADER.size)


def _upper_levels(body: Bytes, at: int, count: int, m: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """Return how many upper levels n elements have, shape ``(n,)``, and a row for each level: number of links, links.

    Raises:
        ValueError: they don't end where the bytes end.
    """
    level_width = 4 + 4 * m
    if (len(body) - at) % 4:
        raise ValueError("the graph's upper levels are cut off")
    numbers = np.frombuffer(body, "<u4", offset=at)
    sizes = numbers.tolist()
    levels = np.zeros(count, np.int32)
    links = np.ones(len(numbers), dtype=bool)
    place = 0
    for element in range(count):
        size = sizes[place] if place < len(sizes) else 1
        if size % level_width:
            raise ValueError("the graph's upper levels are cut off")
        links[place] = False
        if size:
            levels[element] = size // level_width
            place += size // 4
        place += 1
    if place != len(sizes):
        raise ValueError("the graph's upper levels do not end with it")
    return levels, numbers[links].reshape(-1, 1 + m)
