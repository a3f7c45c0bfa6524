"""Likelihood of continuations under a causal language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .batching import run_in_batches
from .loading import LoadedLLM

__all__ = ["ScoredPair", "score_pairs"]


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """A continuation and the context it is judged after."""

    context: str
    continuation: str


@dataclass(frozen=True, slots=True)
class _Row:
    token_ids: list[int]
    num_scored: int


def score_pairs(loaded: LoadedLLM, pairs: Sequence[ScoredPair], batch_size: int) -> list[float]:
    """Return the mean log-probability of each continuation's tokens; the caller holds the model's lock."""
    return run_in_batches(
        [_row(loaded, pair) for pair in pairs],
        batch_size,
        lambda rows: _forward(loaded, rows),
        loaded.move_to_cpu,
        lambda row: len(row.token_ids),
    )


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


def _forward(loaded: LoadedLLM, rows: Sequence[_Row]) -> list[float]:
    import torch

    inputs = loaded.tokenizer.pad({"input_ids": [row.token_ids for row in rows]}, return_tensors="pt")
    mask = inputs["attention_mask"]
    # Rows are padded on the left, so all continuations end together and only the last logits are needed.
    longest = max(row.num_scored for row in rows)
    targets = inputs["input_ids"][:, -longest:].to(loaded.device)
    with torch.inference_mode():
        logits = loaded.model(
            input_ids=inputs["input_ids"].to(loaded.device),
            attention_mask=mask.to(loaded.device),
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0).to(loaded.device),
            logits_to_keep=longest + 1,
            use_cache=False,
        ).logits[:, :-1]
        taken = logits.float().gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        likelihoods = (taken - logits.float().logsumexp(-1)).cpu()
    return [float(line[longest - row.num_scored :].mean()) for line, row in zip(likelihoods, rows, strict=True)]
