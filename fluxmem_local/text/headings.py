"""Headings of Markdown documents: under which of them a piece of text stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import regex

__all__ = ["HEADINGS", "Heading", "find_headings", "heading_paths", "is_markdown"]

# The key in a fact's metadata under which its headings stand: "Install > Linux".
HEADINGS = "headings"

_SUFFIXES = frozenset({".md", ".markdown", ".mdx", ".mdown", ".mkd"})
# At the very beginning, between lines of three hyphens: settings of the document and no text.
_FRONT_MATTER = regex.compile(r"\A---[ \t]*\n(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_HEADING = regex.compile(
    r"""(?mx)
    ^[ ]{0,3}(?P<marks>\#{1,6})(?:[ \t]++(?P<title>.*?)(?<![ \t]))??(?:[ \t]++\#+)?[ \t]*+$
    | (?<=\A|\n[ \t]*\n|^[ ]{0,3}\#.*\n)[ ]{0,3}(?![-*+>|\#`~]|\d+[.)][ ])(?P<underlined>\S.*)\n
      [ ]{0,3}(?P<line>=+|--+)[ \t]*$
    """
)
_LINK = regex.compile(r"!?\[([^\]]*+)\]\([^)]*+\)")
_MARKUP = regex.compile(r"[*`]++|<[^<>]*+>|(?<![\w_])_(?=[^_]++_(?![\w_]))|(?<=(?<![\w_])_[^_]++)_(?![\w_])")
# A paragraph that someone put behind a # is no title to repeat with each chunk.
_LONGEST_TITLE = 120
# With room for links and markup; on a whole book in one line their patterns take quadratic time.
_MOST_READ = 2000
_BETWEEN = " > "


@dataclass(frozen=True, slots=True)
class Heading:
    """One heading: where its line begins and ends, its level from 1 to 6, and its words without markup."""

    start: int
    end: int
    level: int
    title: str


def is_markdown(name: str) -> bool:
    """Tell by its suffix whether a file, or what a source is named after, is Markdown."""
    return PurePath(name).suffix.lower() in _SUFFIXES


def find_headings(text: str, fences: Sequence[tuple[int, int]]) -> list[Heading]:
    """List a document's headings in their order; ``fences`` are the spans of its code."""
    front_matter = _FRONT_MATTER.match(text)
    begin = front_matter.end() if front_matter else 0
    following = iter([*fences, (len(text) + 1, len(text) + 1)])
    fence_start, fence_end = next(following)
    headings = []
    for found in _HEADING.finditer(text, begin):
        while found.start() >= fence_end:
            fence_start, fence_end = next(following)
        title = _plain(found["title"] or found["underlined"] or "")
        if title and found.start() < fence_start:
            level = len(found["marks"]) if found["marks"] else 1 if found["line"].startswith("=") else 2
            start = found.start() + len(found[0]) - len(found[0].lstrip())
            headings.append(Heading(start, found.end(), level, title))
    return headings


def heading_paths(text: str, spans: Iterable[tuple[int, int]], headings: Sequence[Heading]) -> Iterator[str]:
    """Join for each piece of ``text``, in their order, the headings that its first words are under, outermost first."""
    opened: list[Heading] = []
    place = 0
    for start, end in spans:
        body = start
        while place < len(headings) and headings[place].start < end:
            heading = headings[place]
            if heading.start >= start and text[body : heading.start].strip():
                break
            opened = [*(outer for outer in opened if outer.level < heading.level), heading]
            body = max(body, heading.end)
            place += 1
        yield _BETWEEN.join(heading.title for heading in opened)


def _plain(title: str) -> str:
    words = _MARKUP.sub("", _LINK.sub(r"\1", title[:_MOST_READ])).split()
    while len(plain := " ".join(words)) > _LONGEST_TITLE and len(words) > 1:
        words.pop()
    return plain if len(plain) <= _LONGEST_TITLE else ""
