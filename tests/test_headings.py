from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxmem_local.text import chunk_document, chunk_text, is_markdown

GUIDE = """---
title: not a heading
---
Read this first.

# Guide

Hello.

Install
-------

Take what fits.

### On *Linux* [hosts](h://x) ##

Run the script.

```sh
# no heading
ls
```

## Use ##

- item
---
Every day.
"""


def under(text: str, chunk_size: int = 45) -> list[tuple[str, str]]:
    return [
        (chunk.content.splitlines()[-1], chunk.headings) for chunk in chunk_document(text, chunk_size, markdown=True)
    ]


def test_each_chunk_knows_the_headings_it_stands_under() -> None:
    assert under(GUIDE) == [
        ("Read this first.", ""),
        ("Hello.", "Guide"),
        ("Take what fits.", "Guide > Install"),
        ("### On *Linux* [hosts](h://x) ##", "Guide > Install > On Linux hosts"),
        ("```", "Guide > Install > On Linux hosts"),
        ("Every day.", "Guide > Use"),
    ]


def test_a_long_section_keeps_its_headings_to_the_end() -> None:
    chunks = chunk_document(
        "# A\n\n## B\n\n" + "One sentence here. " * 40 + "\n\n## C\n\nThe end of it, in a few words more.",
        60,
        markdown=True,
    )
    assert {chunk.headings for chunk in chunks[:-1]} == {"A > B"}
    assert chunks[-1].headings == "A > C"


def test_a_chunk_of_several_sections_is_under_the_first() -> None:
    assert under("# A\n\none\n\n## B\n\ntwo", 1000) == [("two", "A")]
    assert under("# A\n\n## B\n\ntwo\n\n# C", 1000) == [("# C", "A > B")]


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("#hashtag\n\nx", ""),
        ("    # code\n\nx", ""),
        ("# \n\nx", ""),
        ("####### seven\n\nx", ""),
        ("~~~\n# code\n~~~\n\nx", ""),
        ("```\n# never closed\nx", ""),
        ("a | b\n--- | ---\n1 | 2", ""),
        ("a wrapped\nparagraph\n---\n\nx", ""),
        ("- item\n---\nx", ""),
        ("# snake_case `__init__` **now**\n\nx", "snake_case __init__ now"),
        ("# 安装 > Linux\n\nx", "安装 > Linux"),
        ("# " + "word " * 200 + "\n\nx", ("word " * 24).strip()),
        ("Title\n=====\n\nSub\n---\n\nx", "Title > Sub"),
    ],
)
def test_what_is_a_heading(text: str, headings: str) -> None:
    assert chunk_document(text, 5000, markdown=True)[0].headings == headings


def test_other_text_has_no_headings() -> None:
    code = "# a comment\nx = 1"
    assert [chunk.headings for chunk in chunk_document(code, 100, markdown=False)] == [""]


@pytest.mark.parametrize(
    ("name", "expected"), [("a.md", True), ("b/NOTES.MARKDOWN", True), ("c.mdx", True), ("a.py", False), ("md", False)]
)
def test_markdown_is_told_by_its_suffix(name: str, expected: bool) -> None:
    assert is_markdown(name) is expected


PIECES = ["# A", "## B", "words here", "\n", "\n\n", "```", "===", "---", "- x", " "]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.integers(3, 60))
def test_a_document_loses_nothing(text: str, size: int) -> None:
    chunks = [chunk.content for chunk in chunk_document(text, size, markdown=True)]
    assert "".join("".join(chunks).split()) == "".join(text.split())
    assert all(len(chunk) <= size for chunk in chunks)
    assert "".join("".join(chunk_text(text, size)).split()) == "".join(text.split())
