"""Segment: the words of documents that do not change, in a few arrays, as they also stand in a file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Postings", "Segment"]

Numbers = npt.NDArray[np.int32]
Ends = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Postings:
    """p statements that a document holds a term so many times; ``terms`` are places in ``vocabulary``."""

    vocabulary: Sequence[bytes]
    slots: Numbers
    terms: Numbers
    counts: Numbers


class _Vocabulary(Sequence[bytes]):
    """t terms, sorted, without an object for each."""

    def __init__(self, text: bytes, ends: Ends) -> None:
        self.text = text
        self.ends = ends

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, place: Any) -> Any:
        return self.text[self.ends[place] : self.ends[place + 1]]


class Segment:
    """n documents by slot, 0 to n - 1, and the t terms that they hold.

    Args:
        text: the terms in UTF-8, sorted, one after the other.
        text_ends: where each ends, ``(t + 1,)`` with a leading 0.
        pairs: slot and count of each posting by term, slots rising, ``(p, 2)``.
        pair_ends: where each term's end, ``(t + 1,)``.
        num_documents: n.
    """

    def __init__(self, text: bytes, text_ends: Ends, pairs: Numbers, pair_ends: Ends, num_documents: int) -> None:
        self.vocabulary = _Vocabulary(text, text_ends)
        self.pairs = pairs
        self.pair_ends = pair_ends
        self._num_documents = num_documents

    @classmethod
    def empty(cls) -> Segment:
        """Return a segment without documents."""
        ends = np.zeros(1, np.int64)
        return cls(b"", ends, np.zeros((0, 2), np.int32), ends, 0)

    @classmethod
    def joined(cls, parts: Sequence[Postings], num_documents: int) -> Segment:
        """Make a segment of postings whose slots are already those of the whole."""
        known: dict[bytes, int] = {}
        terms = np.concatenate(
            [
                np.array([known.setdefault(term, len(known)) for term in part.vocabulary], np.int32)[part.terms]
                for part in parts
            ]
        )
        slots, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("slots", "counts"))
        held = np.bincount(terms, minlength=len(known)) > 0
        names = list(known)
        order = np.array([place for place in sorted(range(len(names)), key=names.__getitem__) if held[place]], np.int32)
        place_of = np.zeros(len(names), np.int32)
        place_of[order] = np.arange(len(order))
        terms = place_of[terms]
        by_term = np.argsort(terms.astype(np.int64) * num_documents + slots)
        sorted_names = [names[place] for place in order.tolist()]
        return cls(
            b"".join(sorted_names),
            _ends(np.array([len(name) for name in sorted_names], np.int64)),
            np.stack([slots[by_term], counts[by_term]], axis=1),
            _ends(np.bincount(terms, minlength=len(order))),
            num_documents,
        )

    def find(self, term: bytes) -> int:
        """Return a term's number, or -1."""
        place = bisect_left(self.vocabulary, term)
        return place if place < len(self.vocabulary) and self.vocabulary[place] == term else -1

    def frequencies(self) -> Numbers:
        """Return how many documents hold each term, shape ``(t,)``."""
        return np.diff(self.pair_ends).astype(np.int32)

    def pairs_of(self, number: int) -> Numbers:
        """Return a term's slots and counts, shape ``(m, 2)``."""
        return self.pairs[self.pair_ends[number] : self.pair_ends[number + 1]]

    def terms_of(self, slot: int) -> Numbers:
        """Return the numbers of a document's terms."""
        terms, ends = self._by_document
        return terms[ends[slot] : ends[slot + 1]]

    def postings(self) -> Postings:
        """Return all postings, by term."""
        terms = np.repeat(np.arange(len(self.vocabulary), dtype=np.int32), np.diff(self.pair_ends))
        return Postings(self.vocabulary, self.pairs[:, 0], terms, self.pairs[:, 1])

    def __len__(self) -> int:
        return self._num_documents

    @cached_property
    def _by_document(self) -> tuple[Numbers, Ends]:
        # Only a memory of which something is deleted needs them.
        postings = self.postings()
        order = np.argsort(postings.slots, kind="stable")
        return postings.terms[order], _ends(np.bincount(postings.slots, minlength=len(self)))


def _ends(sizes: npt.NDArray[Any]) -> Ends:
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends
