from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from fluxmem_local.errors import InvalidInputError, MemoryDamagedError, StorageError
from fluxmem_local.index import LexicalIndex

WORDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8)
STEPS = st.lists(st.tuples(st.integers(0, 5), st.none() | WORDS), min_size=1, max_size=40)


@settings(deadline=None)
@given(STEPS, WORDS, st.sets(st.integers(0, 40)), st.booleans())
def test_scores_equal_the_library_after_any_changes(steps, query, settled, saved) -> None:
    index, truth = LexicalIndex(), {}
    for place, (number, words) in enumerate(steps):
        if place in settled:
            index = _again(index) if saved else index
            more = {"d1": ["a", "z"], f"more {place}": ["b", "h"]}
            index.extend(more.items())
            truth = {id: words for id, words in truth.items() if id not in more} | more
        id = f"d{number}"
        truth.pop(id, None)
        if words is None:
            index.delete([id])
        else:
            index.add(id, words)
            truth[id] = words
        assert len(index) == len(truth)
        if not truth:
            assert index.search(query, 5) == []
            continue
        library = BM25Okapi(list(truth.values()))
        expected = library.get_scores(query)
        np.testing.assert_allclose(index.scores(query, list(truth)), expected, rtol=0, atol=1e-9)
        np.testing.assert_allclose(index.get_scores(query), expected, rtol=0, atol=1e-9)
        held = {
            id: score for (id, words), score in zip(truth.items(), expected, strict=True) if set(words) & set(query)
        }
        found = index.search(query, 100)
        assert {id for id, _ in found} == set(held)
        assert found == sorted(found, key=lambda pair: (-pair[1], pair[0]))
        for word in "abcdefgh":
            assert index.idf(word) == pytest.approx(library.idf.get(word, 0), abs=1e-9)


def _again(index: LexicalIndex) -> LexicalIndex:
    with TemporaryDirectory() as folder:
        noted = index.save(Path(folder) / "words", generation=7)
        again, generation = LexicalIndex.load(Path(folder) / "words", noted=noted)
    assert generation == 7
    return again


def test_scores_equal_the_library_after_thousands_of_replacements() -> None:
    rng = np.random.default_rng(0)
    index, truth = LexicalIndex(), {}
    for step in range(1500):
        id = f"d{rng.integers(0, 60)}"
        words = [str(word) for word in rng.zipf(1.6, 12) if word < 60] or ["1"]
        truth.pop(id, None)
        if step % 5:
            index.add(id, words)
            truth[id] = words
        else:
            index.delete([id])
    query = ["1", "2", "2", "17", "absent"]
    np.testing.assert_allclose(
        index.scores(query, list(truth)), BM25Okapi(list(truth.values())).get_scores(query), rtol=0, atol=1e-9
    )
    # Tombstones are swept: postings and slots stay within a small multiple of what lives.
    assert len(index._ids) <= 2 * len(truth) + 65
    held = [(index._frequency_of(word), sum(map(len, index._pairs(word)))) for word in map(str, range(61))]
    assert sum(postings for _, postings in held) <= 2 * sum(frequency for frequency, _ in held) + 65 * 12


def test_the_librarys_other_methods_work_on_it() -> None:
    index = LexicalIndex()
    texts = [["cat", "cat"], ["dog"], ["cat", "dog", "emu"]]
    for number, words in enumerate(texts):
        index.add(f"d{number}", words)
    library = BM25Okapi(texts)
    assert isinstance(index, BM25Okapi)
    assert index.get_batch_scores(["emu"], [2, 0]) == pytest.approx(library.get_batch_scores(["emu"], [2, 0]))
    assert index.get_top_n(["emu"], texts, n=1) == [["cat", "dog", "emu"]]


def test_a_document_that_holds_the_term_is_found_whatever_its_score() -> None:
    index = LexicalIndex()
    index.add("one", ["cat", "sat"])
    index.add("two", ["dog", "sat"])
    assert index.search(["cat"], 5) == [("one", 0.0)]
    assert [id for id, _ in index.search(["sat"], 5)] == ["one", "two"]
    assert index.idf("sat") <= 0


def test_best_first_and_ties_by_id() -> None:
    index = LexicalIndex()
    for id in ("c", "a", "d", "b"):
        index.add(id, ["same"])
    for number in range(10):
        index.add(f"other {number}", ["else"])
    index.add("z", ["same", "same"])
    assert [id for id, _ in index.search(["same"], 3)] == ["z", "a", "b"]


def test_a_query_touches_only_postings_of_its_terms() -> None:
    index = LexicalIndex()
    index.add("cat", ["cat"])
    index.add("dog", ["dog"])
    slots, _ = index._scored(["dog", "bird"])
    assert slots.tolist() == [1]


