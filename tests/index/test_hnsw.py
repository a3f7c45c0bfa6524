from __future__ import annotations

import hashlib
import json
import os
import struct

import numpy as np
import pytest

from fluxmem_local.errors import InvalidInputError, MemoryDamagedError, StorageError
from fluxmem_local.index import ExactVectorStore, HNSWVectorStore
from fluxmem_local.index.files import _HASH_BYTES, _HEADER


def _clustered(count: int, size: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, size))
    return (centres[rng.integers(0, 40, count)] + 0.5 * rng.normal(size=(count, size))).astype(np.float32)


def _recall(store, exact, queries) -> float:
    hits = [
        len({id for id, _ in store.search(query, 10)} & {id for id, _ in exact.search(query, 10)}) for query in queries
    ]
    return sum(hits) / (10 * len(queries))


def test_recall_against_the_exact_store_before_and_after_deletes() -> None:
    vectors = _clustered(3000, 32)
    names = [f"v{number}" for number in range(3000)]
    exact, graph = ExactVectorStore(), HNSWVectorStore()
    exact.add(names, vectors)
    for start in range(0, 3000, 500):
        graph.add(names[start : start + 500], vectors[start : start + 500])
    queries = vectors[:100] + 0.2 * _clustered(100, 32, seed=1)
    assert graph._graph is not None
    assert _recall(graph, exact, queries) >= 0.97
    for store in (exact, graph):
        store.delete(names[:1200])
    assert graph._graph.get_current_count() == 3000
    assert _recall(graph, exact, queries) >= 0.97
    for store in (exact, graph):
        store.delete(names[1200:1800])
    assert graph._graph.get_current_count() == 1200
    assert _recall(graph, exact, queries) >= 0.97


def test_the_graph_comes_at_the_threshold_and_goes_below_half_of_it() -> None:
    store = HNSWVectorStore(exact_below=10)
    vectors = _clustered(10, 4)
    store.add([str(n) for n in range(9)], vectors[:9])
    assert store._graph is None
    store.add(["9"], vectors[9:])
    assert store._graph is not None
    store.delete([str(n) for n in range(6)])
    assert store._graph is None
    assert [id for id, _ in store.search(vectors[7], 1)] == ["7"]


def test_equal_calls_build_equal_graphs(tmp_path) -> None:
    for name in ("one", "two"):
        store = HNSWVectorStore(exact_below=0, seed=3)
        store.add([f"v{n}" for n in range(200)], _clustered(200, 8))
        store.save(tmp_path / name, generation=1)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("argument", ["exact_below", "m", "ef_construction", "ef_search", "seed"])
def test_an_argument_out_of_range_is_named(argument) -> None:
    with pytest.raises(InvalidInputError, match=f"{argument}=-1 is out of range; allowed is"):
        HNSWVectorStore(**{argument: -1})


@pytest.fixture(params=[0, 2000], ids=["graph", "exact"])
def saved(request, tmp_path):
    store = HNSWVectorStore(exact_below=request.param, m=8)
    store.add([f"vé{n}" for n in range(120)], _clustered(120, 8))
    store.delete([f"vé{n}" for n in range(0, 60, 2)])
    store.add(["vé1"], _clustered(1, 8, seed=9))
    path = tmp_path / "semantic.index"
    store.save(path, generation=41)
    return store, path


def test_a_saved_store_comes_back_whole_and_goes_on(saved) -> None:
    store, path = saved
    again, generation = HNSWVectorStore.load(path)
    assert generation == 41
    assert again.ids == store.ids
    assert os.listdir(path.parent) == [path.name]
    queries = _clustered(20, 8, seed=5)
    assert [again.search(query, 7) for query in queries] == [store.search(query, 7) for query in queries]
    assert again.get_vector("vé1").tolist() == store.get_vector("vé1").tolist()
    again.add(["new"], np.ones((1, 8)))
    again.delete(["vé1"])
    assert again.search(np.ones(8), 1) == [("new", 1.0)]
    assert len(again) == len(store)
    again.save(path, generation=42)
    third, generation = HNSWVectorStore.load(path)
    assert (generation, third.search(np.ones(8), 3)) == (42, again.search(np.ones(8), 3))


def test_the_checksum_that_was_noted_tells_the_file_from_another(saved) -> None:
    store, path = saved
    noted = store.save(path, generation=7)
    again, generation = HNSWVectorStore.load(path, noted=noted)
    queries = _clustered(20, 8, seed=5)
    assert generation == 7
    assert [again.search(query, 7) for query in queries] == [store.search(query, 7) for query in queries]
    again.add(["new"], np.ones((1, 8)))
    assert again.search(np.ones(8), 1) == [("new", 1.0)]
    store.save(path, generation=8)
    with pytest.raises(MemoryDamagedError, match="it is not the one that was noted"):
        HNSWVectorStore.load(path, noted=noted)
    HNSWVectorStore.load(path)


