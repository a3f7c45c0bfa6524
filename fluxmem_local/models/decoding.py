"""What happens at each generated token: seeded sampling by row, and a stop when a row only repeats itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["RepetitionStop", "RowSampler", "repeats"]

# A loop of up to 12 tokens is stopped after 48 tokens; lists and tables repeat less exactly.
_LONGEST_PERIOD = 12
_REPEATED_TOKENS = 48
_FEWEST_REPEATS = 6


def repeats(token_ids: Sequence[int]) -> bool:
    """Tell whether the last tokens are one short sequence again and again."""
    tail = list(token_ids[-_REPEATED_TOKENS:])
    for period in range(1, _LONGEST_PERIOD + 1):
        span = max(period * _FEWEST_REPEATS, _REPEATED_TOKENS // 2)
        if len(tail) >= span and tail[-span:-period] == tail[-span + period :]:
            return True
    return False


class RowSampler:
    """Draws each row's next token with a generator of its own, so that an answer does not depend on its neighbours.

    Gumbel noise on the scaled logits and the largest sum is a draw from their softmax. Rows of temperature 0 stay
    greedy.
    """

    def __init__(self, temperatures: Sequence[float], seeds: Sequence[int]) -> None:
        import torch

        self._temperatures = list(temperatures)
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Change the scores ``(n, vocabulary)`` of one step."""
        import torch

        drawn = scores.float()
        for row, (temperature, generator) in enumerate(zip(self._temperatures, self._generators, strict=True)):
            if temperature > 0:
                noise = torch.empty(scores.shape[-1]).exponential_(generator=generator).log_().neg_()
                drawn[row] = drawn[row] / temperature + noise.to(scores.device)
        return drawn


class RepetitionStop:
    """Ends the rows that only repeat themselves."""

    def __init__(self, prompt_length: int) -> None:
        self._prompt_length = prompt_length

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Say which rows are done: ``(n,)``."""
        import torch

        rows = input_ids[:, self._prompt_length :][:, -_REPEATED_TOKENS:].tolist()
        return torch.tensor([repeats(row) for row in rows], device=input_ids.device, dtype=torch.bool)