def test_report_9_what_was_deleted_is_not_found() -> None:
    index = LexicalIndex()
    index.add("one", ["cat"])
    index.add("two", ["cat", "dog"])
    index.delete(["one", "nobody"])
    assert [id for id, _ in index.search(["cat"], 5)] == ["two"]
    assert "one" not in index
    index.add("one", ["cat"])
    assert {id for id, _ in index.search(["cat"], 5)} == {"one", "two"}


def test_nothing_gives_nothing() -> None:
    index = LexicalIndex()
    assert index.search(["cat"], 5) == []
    assert index.scores(["cat"], ["one"]).tolist() == [0.0]
    index.add("empty", [])
    assert index.search(["cat"], 5) == []
    index.add("one", ["cat"])
    assert index.search([], 5) == []
    assert index.search(["cat"], 0) == []
    assert index.scores([], ["one", "empty", "nobody"]).tolist() == [0.0, 0.0, 0.0]
    assert len(index) == 2


@pytest.mark.parametrize(("id", "tokens"), [("", ["a"]), (3, ["a"]), ("x", "abc"), ("x", ["a", 1]), ("x", b"abc")])
def test_bad_documents_are_refused_and_change_nothing(id, tokens) -> None:
    index = LexicalIndex()
    index.add("x", ["kept"])
    with pytest.raises(InvalidInputError):
        index.add(id, tokens)
    assert [found for found, _ in index.search(["kept"], 5)] == ["x"]


def test_bad_queries_are_refused() -> None:
    index = LexicalIndex()
    for call in (lambda: index.search("cat", 5), lambda: index.search(["cat"], -1), lambda: index.delete("cat")):
        with pytest.raises(InvalidInputError):
            call()


def test_statistics_are_those_of_the_asked_documents_after_deletes_and_adds() -> None:
    index = LexicalIndex()
    for id, text in {"a": "fox fox owl", "b": "owl", "c": "fox"}.items():
        index.add(id, text.split())
    index.delete(["b"])
    index.add("a", ["owl", "owl"])
    found = index.statistics(["fox", "owl", "gnu"], ["a", "gone", "c", "b"])
    assert found.terms == ("fox", "owl")
    assert found.counts.tolist() == [[0, 2], [0, 0], [1, 0], [0, 0]]
    assert found.lengths.tolist() == [2, 0, 1, 0]
    assert found.corpus_size == 2


def test_a_file_keeps_no_word_of_what_was_deleted(tmp_path) -> None:
    index = LexicalIndex()
    index.extend([("one", ["shared", "secret"]), ("two", ["shared", "\ud800", "naïve"])])
    index.add("three", ["private", "shared"])
    index.delete(["one", "three"])
    noted = index.save(tmp_path / "words", generation=1)
    content = (tmp_path / "words").read_bytes()
    assert b"shared" in content
    assert all(word not in content for word in (b"secret", b"private", b"one", b"three"))
    assert (tmp_path / "words").stat().st_mode & 0o077 == 0
    again, _ = LexicalIndex.load(tmp_path / "words", noted=noted)
    for held in (index, again):
        assert [id for id, _ in held.search(["\ud800", "secret"], 5)] == ["two"]


def test_any_other_file_than_the_noted_one_is_refused(tmp_path) -> None:
    index = LexicalIndex()
    index.extend((f"d{number}", ["word", f"w{number}"]) for number in range(30))
    noted = index.save(tmp_path / "words", generation=1)
    whole = (tmp_path / "words").read_bytes()
    for length in (0, 7, 100, 120, len(whole) // 2, len(whole) - 1):
        (tmp_path / "words").write_bytes(whole[:length])
        with pytest.raises(MemoryDamagedError, match="run `fluxmem reindex`"):
            LexicalIndex.load(tmp_path / "words", noted=noted)
    for place in range(0, len(whole), 37):
        (tmp_path / "words").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(MemoryDamagedError):
            LexicalIndex.load(tmp_path / "words", noted=noted)
    (tmp_path / "words").write_bytes(whole + b"x")
    with pytest.raises(MemoryDamagedError, match="checksum"):
        LexicalIndex.load(tmp_path / "words", noted=noted)
    index.add("another", ["word"])
    index.save(tmp_path / "words", generation=1)
    with pytest.raises(MemoryDamagedError, match="it is not the one that was noted"):
        LexicalIndex.load(tmp_path / "words", noted=noted)
    (tmp_path / "words").unlink()
    with pytest.raises(MemoryDamagedError, match="No such file"):
        LexicalIndex.load(tmp_path / "words", noted=noted)
    with pytest.raises(StorageError, match="No such file"):
        index.save(tmp_path / "missing" / "words", generation=1)


def test_documents_that_cannot_be_added_at_once_change_nothing() -> None:
    index = LexicalIndex()
    index.add("x", ["kept"])
    for documents in ([("x", ["new"]), ("", ["a"])], [("a", ["b"]), ("a", ["b"])], [("a", "text")], [(3, ["a"])]):
        with pytest.raises(InvalidInputError):
            index.extend(documents)
    assert [id for id, _ in index.search(["kept"], 5)] == ["x"]
    assert len(index) == 1