def test_an_empty_store_can_be_saved(tmp_path) -> None:
    HNSWVectorStore(exact_below=0).save(tmp_path / "empty", generation=0)
    store, generation = HNSWVectorStore.load(tmp_path / "empty")
    assert (len(store), generation) == (0, 0)
    store.add(["a"], np.ones((1, 3)))
    assert store.search(np.ones(3)) == [("a", 1.0)]


def test_every_cut_or_changed_file_is_refused(saved) -> None:
    _, path = saved
    whole = path.read_bytes()
    for length in (0, 7, 40, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(MemoryDamagedError, match="run `fluxmem reindex`"):
            HNSWVectorStore.load(path)
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(MemoryDamagedError):
            HNSWVectorStore.load(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(MemoryDamagedError, match="its length is not the one it states"):
        HNSWVectorStore.load(path)
    path.write_bytes(b"some other file, long enough to hold a header of ours " * 4)
    with pytest.raises(MemoryDamagedError, match="it is no index file"):
        HNSWVectorStore.load(path)
    path.unlink()
    with pytest.raises(MemoryDamagedError, match="No such file"):
        HNSWVectorStore.load(path)


def _forge(path, change) -> None:
    """Write a file of changed parts with a checksum that matches, as an attacker can."""
    content = path.read_bytes()
    fields = list(_HEADER.unpack_from(content))
    at = _HEADER.size + _HASH_BYTES
    words, vectors, body = (
        bytearray(content[at + sum(fields[5 : 5 + n]) : at + sum(fields[5 : 6 + n])]) for n in range(3)
    )
    named = json.loads(words)
    change(named, vectors, body)
    words = json.dumps(named).encode()
    fields[5:] = [len(words), len(vectors), len(body)]
    header = _HEADER.pack(*fields)
    digest = hashlib.sha256(header + words + vectors + body).digest()
    path.write_bytes(header + digest + words + vectors + body)


def _number(offset: int, value: int, form: str = "<I"):
    return lambda _named, _vectors, body: struct.pack_into(form, body, offset, value)


@pytest.mark.parametrize(
    "change",
    [
        _number(0, 2**40, "<Q"),
        _number(8, 2**60, "<Q"),
        _number(16, 2**40, "<Q"),
        _number(24, 8, "<Q"),
        _number(52, 2**31),
        _number(48, 7, "<i"),
        _number(72, 2**62, "<Q"),
        _number(96, 60000),
        _number(100, 2**31),
        lambda _named, _vectors, body: body.__delitem__(slice(len(body) - 4, None)),
        lambda _named, _vectors, body: body.extend(b"1234"),
        lambda named, _vectors, _body: named["labels"].__setitem__(0, 10**6),
        lambda named, _vectors, _body: named["labels"].__setitem__(0, named["labels"][1]),
        lambda named, _vectors, _body: named["labels"].pop(),
        lambda named, _vectors, _body: named["ids"].pop(),
        lambda named, _vectors, _body: named["ids"].__setitem__(0, named["ids"][1]),
        lambda named, _vectors, _body: named["settings"].update(m=-1),
        lambda named, _vectors, _body: named["settings"].update(surprise=1),
        lambda named, _vectors, _body: named.pop("settings"),
        lambda _named, _vectors, body: struct.pack_into("<f", body, 96 + 4 + 4 * 32, float("nan")),
        lambda _named, _vectors, body: struct.pack_into("<f", body, 96 + 4 + 4 * 32, 1.5),
        lambda _named, vectors, _body: vectors.extend(b"1234"),
    ],
)
def test_a_hostile_file_with_a_matching_checksum_is_refused(tmp_path, change) -> None:
    store = HNSWVectorStore(exact_below=0)
    store.add([f"v{n}" for n in range(80)], _clustered(80, 8))
    store.save(tmp_path / "index", generation=1)
    _forge(tmp_path / "index", change)
    with pytest.raises(MemoryDamagedError):
        HNSWVectorStore.load(tmp_path / "index")


def test_an_unwritable_place_is_a_storage_error_and_keeps_the_old_file(saved, monkeypatch) -> None:
    store, path = saved
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left on device; free space"):
        store.save(path, generation=42)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    with pytest.raises(StorageError, match="No such file"):
        store.save(path.parent / "missing" / "index", generation=1)
