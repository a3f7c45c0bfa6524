"""LexicalIndex: rank_bm25's BM25Okapi that documents can join and leave."""

from __future__ import annotations

import math
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rank_bm25 import BM25Okapi

from fluxmem_local.errors import InvalidInputError

from .order import best_first, check_top_k
from .segment import Postings, Segment
from .statistics import TermStatistics, saturated
from .words_file import WordsFile, read_words, write_words

__all__ = ["LexicalIndex"]

# A query that touches fewer than one document in this many sorts them.
_SPARSE = 16
# Below this many dead slots renumbering costs more than it saves.
SLACK = 64


class LexicalIndex(BM25Okapi):  # type: ignore[misc]
    """BM25 over documents by id, with the scores of ``rank_bm25.BM25Okapi`` built anew over the same tokens.

    A document gets a slot number. The first slots are those of a segment, which does not change; a term's later
    postings are a flat integer array: slot, count, slot, count, …; those of deleted documents stay until they are more
    than half. The idf depends on a term's document frequency alone, so its mean over the vocabulary is a sum over the
    few distinct frequencies.
    """

    def __init__(self, k1: float = 1.5, b: float = 0.75, epsilon: float = 0.25) -> None:
        self._lock = threading.RLock()
        super().__init__([], k1=k1, b=b, epsilon=epsilon)
        # The library keeps these as lists and a dict; here the postings hold all of it, and `idf` is a method.
        del self.doc_freqs, self.doc_len, self.idf

    def add(self, id: str, tokens: Sequence[str]) -> None:
        """Add a document of these tokens; an id that is there already gets the new ones.

        Raises:
            InvalidInputError: an id that is no text, or tokens that are no list of texts; nothing was stored.
        """
        if not isinstance(id, str) or not id:
            raise InvalidInputError(f"id {id!r} is not a non-empty text; give each document a text id")
        counts = Counter(_checked(tokens))
        with self._lock:
            self.delete([id])
            slot = len(self._ids)
            self._ids.append(id)
            self._slot_of[id] = slot
            self._terms.append(tuple(counts))
            self._lengths.append(len(tokens))
            self._alive.append(1)
            for term, count in counts.items():
                self._postings.setdefault(term, array("i")).extend((slot, count))
                self._add_frequency(term, 1)
            self._total += len(tokens)
            self._refresh()

    def extend(self, documents: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Add many documents, each an id and its tokens, at once: much faster than ``add`` for a large part of all.

        Raises:
            InvalidInputError: as of ``add``, or an id that stands twice in one call; nothing was stored.
        """
        numbers: dict[str, int] = {}
        lengths: dict[str, int] = {}
        slots, terms, counts = array("i"), array("i"), array("i")
        for id, tokens in documents:
            if not isinstance(id, str) or not id or id in lengths:
                raise InvalidInputError(
                    f"id {id!r} is not a non-empty text, or stands twice; give each document its own"
                )
            counted = Counter(_checked(tokens))
            slots.extend([len(lengths)] * len(counted))
            terms.extend([numbers.setdefault(term, len(numbers)) for term in counted])
            counts.extend(counted.values())
            lengths[id] = len(tokens)
        with self._lock:
            self.delete(lengths)
            added = Postings([_encoded(term) for term in numbers], *map(_numbers, (slots, terms, counts)))
            self._settle(added, lengths)

    def delete(self, ids: Iterable[str]) -> None:
        """Remove documents; ids that are not there are passed over."""
        if isinstance(ids, str):
            raise InvalidInputError(f"ids={ids!r} is one text; give a list of ids")
        with self._lock:
            for id in ids:
                slot = self._slot_of.pop(id, None)
                if slot is None:
                    continue
                self._alive[slot] = 0
                self._total -= self._lengths[slot]
                if slot < len(self._segment):
                    for number in self._segment.terms_of(slot).tolist():
                        self._add_segment_frequency(number, -1)
                    continue
                for term in self._terms[slot - len(self._segment)]:
                    self._add_frequency(term, -1)
                    # Two numbers a posting, so more than half are dead.
                    if len(self._postings[term]) > 4 * self._frequency_of(term):
                        self._compact(term)
                self._terms[slot - len(self._segment)] = ()
            if len(self._ids) > 2 * len(self._slot_of) + SLACK:
                self._settle()
            self._refresh()

    def search(
        self, query_tokens: Sequence[str], top_k: int, *, among: Iterable[str] | None = None
    ) -> list[tuple[str, float]]:
        """Return up to ``top_k`` pairs of id and score among the documents that hold a query token.

        Best first, equal scores by id. A score may be 0 or below: in a small corpus the library gives such an idf to a
        term of half the documents. ``among`` are the ids that may be returned; None: all.

        Raises:
            InvalidInputError: tokens that are no list of texts, or ``top_k`` is no number of results.
        """
        with self._lock:
            top_k = check_top_k(top_k)
            slots, scores = self._scored(query_tokens)
            if among is not None:
                wanted = np.array([self._slot_of[id] for id in among if id in self._slot_of], dtype=np.int64)
                kept = np.isin(slots, wanted)
                slots, scores = slots[kept], scores[kept]
            return best_first(self._ids, slots, scores, top_k)

    def scores(self, query_tokens: Sequence[str], ids: Sequence[str]) -> npt.NDArray[np.float64]:
        """Score n documents, shape ``(n,)``; 0 for those without a query token and for unknown ids."""
        return self.statistics(query_tokens, ids).scores(query_tokens)

    def get_scores(self, query: Sequence[str]) -> npt.NDArray[np.float64]:
        """Score all documents in the order of adding, as the library's method does: shape ``(n,)``."""
        return self.scores(query, list(self._slot_of))

    def get_batch_scores(self, query: Sequence[str], doc_ids: Sequence[int]) -> list[float]:
        """Score the documents at these positions in the order of adding."""
        every = list(self._slot_of)
        chosen: list[float] = self.scores(query, [every[place] for place in doc_ids]).tolist()
        return chosen

    def idf(self, term: str) -> float:
        """Return a term's inverse document frequency with the library's floor; 0 for an unknown term."""
        with self._lock:
            frequency = self._frequency_of(term)
            return self._floored_idf(frequency) if frequency else 0.0

    def statistics(self, query_tokens: Sequence[str], ids: Sequence[str]) -> TermStatistics:
        """Return the counts and lengths behind the scores of n documents.

        Raises:
            InvalidInputError: tokens that are no list of texts.
        """
        with self._lock:
            found = {term: self._frequency_of(term) for term in dict.fromkeys(_checked(query_tokens))}
            terms = tuple(term for term, frequency in found.items() if frequency)
            slots = np.array([self._slot_of.get(id, -1) for id in ids], dtype=np.int64)
            known = slots >= 0
            lengths = np.zeros(len(ids))
            counts = np.zeros((len(ids), len(terms)))
            if known.any():
                lengths[known] = np.frombuffer(self._lengths, dtype=np.int32)[slots[known]]
                for column, term in enumerate(terms):
                    for pairs in self._pairs(term):
                        # Slots only grow along a posting list.
                        places = np.minimum(np.searchsorted(pairs[:, 0], slots), len(pairs) - 1)
                        counts[:, column] += np.where(known & (pairs[places, 0] == slots), pairs[places, 1], 0)
            idf = np.array([self._floored_idf(found[term]) for term in terms], dtype=np.float64)
            return TermStatistics(terms, idf, counts, lengths, self.corpus_size, self.avgdl, self.k1, self.b)

    def save(self, path: str | Path, *, generation: int) -> str:
        """Write the index to one file, whole or not at all, and return its checksum (hex).

        Only terms of documents that are there are in it.

        Raises:
            StorageError: the file cannot be written.
        """
        with self._lock:
            if self._terms or len(self._segment) != len(self._slot_of):
                self._settle()
            return write_words(Path(path), WordsFile(generation, self._ids, _numbers(self._lengths), self._segment))

    @classmethod
    def load(cls, path: str | Path, *, noted: str) -> tuple[LexicalIndex, int]:
        """Read an index and its generation from the file whose checksum ``save`` returned.

        Raises:
            MemoryDamagedError: the file is missing, or is not that one; build the index anew.
        """
        file = read_words(Path(path), noted)
        index = cls()
        index._become(file.segment, file.ids, file.lengths)
        return index, file.generation

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, id: object) -> bool:
        return id in self._slot_of

    def _initialize(self, corpus: list[Any]) -> dict[str, int]:
        # The library's constructor calls this; an empty corpus would divide by zero there.
        self._become(Segment.empty(), [], np.zeros(0, np.int32))
        return self._frequency

    def _become(self, segment: Segment, ids: Sequence[str], lengths: npt.NDArray[np.int32]) -> None:
        self._segment = segment
        self._segment_frequency = segment.frequencies()
        self._ids = list(ids)
        self._slot_of = {id: slot for slot, id in enumerate(self._ids)}
        self._lengths = array("i", lengths.tobytes())
        self._alive = array("b", b"\1" * len(self._ids))
        # What came after the segment: the terms of each document; by term, postings; frequencies of terms new to it.
        self._terms: list[tuple[str, ...]] = []
        self._postings: dict[str, array[int]] = {}
        self._frequency: dict[str, int] = {}
        values, counts = np.unique(self._segment_frequency, return_counts=True)
        self._histogram: Counter[int] = Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        self._total = int(lengths.sum())
        self._refresh()

    def _calc_idf(self, nd: dict[str, int]) -> None:
        self._refresh()

    def _refresh(self) -> None:
        self.corpus_size = len(self._slot_of)
        self.avgdl = self._total / self.corpus_size if self.corpus_size else 0.0
        self._floor: float | None = None

    def _frequency_of(self, term: str) -> int:
        number = self._segment.find(_encoded(term))
        return self._frequency.get(term, 0) if number < 0 else int(self._segment_frequency[number])

    def _add_frequency(self, term: str, change: int) -> None:
        number = self._segment.find(_encoded(term))
        if number >= 0:
            self._add_segment_frequency(number, change)
            return
        old = self._frequency.pop(term, 0)
        self._count_frequency(old, old + change)
        if old + change:
            self._frequency[term] = old + change

    def _add_segment_frequency(self, number: int, change: int) -> None:
        old = int(self._segment_frequency[number])
        self._count_frequency(old, old + change)
        self._segment_frequency[number] = old + change

    def _count_frequency(self, old: int, new: int) -> None:
        for frequency, change in ((old, -1), (new, 1)):
            if frequency:
                self._histogram[frequency] += change
                if not self._histogram[frequency]:
                    del self._histogram[frequency]

    def _pairs(self, term: str) -> list[npt.NDArray[np.int32]]:
        """Return slots and counts of a term, shape ``(m, 2)`` each: those of the segment, and the later ones."""
        number = self._segment.find(_encoded(term))
        pieces = [] if number < 0 else [self._segment.pairs_of(number)]
        if term in self._postings:
            pieces.append(_numbers(self._postings[term]).reshape(-1, 2))
        return pieces

    def _floored_idf(self, frequency: int) -> float:
        plain = self._plain_idf(frequency)
        if plain >= 0:
            return plain
        if self._floor is None:
            whole = math.fsum(count * self._plain_idf(value) for value, count in self._histogram.items())
            self._floor = self.epsilon * whole / self._histogram.total()
        return self._floor

    def _plain_idf(self, frequency: int) -> float:
        return math.log(self.corpus_size - frequency + 0.5) - math.log(frequency + 0.5)

    def _scored(self, query_tokens: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        tokens = _checked(query_tokens)
        if not self._slot_of:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
        found: list[npt.NDArray[np.int32]] = []
        parts: list[npt.NDArray[np.float64]] = []
        alive = np.frombuffer(self._alive, dtype=np.int8)
        lengths = np.frombuffer(self._lengths, dtype=np.int32)
        all_alive = len(self._ids) == len(self._slot_of)
        for term, repeats in Counter(tokens).items():
            frequency = self._frequency_of(term)
            for pairs in self._pairs(term) if frequency else ():
                if not all_alive:
                    pairs = pairs[alive[pairs[:, 0]] == 1]
                slots, counts = pairs[:, 0], pairs[:, 1]
                part = saturated(counts, lengths[slots], self.avgdl, self.k1, self.b)
                found.append(slots)
                parts.append(repeats * self._floored_idf(frequency) * part)
        if not found:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
        touched, weights = np.concatenate(found), np.concatenate(parts)
        if len(touched) * _SPARSE < len(self._ids):
            slots, place = np.unique(touched, return_inverse=True)
            return slots.astype(np.int64), np.bincount(place, weights=weights).astype(np.float64)
        # For common words a place for every document costs less than sorting those that hold one.
        held = np.zeros(len(self._ids), dtype=bool)
        held[touched] = True
        dense = np.flatnonzero(held)
        return dense, np.bincount(touched, weights=weights, minlength=len(self._ids))[dense].astype(np.float64)

    def _compact(self, term: str) -> None:
        old = self._postings[term]
        kept = array("i")
        for place in range(0, len(old), 2):
            if self._alive[old[place]]:
                kept.extend(old[place : place + 2])
        if kept:
            self._postings[term] = kept
        else:
            del self._postings[term]

    def _settle(self, added: Postings | None = None, lengths: Mapping[str, int] | None = None) -> None:
        """Make one segment of all documents that are there, and of those that are added with their lengths."""
        slots = np.fromiter(self._slot_of.values(), np.int64, len(self._slot_of))
        new_slot = np.full(len(self._ids), -1, dtype=np.int32)
        new_slot[slots] = np.arange(len(slots), dtype=np.int32)
        parts = [self._segment.postings(), self._later_postings()]
        for place, part in enumerate(parts):
            kept = new_slot[part.slots] >= 0
            parts[place] = Postings(part.vocabulary, new_slot[part.slots[kept]], part.terms[kept], part.counts[kept])
        if added is not None:
            parts.append(Postings(added.vocabulary, added.slots + np.int32(len(slots)), added.terms, added.counts))
        more = lengths or {}
        whole = np.concatenate([_numbers(self._lengths)[slots], np.fromiter(more.values(), np.int32, len(more))])
        self._become(Segment.joined(parts, len(whole)), [*self._slot_of, *more], whole)

    def _later_postings(self) -> Postings:
        lists = [_numbers(postings).reshape(-1, 2) for postings in self._postings.values()]
        pairs = np.concatenate([np.zeros((0, 2), np.int32), *lists])
        terms = np.repeat(np.arange(len(lists), dtype=np.int32), [len(each) for each in lists])
        return Postings([_encoded(term) for term in self._postings], pairs[:, 0], terms, pairs[:, 1])


def _numbers(values: array[int]) -> npt.NDArray[np.int32]:
    return np.frombuffer(values, dtype=np.int32) if values else np.zeros(0, np.int32)


def _encoded(term: str) -> bytes:
    return term.encode("utf-8", "surrogatepass")


def _checked(tokens: Sequence[str]) -> Sequence[str]:
    if isinstance(tokens, (str, bytes)) or not all(isinstance(token, str) for token in tokens):
        raise InvalidInputError(f"tokens={str(tokens)[:80]!r} are no list of texts; give what text.tokenize returns")
    return tokens
