"""TransformersLLM: a local causal language model behind BaseLLM (spec section 8)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fluxmem_local.errors import BlankTextError, InvalidInputError, ModelError, ModelOutputError
from fluxmem_local.types import FloatArray, JsonObject

from .batching import run_in_batches
from .decoding import RepetitionStop, RowSampler, repeats
from .fitting import fit_prompt
from .loading import LoadedLLM, load_llm, prepare_model
from .prompted import PromptedLLM
from .registry import ModelEntry, check_files, locate_model
from .scoring import ScoredPair, choice_likelihoods, score_pairs
from .structured import grammar, schema_key, typed_json
from .verification import DEFAULT_SCALES, Scale
from .worker import ModelWorker

__all__ = ["TransformersLLM"]

# Room for the chat template's own tokens around system prompt and prompt.
_TEMPLATE_TOKENS = 64
_FEWEST_PROMPT_TOKENS = 32


@dataclass(frozen=True, slots=True)
class _Prompt:
    text: str
    system: str | None
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class _Answer:
    """``ended`` is False for an answer that was cut off; one that was stopped for repetition did end."""

    text: str
    ended: bool


_Encoded: TypeAlias = tuple[_Prompt, list[int]]


class TransformersLLM(PromptedLLM):
    """Runs a local causal language model with its chat template; nothing leaves the machine.

    Making one only looks for the files; the weights are loaded at the first call. Calls run in one thread a model, so
    the event loop goes on; calls that wait together become one padded batch. Memory in a prompt stands between
    ``<context>`` and ``</context>`` and is shortened when the prompt is longer than the model takes.

    Args:
        model: registry name, folder or .gguf file.
        device: "auto" takes CUDA, then MPS, then the CPU.
        dtype: "auto", "float32", "bfloat16" or "float16".
        batch_size: prompts run at once; halved when the device's memory is full.
        max_new_tokens: tokens of one answer at most.
        seed: of sampling; the same calls in the same order give the same answers.
        system_prompt: used where a call gives none; None: the registered one.

    Raises:
        ModelNotFoundError: no such model on this machine.
        ModelIntegrityError: a registered file is missing or changed.
        InvalidInputError: ``batch_size`` or ``max_new_tokens`` under 1.
    """

    def __init__(
        self,
        model: str | Path = "smollm2-135m-instruct",
        *,
        device: str = "auto",
        dtype: str = "auto",
        batch_size: int = 16,
        max_new_tokens: int = 256,
        seed: int = 0,
        system_prompt: str | None = None,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("max_new_tokens", max_new_tokens)):
            if value < 1:
                raise InvalidInputError(f"{name}={value} is too small; give 1 or more")
        located = locate_model(model)
        if located.entry.kind != "llm":
            raise ModelError(
                f"model {str(model)!r} is of kind {located.entry.kind!r}; give a language model, "
                "as smollm2-135m-instruct"
            )
        check_files(located)
        super().__init__(
            max_new_tokens=max_new_tokens,
            verification=located.entry.verification,
            scale=_scale(located.entry),
            attribution=located.entry.attribution,
        )
        self.writes_memories = located.entry.writing
        self.attributes_failures = located.entry.attributing
        if located.entry.attribution_accuracy is not None:
            self.attribution_accuracy = located.entry.attribution_accuracy
        self._model = model
        self._device = device
        self._dtype = dtype
        self._batch_size = batch_size
        self._system_prompt = system_prompt or located.entry.system_prompt
        self._context_length = located.entry.context_length
        self._seed = seed
        self._num_sampled = 0
        self._loaded: LoadedLLM | None = None
        self._loading = threading.Lock()
        self._worker = ModelWorker(self._run, "llm")

    @cached_property
    def _counter(self) -> Any:
        # A tokenizer of its own: the loaded one is in use by the worker's thread, and loading it takes seconds.
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(prepare_model(self._model).directory / "tokenizer.json"))

    def count_tokens(self, text: str) -> int:
        """Count the model's tokens of a text."""
        return len(self._counter.encode(_encodable(text), add_special_tokens=False).ids)

    def prompt_budget(self, max_new_tokens: int) -> int:
        """Tokens that a prompt may have beside an answer of ``max_new_tokens``."""
        return max(_FEWEST_PROMPT_TOKENS, (self._context_length or 2048) - max_new_tokens - _TEMPLATE_TOKENS)

    async def generate(self, prompt: str, system_prompt: str | None = None, temperature: float = 0.7) -> str:
        """Answer a prompt in free text of at most ``max_new_tokens`` tokens; temperature 0 is greedy.

        An answer that falls into repetition is stopped there.

        Raises:
            BlankTextError: the prompt is blank.
            InvalidInputError: the prompt is longer than the model takes, even without its memory.
        """
        return (await self.generate_batch([prompt], system_prompt, temperature))[0]

    async def generate_batch(
        self, prompts: Sequence[str], system_prompt: str | None = None, temperature: float = 0.7
    ) -> list[str]:
        """Answer n prompts as padded batches; the answers stand in the prompts' order.

        Raises:
            BlankTextError: a prompt is blank.
            InvalidInputError: a prompt is longer than the model takes, even without its memory.
        """
        answers = await self._answers(prompts, system_prompt, temperature, self._max_new_tokens, None)
        return [answer.text for answer in answers]

    async def complete(self, prompt: str, max_new_tokens: int) -> str:
        """Answer a prompt greedily and to its end.

        Raises:
            ModelOutputError: the answer was cut off at ``max_new_tokens``.
        """
        (answer,) = await self._answers([prompt], None, 0.0, max_new_tokens, None)
        if not answer.ended:
            raise ModelOutputError(
                f"the model's answer did not end within {max_new_tokens} tokens ({answer.text[:60]!r}); "
                "raise max_new_tokens or use a larger model"
            )
        return answer.text

    async def generate_json(self, prompt: str, schema: Mapping[str, Any], max_new_tokens: int) -> JsonObject:
        """Answer a prompt with an object of the given JSON schema; the model can write nothing else.

        Raises:
            ModelOutputError: the answer was cut off at ``max_new_tokens``.
        """
        (answer,) = await self._answers([prompt], None, 0.0, max_new_tokens, schema_key(schema))
        return typed_json(answer.text)

    async def score_batch(self, contexts: Sequence[str], continuations: Sequence[str]) -> FloatArray:
        """Say how likely each continuation is after its context, in padded forward passes.

        Args:
            contexts: n texts; an empty one stands for nothing known. The beginning of one that is too long is left out.
            continuations: n texts, not blank.

        Returns:
            Mean log-probability of a continuation's tokens, shape ``(n,)``, at most 0.
        """
        pairs = [ScoredPair(*pair) for pair in zip(contexts, continuations, strict=True)]
        if not all(pair.continuation.strip() for pair in pairs):
            raise BlankTextError("a blank continuation has no likelihood; give text with a visible character")
        return np.asarray(await self._worker.submit(("score",), pairs) if pairs else [], dtype=np.float32)

    async def choose_batch(self, prompts: Sequence[str], choices: Sequence[Sequence[str]]) -> FloatArray:
        """Say how likely the model begins its answer to each of n prompts with each choice, in log-probability.

        One padded forward pass; a beginning that all prompts share is read once.

        Returns:
            Shape ``(n, choices)``.

        Raises:
            InvalidInputError: a prompt is longer than the model takes.
        """
        asked = tuple(tuple(spellings) for spellings in choices)
        items = [_Prompt(prompt, self._system_prompt, 0.0, 0) for prompt in prompts]
        rows = await self._worker.submit(("choose", asked), items) if items else []
        return np.asarray(rows, np.float32).reshape(len(prompts), len(asked))

    def close(self) -> None:
        """End the thread and let go of the weights; a later call loads them again."""
        self._worker.close()
        self._loaded = None

    async def _answers(
        self,
        prompts: Sequence[str],
        system_prompt: str | None,
        temperature: float,
        max_new_tokens: int,
        schema: str | None,
    ) -> list[_Answer]:
        if not all(prompt.strip() for prompt in prompts):
            raise BlankTextError("a blank prompt has no answer; give text with a visible character")
        if temperature < 0:
            raise InvalidInputError(f"temperature={temperature} is below 0; 0 is greedy, 0.7 is usual")
        if not prompts:
            return []
        items = []
        for prompt in prompts:
            items.append(_Prompt(prompt, system_prompt or self._system_prompt, temperature, self._next_seed()))
        return await self._worker.submit(("generate", max_new_tokens, schema), items)

    def _next_seed(self) -> int:
        # A counter, not the prompt's hash: asking again must be able to give another answer.
        self._num_sampled += 1
        # Hashed to 32 bits, which is all that torch's generator on the CPU takes of a seed.
        digest = hashlib.sha256(f"{self._seed}/{self._num_sampled}".encode()).digest()
        return int.from_bytes(digest[:4], "big")

    def _run(self, kind: tuple[Any, ...], items: list[Any]) -> list[Any]:
        loaded = self._load()
        with loaded.lock:
            if kind[0] == "score":
                return score_pairs(loaded, items, self._batch_size)
            if kind[0] == "choose":
                # A spelling of several tokens is told from the others by its first one.
                first = [
                    sorted({loaded.tokenizer(text, add_special_tokens=False)["input_ids"][0] for text in spellings})
                    for spellings in kind[1]
                ]
                prompts = [self._encode(loaded, item, 1) for item in items]
                return choice_likelihoods(loaded, prompts, first, self._batch_size)
            _, max_new_tokens, schema = kind
            encoded = [(item, self._encode(loaded, item, max_new_tokens)) for item in items]
            return run_in_batches(
                encoded,
                self._batch_size,
                lambda batch: self._generate(loaded, batch, max_new_tokens, schema),
                loaded.move_to_cpu,
                lambda item: len(item[1]),
            )

    def _load(self) -> LoadedLLM:
        with self._loading:
            if self._loaded is None:
                self._loaded = load_llm(self._model, self._device, self._dtype)
            return self._loaded

    def _encode(self, loaded: LoadedLLM, prompt: _Prompt, max_new_tokens: int) -> list[int]:
        room = loaded.context_length - max_new_tokens

        def encode(text: str) -> list[int]:
            return _chat(loaded.tokenizer, text, prompt.system)

        return encode(fit_prompt(prompt.text, room, lambda text: len(encode(text))))

    def _generate(
        self, loaded: LoadedLLM, batch: Sequence[_Encoded], max_new_tokens: int, schema: str | None
    ) -> list[_Answer]:
        import torch
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

        inputs = loaded.tokenizer.pad({"input_ids": [ids for _, ids in batch]}, return_tensors="pt").to(loaded.device)
        length = inputs["input_ids"].shape[1]
        processors: list[Any] = [
            RowSampler([prompt.temperature for prompt, _ in batch], [prompt.seed for prompt, _ in batch])
        ]
        if schema is not None:
            processors.append(grammar(loaded, schema, len(batch)))
        # A grammar bounds repetition by itself, and JSON that is stopped is no JSON.
        stops = [] if schema else [RepetitionStop(length)]
        # A fresh one: what a model's folder says of sampling would be mixed with what was asked for.
        config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,
            eos_token_id=loaded.model.generation_config.eos_token_id or loaded.tokenizer.eos_token_id,
            pad_token_id=loaded.tokenizer.pad_token_id,
        )
        with torch.inference_mode():
            outputs = loaded.model.generate(
                **inputs,
                generation_config=config,
                logits_processor=LogitsProcessorList(processors),
                stopping_criteria=StoppingCriteriaList(stops),
            )
        answers = outputs[:, length:].cpu()
        texts = loaded.tokenizer.batch_decode(answers, skip_special_tokens=True)
        ends = set(np.atleast_1d(config.eos_token_id).tolist())
        return [
            _Answer(text.strip(), not ends.isdisjoint(ids) or repeats(ids))
            for text, ids in zip(texts, answers.tolist(), strict=True)
        ]


def _scale(entry: ModelEntry) -> Scale:
    usual = DEFAULT_SCALES[entry.verification]
    return Scale(
        usual.neutral if entry.verification_neutral is None else entry.verification_neutral,
        usual.spread if entry.verification_spread is None else entry.verification_spread,
    )


def _chat(tokenizer: Any, prompt: str, system: str | None) -> list[int]:
    prompt, system = _plain(tokenizer, prompt), _plain(tokenizer, system or "")
    if tokenizer.chat_template is None:
        return list(tokenizer(f"{system}\n\n{prompt}\n\n" if system else f"{prompt}\n\n")["input_ids"])
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _plain(tokenizer: Any, text: str) -> str:
    """Break the model's control tokens in a text, which could end the user's turn and open another one."""
    text = _encodable(text)
    for token in (str(added) for added in tokenizer.added_tokens_decoder.values() if added.special):
        text = text.replace(token, f"{token[0]} {token[1:]}")
    return text


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
