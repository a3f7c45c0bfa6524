"""Whole large texts: nothing is cut away, and their tails are found by words and by vectors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.agent.answering import _own_answer
from fluxmem_local.agent.passages import passages_of
from fluxmem_local.answers import parse_score
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.retrieval.dates import DateSpan, find_dates
from fluxmem_local.stages.antiunification import words_of
from fluxmem_local.stages.rewriting import generalise
from fluxmem_local.testing import HashEmbedder

# Few different words, so that no other chunk shares one with the tail in the hash embedder either; no two lines alike.
WORDS = ["zero", "one"]
FILE = "".join(" ".join(WORDS[int(bit)] for bit in f"{number:b}") + ".\n\n" for number in range(75_000))
LINE = " ".join(FILE[-210_000:].split())
TAIL = "The zanzibar valve closes at noon."


@pytest.mark.parametrize(("body", "size"), [(FILE, 20_000), (LINE, 5_000), ("x" * 200_000, 2_000)])
@pytest.mark.parametrize("embedder", [None, HashEmbedder(256)])
async def test_the_tail_of_a_large_text_is_found(body: str, size: int, embedder: HashEmbedder | None) -> None:
    config = FluxMemConfig(dense_weight=0 if embedder is None else 1, bm25_weight=0 if embedder else 1)
    async with FluxMemAgent(None, embedder, config) as agent:
        ids = await agent.add_knowledge(f"{body} {TAIL}", chunk_size=size)
        contents = [node.content for node in agent.store.get_many(ids)]
        assert "".join("".join(contents).split()) == "".join((body + TAIL).split())
        (hit,) = await agent.retrieve("zanzibar valve", top_k=1)
        assert TAIL in hit.node.content


def test_sizes_are_those_that_are_promised() -> None:
    assert len(FILE.encode()) > 5_000_000
    assert len(LINE) > 200_000


def _sentences(text: str) -> list[str]:
    return [" ".join(passage.text.split()) for passage in passages_of("a", text)]


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (
            find_dates,
            f"on 2023年 5月{' ' * 100_000}8日 or{' ' * 100_000}9月",
            (DateSpan(2023, 5, 8), DateSpan(None, 9, None)),
        ),
        (_sentences, f"It rains{' ' * 100_000}here", ["It rains here"]),
        (_sentences, f"It rains{chr(34) * 100_000}", [f"It rains{chr(34) * 100_000}"]),
        (_sentences, f"It rains{'”' * 100_000}", [f"It rains{'”' * 100_000}"]),
        (lambda text: [word.text for word in words_of(text)], f"open it{' ' * 100_000}", ["open", "it"]),
        (parse_score, f"-{' ' * 100_000}1 fact", None),
        (parse_score, f"Score:{' ' * 100_000}1", 1.0),
        (
            lambda text: generalise(text, "go").removeprefix("As a rule, with the values of the case at hand: "),
            f"go{' ' * 100_000}on (at once)",
            f"go{' ' * 100_000}on",
        ),
        (_own_answer, f"At noon{chr(10) * 100_000}Question: when?", "At noon"),
    ],
)
def test_long_runs_of_one_sign_are_read_once(read: Callable[[str], Any], text: str, expected: Any) -> None:
    started = time.process_time()
    assert read(text) == expected
    # Where each sign of a run was tried anew, it took 20 s and more.
    assert time.process_time() - started < 5.0
