"""Likelihood of continuations under a causal language model."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from .batching import run_in_batches
from .loading import LoadedLLM

__all__ = ["ScoredPair", "score_pairs"]


# A shorter context costs less than a pass of its own.
_SHARED_TOKENS = 32


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
    """Return the mean log-probability of each continuation's tokens; the caller holds the model's lock.

    Continuations of one long context are scored after a single pass over it.
    """
    rows = [_row(loaded, pair) for pair in pairs]
    by_prefix: dict[tuple[int, ...], list[int]] = {}
    for at, row in enumerate(rows):
        by_prefix.setdefault(tuple(row.token_ids[: -row.num_scored]), []).append(at)
    scores: dict[int, float] = {}
    for prefix, places in by_prefix.items():
        if len(prefix) >= _SHARED_TOKENS and len(places) > 1:
            answers = run_in_batches(
                [rows[at] for at in places],
                batch_size,
                lambda batch: _forward_shared(loaded, batch),
                loaded.move_to_cpu,
                lambda row: row.num_scored,
            )
            scores.update(zip(places, answers, strict=True))
    single = [at for at in range(len(rows)) if at not in scores]
    answers = run_in_batches(
        [rows[at] for at in single],
        batch_size,
        lambda batch: _forward(loaded, batch),
        loaded.move_to_cpu,
        lambda row: len(row.token_ids),
    )
    scores.update(zip(single, answers, strict=True))
    return [scores[at] for at in range(len(rows))]


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


def _forward_shared(loaded: LoadedLLM, rows: Sequence[_Row]) -> list[float]:
    """Score continuations of one context: the context is read once and its keys and values are shared."""
    import torch
    from transformers import DynamicCache

    prefix = rows[0].token_ids[: -rows[0].num_scored]
    endings = [row.token_ids[-row.num_scored :] for row in rows]
    longest = max(len(ending) for ending in endings)
    pad = loaded.tokenizer.pad_token_id
    targets = torch.tensor([ending + [pad] * (longest - len(ending)) for ending in endings], device=loaded.device)
    told = torch.tensor([[1] * len(ending) + [0] * (longest - len(ending)) for ending in endings], device=loaded.device)
    # transformers renamed the argument in version 5.
    parameters = inspect.signature(loaded.model.forward).parameters
    name = "cache" if "cache" in parameters else "past_key_values"
    cache = DynamicCache()
    with torch.inference_mode():
        read = loaded.model(
            input_ids=torch.tensor([prefix], device=loaded.device),
            use_cache=True,
            logits_to_keep=1,
            **{name: cache},
        )
        cache.batch_repeat_interleave(len(rows))
        following = loaded.model(
            input_ids=targets,
            attention_mask=torch.cat([torch.ones_like(told[:, :1]).expand(-1, len(prefix)), told], dim=1),
            use_cache=True,
            **{name: cache},
        ).logits[:, :-1]
        logits = torch.cat([read.logits.expand(len(rows), -1, -1), following], dim=1).float()
        taken = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        likelihoods = (taken - logits.logsumexp(-1)).cpu()
    return [float(line[: row.num_scored].mean()) for line, row in zip(likelihoods, rows, strict=True)]
