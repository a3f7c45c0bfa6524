"""Running a batch that may be too big for the device's memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["run_in_batches"]

logger = logging.getLogger(__name__)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


# A batch of this many tokens keeps a CPU's matrix units busy, and a token of padding costs as much as one of text.
_BUSY_TOKENS = 256
_LEAST_FILLED = 0.8


def run_in_batches(
    items: Sequence[_Item],
    batch_size: int,
    run: Callable[[Sequence[_Item]], Sequence[_Result]],
    move_to_cpu: Callable[[], bool],
    length: Callable[[_Item], int],
    *,
    on_cpu: bool = False,
) -> list[_Result]:
    """Run all items, items of like length together, and return the results in the items' order.

    When the device's memory is full the batch is halved; when one item alone is too much, the model moves to the CPU
    and the run goes on there.

    Args:
        items: n items.
        batch_size: items of one run at most.
        run: gives one result an item.
        move_to_cpu: moves the model; False when it is there already.
        length: tokens of an item; padding costs least when neighbours are alike.
        on_cpu: a batch ends early where the next items are much shorter. Other devices do all rows in about one's time.
    """
    import torch

    order = sorted(range(len(items)), key=lambda at: length(items[at]), reverse=True)
    results: dict[int, _Result] = {}
    start = 0
    while start < len(order):
        chosen = order[start : start + batch_size]
        if on_cpu:
            chosen = _alike(chosen, [length(items[at]) for at in chosen])
        try:
            answers = run([items[at] for at in chosen])
        except torch.OutOfMemoryError:
            if len(chosen) > 1:
                batch_size = len(chosen) // 2
                logger.warning("out of memory with %d items at once; going on with %d", len(chosen), batch_size)
            elif move_to_cpu():
                logger.warning("out of memory with a single item; the model moves to the CPU and will be slower")
            else:
                raise
            continue
        results.update(zip(chosen, answers, strict=True))
        start += len(chosen)
    return [results[at] for at in range(len(items))]


def _alike(chosen: list[int], lengths: list[int]) -> list[int]:
    """Keep the first items, the longest ones, up to where padding the next one would cost more than a new batch."""
    for count, length in enumerate(lengths):
        if count * lengths[0] >= _BUSY_TOKENS and length < _LEAST_FILLED * lengths[0]:
            return chosen[:count]
    return chosen
