"""LexicalIndex: rank_bm25's BM25Okapi that documents can join and leave."""

from __future__ import annotations

import math
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rank_bm25 import BM25Okapi

from fluxmem_local.errors import InvalidInputError

from .order import best_first, check_top_k

__all__ = ["LexicalIndex", "TermStatistics"]

# A query that touches fewer than one document in this many sorts them.
_SPARSE = 16
# Below this many dead slots renumbering costs more than it saves.
SLACK = 64


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """What BM25 is computed from, for n documents and the t query terms that any document holds.

    ``idf`` is ``(t,)``, ``counts`` is ``(n, t)``, ``lengths`` is ``(n,)`` in tokens; an unknown document has zeros.
    ``corpus_size`` counts all documents, ``mean_length`` is theirs, ``k1`` and ``b`` are BM25's parameters.
    """

    terms: tuple[str, ...]
    idf: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.float64]
    corpus_size: int
    mean_length: float
    k1: float = 1.5
    b: float = 0.75

    def scores(self, query_tokens: Sequence[str]) -> npt.NDArray[np.float64]:
        """Compute the n documents' BM25: shape ``(n,)``; a token that the query repeats counts as often."""
        repeats = Counter(query_tokens)
        weights = self.idf * [repeats[term] for term in self.terms]
        scores: npt.NDArray[np.float64] = self.saturated(self.counts, self.lengths, self.mean_length) @ weights
        return scores

    def saturated(
        self, counts: npt.NDArray[np.float64], lengths: npt.NDArray[np.float64], mean_length: float
    ) -> npt.NDArray[np.float64]:
        """Damp counts ``(m, t)`` of m texts by BM25's formula, more in texts that are long for the mean: ``(m, t)``."""
        return _saturated(counts, lengths[:, None], mean_length, self.k1, self.b)


def _saturated(counts: Any, lengths: Any, mean_length: float, k1: float, b: float) -> npt.NDArray[np.float64]:
    damped: npt.NDArray[np.float64] = counts * (k1 + 1) / (counts + k1 * (1 - b + b * lengths / (mean_length or 1.0)))
    return damped


