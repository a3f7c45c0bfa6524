from __future__ import annotations

import numpy as np
import pytest

from fluxmem_local.stages.evidence import Evidence
from fluxmem_local.stages.outwardness import Outwardness, outwardness
from fluxmem_local.stages.proposals import Trial, rule_proposals
from fluxmem_local.testing import HashEmbedder

from .test_attribution import CONFIG, A, failure, item


@pytest.mark.parametrize(
    ("to_world", "to_step", "value"),
    [
        # The two nearest of each kind count: (0.5 + 0.4) / 2 - (0.4 + 0.35) / 2 = 0.075, half of 0.15.
        ([0.5, 0.4, -0.2], [0.4, 0.35, 0.1], 0.5),
        ([0.9, 0.8], [0.1, 0.1], 1.0),
        ([0.1, 0.1], [0.9, 0.8], 0.0),
    ],
)
def test_the_nearest_two_sentences_of_each_kind_are_compared(
    to_world: list[float], to_step: list[float], value: float
) -> None:
    assert outwardness(np.float32(to_world), np.float32(to_step)) == pytest.approx(value)


async def test_its_sentences_are_embedded_once_and_blank_feedback_sounds_like_nothing() -> None:
    class Counting(HashEmbedder):
        batches = 0

        async def embed_batch(self, texts):  # type: ignore[no-untyped-def]
            self.batches += 1
            return await super().embed_batch(texts)

    embedder = Counting(256)
    sense = Outwardness(embedder)
    assert await sense.of(" \n") == 0.0
    assert embedder.batches == 0
    assert await sense.of("The server is down and does not answer. The disk has read errors.") == 1.0
    assert await sense.of("The rule was not followed. It was refused by policy.") == 0.0
    assert embedder.batches == 1


def _none_score(feedback: str = "gone", *, known: float = 0.0, outward: float = 1.0, futile: int = 0) -> float:
    evidence = Evidence(inside=(item(A, to_feedback=known),), outside=(), outwardness=outward)
    tried = [Trial(action="prune", targets=(str(each),), had_effect=False) for each in range(futile)]
    (none,) = [
        each
        for each in rule_proposals(failure(feedback), evidence, tried=tried, config=CONFIG)
        if each.action == "none"
    ]
    return none.score


def test_what_sounds_like_the_world_speaks_for_none_unless_a_memory_knows_of_it() -> None:
    assert _none_score() - _none_score(outward=0.0) == pytest.approx(0.3)
    assert _none_score(outward=0.5) - _none_score(outward=0.0) == pytest.approx(0.15)
    # 0.375 lies half way between 0.25, from which a memory knows of a failure, and 0.5, where it knows it well.
    assert _none_score(known=0.375) - _none_score(known=0.375, outward=0.0) == pytest.approx(0.15)
    assert _none_score(known=0.5) == _none_score(known=0.5, outward=0.0)


def test_what_refuses_the_step_is_no_failure_of_the_world_by_its_sound() -> None:
    refused = "LimitError: the table is too large"
    assert _none_score(refused) == _none_score(refused, outward=0.0)


def test_each_edit_that_changed_nothing_speaks_for_none() -> None:
    assert _none_score(futile=3) - _none_score() == pytest.approx(0.12)
