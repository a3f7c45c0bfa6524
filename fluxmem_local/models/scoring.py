"""Likelihood of continuations, and of single next words, under a causal language model."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .batching import run_in_batches
from .loading import LoadedLLM

__all__ = ["ScoredPair", "choice_likelihoods", "score_pairs"]

# A shorter beginning in common costs less than a pass of its own.
_SHARED_TOKENS = 32


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """A continuation and the context it is judged after."""

    context: str
    continuation: str


@dataclass(frozen=True, slots=True)
class _Row:
    """Tokens of which the last ``num_scored`` are judged; at least one stands before them."""

    token_ids: list[int]
    num_scored: int


def score_pairs(loaded: LoadedLLM, pairs: Sequence[ScoredPair], batch_size: int) -> list[float]:
    """Return the mean log-probability of each continuation's tokens; the caller holds the model's lock.

    A long beginning that several contexts have in common is read once.
    """

    def run(rows: Sequence[_Row]) -> list[float]:
        logits, targets = _forward(loaded, rows)
        likelihoods = (logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)).cpu()
        longest = likelihoods.shape[1]
        return [float(line[longest - row.num_scored :].mean()) for line, row in zip(likelihoods, rows, strict=True)]

    return _in_groups(loaded, [_row(loaded, pair) for pair in pairs], batch_size, run)


def choice_likelihoods(
    loaded: LoadedLLM, prompts: Sequence[Sequence[int]], choices: Sequence[Sequence[int]], batch_size: int
) -> list[list[float]]:
    """Return the log-probability of each choice as the next token of each prompt; the caller holds the model's lock.

    Args:
        loaded: the model.
        prompts: n prompts as token ids.
        choices: for each choice the tokens that stand for it; their probabilities are added.
        batch_size: prompts run at once.
    """

    def run(rows: Sequence[_Row]) -> list[list[float]]:
        logs = _forward(loaded, rows)[0][:, -1].log_softmax(-1)
        columns: list[list[float]] = [logs[:, list(tokens)].logsumexp(-1).tolist() for tokens in choices]
        return [list(row) for row in zip(*columns, strict=True)]

    # The token that is judged is any: only what the model expects in its place is read.
    rows = [_Row([*ids, loaded.tokenizer.pad_token_id], 1) for ids in prompts]
    return _in_groups(loaded, rows, batch_size, run)


def _in_groups(loaded: LoadedLLM, rows: Sequence[_Row], batch_size: int, run: Any) -> list[Any]:
    """Run rows that begin alike together, each group with its beginning read once, and all others as one group."""
    by_beginning: dict[tuple[int, ...], list[int]] = {}
    for at, row in enumerate(rows):
        by_beginning.setdefault(tuple(row.token_ids[: -row.num_scored - 1][:_SHARED_TOKENS]), []).append(at)
    groups = [places for start, places in by_beginning.items() if len(start) == _SHARED_TOKENS and len(places) > 1]
    grouped = {at for places in groups for at in places}
    results: dict[int, Any] = {}
    for places in (*groups, [at for at in range(len(rows)) if at not in grouped]):
        answers = run_in_batches(
            [rows[at] for at in places],
            batch_size,
            run,
            loaded.move_to_cpu,
            lambda row: len(row.token_ids),
            on_cpu=loaded.device == "cpu",
        )
        results.update(zip(places, answers, strict=True))
    return [results[at] for at in range(len(rows))]


def _row(loaded: LoadedLLM, pair: ScoredPair) -> _Row:
    tokenizer = loaded.tokenizer
    context, continuation = (
        tokenizer(text.encode("utf-8", "replace").decode(), add_special_tokens=False)["input_ids"] if text else []
        for text in (pair.context, pair.continuation)
    )
    start = [tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id]
    continuation = continuation[: loaded.context_length - 1]
    room = loaded.context_length - 1 - len(continuation)
    return _Row(start + context[max(0, len(context) - room) :] + continuation, len(continuation))


def _forward(loaded: LoadedLLM, rows: Sequence[_Row]) -> tuple[Any, Any]:
    """Run rows as one padded batch.

    Returns:
        Logits ``(n, longest, vocabulary)`` and the tokens ``(n, longest)`` at the last places, where longest
        is the most tokens that a row scores.
    """
    import torch

    shared = _shared_tokens(rows)
    cache = _read_once(loaded, rows[0].token_ids[:shared], len(rows)) if shared else None
    inputs = loaded.tokenizer.pad({"input_ids": [row.token_ids[shared:] for row in rows]}, return_tensors="pt")
    mask = torch.cat([torch.ones(len(rows), shared, dtype=torch.long), inputs["attention_mask"]], dim=1)
    # Rows are padded on the left, so all continuations end together and only the last logits are needed.
    longest = max(row.num_scored for row in rows)
    with torch.inference_mode():
        logits = loaded.model(
            input_ids=inputs["input_ids"].to(loaded.device),
            attention_mask=mask.to(loaded.device),
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0)[:, shared:].to(loaded.device),
            logits_to_keep=longest + 1,
            use_cache=cache is not None,
            **({_cache_name(loaded): cache} if cache is not None else {}),
        ).logits[:, :-1]
        return logits.float(), inputs["input_ids"][:, -longest:].to(loaded.device)


def _shared_tokens(rows: Sequence[_Row]) -> int:
    """Count the tokens that all rows begin with, if reading them once pays; a row keeps one before what it scores."""
    first, *others = (row.token_ids[: -row.num_scored - 1] for row in rows)
    shared = 0
    for at, token in enumerate(first):
        if any(at >= len(other) or other[at] != token for other in others):
            break
        shared = at + 1
    return shared if others and shared >= _SHARED_TOKENS else 0


def _read_once(loaded: LoadedLLM, token_ids: Sequence[int], num_rows: int) -> Any:
    """Read a beginning and return its keys and values for each of the rows."""
    import torch
    from transformers import DynamicCache

    cache = DynamicCache()
    with torch.inference_mode():
        loaded.model(
            input_ids=torch.tensor([token_ids], device=loaded.device),
            use_cache=True,
            logits_to_keep=1,
            **{_cache_name(loaded): cache},
        )
    cache.batch_repeat_interleave(num_rows)
    return cache


def _cache_name(loaded: LoadedLLM) -> str:
    # transformers renamed the argument in version 5.
    return "cache" if "cache" in inspect.signature(loaded.model.forward).parameters else "past_key_values"