class LexicalIndex(BM25Okapi):  # type: ignore[misc]
    """BM25 over documents by id, with the scores of ``rank_bm25.BM25Okapi`` built anew over the same tokens.

    A document gets a slot number. A term's posting list is a flat integer array: slot, count, slot, count, …; those of
    deleted documents stay in it until they are more than half. The idf depends on a term's document frequency alone, so
    its mean over the vocabulary is a sum over the few distinct frequencies.
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
                self._set_frequency(term, self._frequency.get(term, 0) + 1)
            self._total += len(tokens)
            self._refresh()

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
                for term in self._terms[slot]:
                    self._set_frequency(term, self._frequency[term] - 1)
                    # Two numbers a posting, so more than half are dead.
                    if len(self._postings[term]) > 4 * self._frequency.get(term, 0):
                        self._compact(term)
                self._terms[slot] = ()
            if len(self._ids) > 2 * len(self._slot_of) + SLACK:
                self._renumber()
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
            frequency = self._frequency.get(term)
            return 0.0 if frequency is None else self._floored_idf(frequency)

    def statistics(self, query_tokens: Sequence[str], ids: Sequence[str]) -> TermStatistics:
        """Return the counts and lengths behind the scores of n documents.

        Raises:
            InvalidInputError: tokens that are no list of texts.
        """
        with self._lock:
            terms = tuple(term for term in dict.fromkeys(_checked(query_tokens)) if term in self._frequency)
            slots = np.array([self._slot_of.get(id, -1) for id in ids], dtype=np.int64)
            known = slots >= 0
            lengths = np.zeros(len(ids))
            counts = np.zeros((len(ids), len(terms)))
            if known.any():
                lengths[known] = np.frombuffer(self._lengths, dtype=np.int32)[slots[known]]
                for column, term in enumerate(terms):
                    pairs = np.frombuffer(self._postings[term], dtype=np.int32).reshape(-1, 2)
                    # Slots only grow along a posting list.
                    places = np.minimum(np.searchsorted(pairs[:, 0], slots), len(pairs) - 1)
                    counts[:, column] = np.where(known & (pairs[places, 0] == slots), pairs[places, 1], 0)
            idf = np.array([self._floored_idf(self._frequency[term]) for term in terms], dtype=np.float64)
            return TermStatistics(terms, idf, counts, lengths, self.corpus_size, self.avgdl, self.k1, self.b)

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, id: object) -> bool:
        return id in self._slot_of

    def _initialize(self, corpus: list[Any]) -> dict[str, int]:
        # The library's constructor calls this; an empty corpus would divide by zero there.
        self._ids: list[str] = []
        self._slot_of: dict[str, int] = {}
        self._terms: list[tuple[str, ...]] = []
        self._lengths = array("i")
        self._alive = array("b")
        self._postings: dict[str, array[int]] = {}
        self._frequency: dict[str, int] = {}
        self._histogram: Counter[int] = Counter()
        self._total = 0
        return self._frequency

    def _calc_idf(self, nd: dict[str, int]) -> None:
        self._refresh()

    def _refresh(self) -> None:
        self.corpus_size = len(self._slot_of)
        self.avgdl = self._total / self.corpus_size if self.corpus_size else 0.0
        self._floor: float | None = None

    def _set_frequency(self, term: str, new: int) -> None:
        old = self._frequency.pop(term, 0)
        for frequency, change in ((old, -1), (new, 1)):
            if frequency:
                self._histogram[frequency] += change
        if old and not self._histogram[old]:
            del self._histogram[old]
        if new:
            self._frequency[term] = new

    def _floored_idf(self, frequency: int) -> float:
        plain = self._plain_idf(frequency)
        if plain >= 0:
            return plain
        if self._floor is None:
            whole = math.fsum(count * self._plain_idf(value) for value, count in self._histogram.items())
            self._floor = self.epsilon * whole / len(self._frequency)
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
            if term not in self._frequency:
                continue
            pairs = np.frombuffer(self._postings[term], dtype=np.int32).reshape(-1, 2)
            if not all_alive:
                pairs = pairs[alive[pairs[:, 0]] == 1]
            slots, counts = pairs[:, 0], pairs[:, 1]
            part = _saturated(counts, lengths[slots], self.avgdl, self.k1, self.b)
            found.append(slots)
            parts.append(repeats * self._floored_idf(self._frequency[term]) * part)
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
        if term not in self._frequency:
            del self._postings[term]
            return
        old = self._postings[term]
        kept = array("i")
        for place in range(0, len(old), 2):
            if self._alive[old[place]]:
                kept.extend(old[place : place + 2])
        self._postings[term] = kept

    def _renumber(self) -> None:
        slots = list(self._slot_of.values())
        new_slot = np.full(len(self._ids), -1, dtype=np.int32)
        new_slot[slots] = np.arange(len(slots), dtype=np.int32)
        for term, postings in self._postings.items():
            pairs = np.frombuffer(postings, dtype=np.int32).reshape(-1, 2).copy()
            pairs[:, 0] = new_slot[pairs[:, 0]]
            self._postings[term] = array("i", pairs[pairs[:, 0] >= 0].tobytes())
        self._ids = list(self._slot_of)
        self._slot_of = {id: slot for slot, id in enumerate(self._ids)}
        self._terms = [self._terms[slot] for slot in slots]
        self._lengths = array("i", [self._lengths[slot] for slot in slots])
        self._alive = array("b", [1] * len(slots))


def _checked(tokens: Sequence[str]) -> Sequence[str]:
    if isinstance(tokens, (str, bytes)) or not all(isinstance(token, str) for token in tokens):
        raise InvalidInputError(f"tokens={str(tokens)[:80]!r} are no list of texts; give what text.tokenize returns")
    return tokens
