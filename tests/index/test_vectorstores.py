"""One contract for every vector store."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxmem_local.errors import DimensionError, InvalidInputError
from fluxmem_local.index import ExactVectorStore, HNSWVectorStore
from fluxmem_local.interfaces import BaseVectorStore

EAST, NORTH, WEST, NORTHEAST = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [1.0, 1.0]


def _graph_always(dimension: int | None = None) -> HNSWVectorStore:
    return HNSWVectorStore(dimension, exact_below=0)


@pytest.fixture(params=[ExactVectorStore, HNSWVectorStore, _graph_always], ids=["exact", "small", "graph"])
def make(request) -> Callable[..., BaseVectorStore]:
    return request.param


@pytest.fixture
def store(make) -> BaseVectorStore:
    store = make()
    store.add(["east", "north", "west"], np.array([EAST, NORTH, WEST]))
    return store


def test_scores_are_cosines_whatever_the_length(store) -> None:
    store.add(["far northeast"], np.array([NORTHEAST]) * 1e20)
    assert store.search(np.array([3.0, 3.0])) == [
        ("far northeast", 1.0),
        ("east", pytest.approx(0.707107)),
        ("north", pytest.approx(0.707107)),
        ("west", pytest.approx(-0.707107)),
    ]
    assert store.get_vector("far northeast") == pytest.approx([0.5**0.5, 0.5**0.5])


def test_the_newest_of_four_single_adds_is_found_first(make) -> None:
    store = make()
    for name, vector in (("a", EAST), ("b", NORTH), ("c", WEST), ("newest", NORTHEAST)):
        store.add([name], np.array([vector]))
    assert store.search(np.array(NORTHEAST), top_k=1) == [("newest", 1.0)]


def test_equal_scores_stand_by_id(make) -> None:
    store = make()
    for name in ("d", "b", "e", "a", "c"):
        store.add([name], np.array([[0.3, 0.4]]) * (ord(name) - 90))
    assert [id for id, _ in store.search(np.array([0.3, 0.4]), top_k=3)] == ["a", "b", "c"]


def test_an_id_added_again_gets_the_new_vector(store) -> None:
    store.add(["east"], np.array([NORTH]))
    assert len(store) == 3
    assert store.search(np.array(EAST), top_k=3) == [("east", 0.0), ("north", 0.0), ("west", -1.0)]
    assert store.get_vector("east").tolist() == NORTH


def test_report_9_nine_of_ten_deleted_and_k_of_five_gives_the_one_left(make) -> None:
    store = make()
    names = [f"fact {number}" for number in range(10)]
    store.add(names, np.random.default_rng(1).normal(size=(10, 8)))
    store.delete(names[:9])
    assert [id for id, _ in store.search(np.ones(8), top_k=5)] == ["fact 9"]
    assert len(store) == 1
    assert store.get_vector("fact 3") is None
    store.add(["fact 3"], np.ones((1, 8)))
    assert store.search(np.ones(8), top_k=5)[0] == ("fact 3", 1.0)
    assert len(store) == 2


def test_all_deleted_then_filled_again(store) -> None:
    store.delete(["east", "north", "west", "nobody"])
    assert len(store) == 0
    assert store.search(np.array(EAST)) == []
    store.add(["back"], np.array([EAST]))
    assert store.search(np.array(EAST)) == [("back", 1.0)]


def test_an_empty_store_finds_nothing(make) -> None:
    assert make().search(np.array(EAST)) == []
    assert make().get_vector("east") is None
    assert make(7).dimension == 7


def test_the_caller_cannot_reach_into_the_store(store) -> None:
    store.get_vector("east")[0] = 9.0
    given = np.array([NORTHEAST], dtype=np.float32)
    store.add(["mine"], given)
    given[0, 0] = -5.0
    assert store.get_vector("east").tolist() == EAST
    assert store.get_vector("mine") == pytest.approx([0.5**0.5, 0.5**0.5])


@pytest.mark.parametrize(
    ("ids", "vectors", "error", "message"),
    [
        (["x"], [[1.0, 2.0, 3.0]], DimensionError, "the vector of 'x' has 3 numbers, this store holds vectors of 2"),
        (["x", "y"], [EAST, [np.nan, 1.0]], DimensionError, "the vector of 'y' holds NaN or infinity"),
        (["x", "y"], [[np.inf, 1.0], EAST], DimensionError, "the vector of 'x' holds NaN or infinity"),
        (["x"], [[0.0, 0.0]], DimensionError, "the vector of 'x' is all zeros"),
        (["x"], EAST, DimensionError, r"vectors have shape \(2,\)"),
        (["x", "y"], [[1.0, 0.0], [1.0]], DimensionError, "no array of numbers"),
        (["x"], [["a", "b"]], DimensionError, "no array of numbers"),
        (["x", "x"], [EAST, WEST], InvalidInputError, "id 'x' stands twice in one call"),
        (["x", "east"], [EAST], InvalidInputError, "2 ids came with 1 vectors"),
        ([], [EAST], InvalidInputError, "0 ids came with 1 vectors"),
        (["x", 3], [EAST, WEST], InvalidInputError, "id 3 is not a non-empty text"),
        ("ab", [EAST, WEST], InvalidInputError, "ids='ab' is one text; give a list"),
    ],
)
def test_bad_vectors_are_refused_and_change_nothing(store, ids, vectors, error, message) -> None:
    before = store.search(np.array(NORTHEAST), top_k=9)
    with pytest.raises(error, match=message):
        store.add(ids, vectors)
    assert store.search(np.array(NORTHEAST), top_k=9) == before
    assert len(store) == 3


@pytest.mark.parametrize("query", [[1.0], [np.nan, 1.0], [0.0, 0.0], [EAST], "east"])
def test_bad_queries_are_refused(store, query) -> None:
    with pytest.raises(DimensionError):
        store.search(query)


def test_top_k_is_a_number_of_results(store) -> None:
    assert store.search(np.array(EAST), top_k=0) == []
    assert len(store.search(np.array(EAST), top_k=10**6)) == 3
    for wrong in (-1, 1.5, True, None):
        with pytest.raises(InvalidInputError, match="is not a number of results"):
            store.search(np.array(EAST), top_k=wrong)


def test_adding_nothing_changes_nothing(store) -> None:
    store.add([], np.empty((0, 2)))
    store.delete([])
    assert len(store) == 3


@pytest.mark.parametrize("dimension", [0, -1, 1.5, True])
def test_a_dimension_is_a_whole_number(make, dimension) -> None:
    with pytest.raises(DimensionError, match="is no vector size"):
        make(dimension)


def test_threads_may_add_search_and_delete_at_once(make) -> None:
    store, failures = make(4), []

    def work(worker: int) -> None:
        rng = np.random.default_rng(worker)
        try:
            for step in range(40):
                store.add([f"{worker}/{step}"], rng.normal(size=(1, 4)))
                store.search(rng.normal(size=4), top_k=3)
                if step % 2:
                    store.delete([f"{worker}/{step}"])
        except Exception as error:  # a thread's error would be lost
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store) == 6 * 20


STEPS = st.lists(st.tuples(st.sampled_from(["add", "delete"]), st.integers(0, 9), st.integers(0, 10**6)), max_size=50)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_the_graph_answers_as_the_exact_store_after_any_changes(steps) -> None:
    exact, graph = ExactVectorStore(), HNSWVectorStore(exact_below=3)
    for verb, number, seed in steps:
        for store in (exact, graph):
            if verb == "add":
                store.add([f"n{number}"], np.random.default_rng(seed).normal(size=(1, 5)))
            else:
                store.delete([f"n{number}"])
        query = np.random.default_rng(seed + 1).normal(size=5)
        assert graph.search(query, 2) == exact.search(query, 2)
        assert len(graph) == len(exact)


@pytest.mark.parametrize("top_k", [0, 1, 5, 200])
def test_a_search_among_some_ids_is_that_of_a_store_of_these(top_k) -> None:
    vectors = np.random.default_rng(3).normal(size=(400, 16))
    vectors[100:110] = vectors[90]
    names = [f"v{number}" for number in range(400)]
    store, part = HNSWVectorStore(exact_below=50), ExactVectorStore()
    store.add(names, vectors)
    chosen = range(80, 200, 2)
    part.add([names[number] for number in chosen], vectors[list(chosen)])
    for query in vectors[85:95]:
        asked = ["nobody", *(names[number] for number in chosen)]
        assert store.search_among(asked, query, top_k) == part.search(query, top_k)
