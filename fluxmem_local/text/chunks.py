"""Chunks: a long text cut at its strongest joints.

Own code, because no splitter we tried keeps what is promised here (2026-11): semantic-text-splitter 0.33 moves the full
stop of a word into the next chunk, makes chunks of a bare combining mark or a zero-width joiner, and did not finish one
line of 5 MB in two minutes (here 2 s); chonkie 1.7 cuts graphemes, gives chunks of white space alone, and opens a code
fence at the end of a chunk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import regex

from fluxmem_local.errors import InvalidInputError

from .content import check_text, is_blank
from .headings import Heading, find_headings, heading_paths

__all__ = ["Chunk", "chunk_document", "chunk_text"]

_SPACE = regex.compile(r"\s*+")
_FENCE = regex.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", regex.MULTILINE)
# A skin tone or a combining mark belongs to the sign before it.
_GAP = regex.compile(r"\s++|[。！？][」』）”’]*+(?![\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}])")
_HEADING = regex.compile(r"\#{1,6}[ \t]")
_ITEM = regex.compile(r"(?:[-*+•]|\d{1,9}[.)])[ \t]|\|")
_LAST_SPACE = regex.compile(r"(?r)\s")
# Thai and Lao vowels that belong to the letter before them, and half-width voicing marks, are letters to Unicode.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\u30fc"
_LAST_UNSPACED = regex.compile(
    rf"(?V1r)(?<=[{_UNSPACED}\p{{M}}，、；：」』）])(?=[[{_UNSPACED}]--[\p{{M}}\u0e33\u0eb3\uff9e\uff9f]])"
)
_GRAPHEME = regex.compile(r"\X")
_LONGEST_GRAPHEME = 64


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, with the headings it stands under, outermost first: ``Install > Linux``; else blank."""

    content: str
    headings: str = ""


def chunk_document(text: str, chunk_size: int, *, markdown: bool) -> list[Chunk]:
    """Cut a text as ``chunk_text`` does; of a Markdown document each chunk gets the headings its first words are under.

    A heading that begins a chunk is among them. Headings are lines with ``#`` and lines underlined with ``=`` or ``-``,
    outside of code and front matter.

    Raises:
        InvalidInputError: not a text, or ``chunk_size`` under 1.
    """
    if not markdown:
        return [Chunk(chunk) for chunk in chunk_text(text, chunk_size)]
    _check_size(chunk_size)
    fences = _fences(check_text(text))
    headings = find_headings(text, fences)
    spans = list(_spans(text, chunk_size, fences, headings))
    paths = heading_paths(text, spans, headings)
    return [Chunk(text[start:end], path) for (start, end), path in zip(spans, paths, strict=True)]


def chunk_text(text: str, chunk_size: int) -> list[str]:
    """Cut a text into chunks of at most ``chunk_size`` characters, at the strongest joint that fits.

    Joints, strongest first: headings; blank lines and code fences; list items and table rows; other lines that end a
    sentence; lines inside a fence; sentences; other lines; words. A longer word is cut between graphemes; a grapheme
    longer than ``chunk_size`` stays whole up to 64 characters. Every visible character is in a chunk, in order; only
    white space at the joints is dropped.

    Raises:
        InvalidInputError: not a text, or ``chunk_size`` under 1.
    """
    _check_size(chunk_size)
    fences = _fences(check_text(text))
    return [text[start:end] for start, end in _spans(text, chunk_size, fences, ())]


def _check_size(chunk_size: int) -> None:
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise InvalidInputError(
            f"chunk_size={chunk_size!r} is no chunk size; give a whole number of at least 1, as 512"
        )


def _spans(
    text: str, chunk_size: int, fences: list[tuple[int, int]], headings: Sequence[Heading]
) -> Iterator[tuple[int, int]]:
    joints = _joints(text, fences, {heading.start for heading in headings})
    start, end = 0, len(text.rstrip())
    while (start := _SPACE.match(text, start).end()) < end:
        cut = end if end - start <= chunk_size else _cut(text, start, chunk_size, joints, fences)
        chunk = text[start:cut].rstrip()
        if not is_blank(chunk):
            yield start, start + len(chunk)
        start = cut


def _fences(text: str) -> list[tuple[int, int]]:
    """Find Markdown code fences: pairs of start and end; one that is not closed runs to the end of the text."""
    spans: list[tuple[int, int]] = []
    opened: tuple[int, str] | None = None
    for line in _FENCE.finditer(text):
        if opened is None:
            opened = (line.start(), line[1])
        elif line[1].startswith(opened[1]) and not line[2].strip():
            spans.append((opened[0], line.end()))
            opened = None
    return spans if opened is None else [*spans, (opened[0], len(text))]


def _joints(text: str, fences: list[tuple[int, int]], headings: Set[int]) -> tuple[list[int], list[int]]:
    """List the places where a chunk may end, with their strength: smaller is stronger. Gaps of words are left out."""
    places: list[int] = []
    levels: list[int] = []
    following = iter([*fences, (len(text) + 1, len(text) + 1)])
    fence_start, fence_end = next(following)
    for gap in _GAP.finditer(text):
        while gap.start() > fence_end:
            fence_start, fence_end = next(following)
        lines = gap[0].count("\n")
        after = gap.end()
        if fence_start < gap.start() < fence_end:
            level = 4 if lines > 1 else 5 if lines else 8
        elif lines and (after in headings or _HEADING.match(text, after)):
            level = 0
        elif lines > 1 or (lines and (gap.start() == fence_end or gap.start() < fence_start <= after)):
            level = 1
        elif lines and _ITEM.match(text, after):
            level = 2
        elif lines == 0 and not gap[0].isspace():
            level = 6
        elif text[max(0, gap.start() - 3) : gap.start()].rstrip("\"')]”’*_").endswith((".", "!", "?", "…", ":")):
            level = 3 if lines else 6
        else:
            level = 7 if lines else 8
        if level < 8:
            places.append(gap.start() if gap[0].isspace() else after)
            levels.append(level)
    return places, levels


def _cut(text: str, start: int, size: int, joints: tuple[list[int], list[int]], fences: list[tuple[int, int]]) -> int:
    places, levels = joints
    limit = start + size
    # A joint in the first third would leave a scrap.
    low, high = bisect_left(places, start + max(1, size // 3)), bisect_right(places, limit)
    if low < high:
        cut = places[max(range(low, high), key=lambda at: (-levels[at], at))]
    else:
        cut = max(
            (
                found.start()
                for pattern in (_LAST_SPACE, _LAST_UNSPACED)
                if (found := pattern.search(text, start + 1, limit + 1))
            ),
            default=0,
        )
    around = bisect_right(fences, (cut, 0)) - 1
    if around >= 0 and start < fences[around][0] < cut < fences[around][1] <= fences[around][0] + size:
        return fences[around][0]
    return cut or _grapheme_cut(text, start, limit)


def _grapheme_cut(text: str, start: int, limit: int) -> int:
    cut = start
    for grapheme in _GRAPHEME.finditer(text, start, limit + _LONGEST_GRAPHEME):
        if grapheme.end() > limit:
            break
        cut = grapheme.end()
    if cut > start:
        return cut
    whole: int = grapheme.end()
    return min(whole, max(limit, start + _LONGEST_GRAPHEME))
