"""FluxMemConfig: every number a user may care about, with its range beside it (spec section 7)."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields
from typing import Any

from fluxmem_local.errors import ConfigError
from fluxmem_local.retention import RetentionRule

__all__ = ["FluxMemConfig"]


def _number(default: float | int | None, low: float, high: float, about: str, *, optional: bool = False) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "about": about, "optional": optional})


def _word(default: str, about: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"choices": choices, "about": about})


def _rules(about: str) -> Any:
    return field(default=(), metadata={"allowed": "tables", "about": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class FluxMemConfig:
    """Settings of one agent. Unknown names and values out of range raise ConfigError that names them.

    The table in the README is generated from the fields' metadata.
    """

    # Stage I
    top_k_semantic: int = _number(5, 1, 1000, "facts in a context")
    top_k_episodic: int = _number(3, 0, 1000, "episodes in a context")
    dense_weight: float = _number(1.0, 0, 100, "weight of the embedding similarity")
    bm25_weight: float = _number(0.5, 0, 100, "weight of BM25")
    llm_weight: float = _number(0.3, 0, 100, "weight of the LLM's verification; 0 makes no LLM call")
    context_weight: float = _number(0.5, 0, 100, "weight of BM25 over a fact with its neighbours in the source")
    context_reach: float = _number(140.0, 1, 10_000, "tokens over which a neighbour's share falls to 1/e")
    statement_weight: float = _number(0.4, 0, 100, "weight of stating something: no scrap, no question")
    speaker_weight: float = _number(0.2, 0, 100, "weight of being said by someone whom the question names")
    date_weight: float = _number(0.4, 0, 100, "weight of being near in time to a date that the question names")
    graph_weight: float = _number(1.0, 0, 100, "weight of learned connectivity")
    trust_weight: float = _number(0.05, 0, 100, "what an agent's own word loses until it is confirmed")
    candidate_factor: int = _number(4, 1, 100, "each signal proposes top_k times this many candidates")
    context_token_budget: int = _number(2048, 64, 1_000_000, "tokens of a serialised context at most")
    # Stage II
    max_refinement_rounds: int = _number(5, 0, 100, "T: repairs of one step at most")
    expand_top_k: int = _number(3, 1, 100, "nodes one expansion adds at most")
    prune_similarity_threshold: float = _number(0.3, -1, 1, "cosine to the step under which a link counts as clutter")
    interference_similarity_threshold: float = _number(0.6, -1, 1, "cosine of two tasks from which outcomes carry over")
    # Stage III
    num_clusters: int | None = _number(None, 1, 100_000, "None: chosen by silhouette", optional=True)
    max_consolidation_rounds: int = _number(5, 1, 100, "versions tried for one skill at most")
    pems_threshold: float = _number(0.01, 0, 1, "change of PEMS under which a skill counts as mature")
    min_support: int = _number(3, 1, 1000, "successful episodes a skill needs")
    # Models
    llm_model: str = _word("smollm2-135m-instruct", "registry name, directory or .gguf file; 'none' for no LLM")
    embedding_model: str = _word("all-minilm-l6-v2", "registry name or directory; 'none' for lexical search only")
    embedding_dimension: int | None = _number(None, 1, 65_536, "None: read from the embedder", optional=True)
    temperature: float = _number(0.7, 0, 2, "of free generation")
    max_new_tokens: int = _number(256, 1, 32_768, "of one generated answer")
    device: str = _word("auto", "auto takes CUDA, then MPS, then the CPU; also cuda:1 and the like")
    dtype: str = _word("auto", "weights' number type", ("auto", "float32", "bfloat16", "float16"))
    embedding_batch_size: int = _number(32, 1, 4096, "texts encoded at once")
    llm_batch_size: int = _number(16, 1, 1024, "prompts run at once")
    # Storage
    chunk_size: int = _number(512, 1, 1_000_000, "characters of a chunk at most")
    lock_timeout_s: float = _number(30.0, 0, 86_400, "seconds a writer waits for another one")
    retention: tuple[RetentionRule, ...] = _rules("what a consolidation forgets, by scope, age and number")
    seed: int = _number(0, 0, 2**32 - 1, "of clustering and sampling")

    def __new__(cls, *args: Any, **settings: Any) -> FluxMemConfig:
        """Refuse unknown names before the generated __init__, whose TypeError would not say what is allowed."""
        known = [spec.name for spec in fields(cls)]
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise ConfigError(
                    f"unknown setting {name!r}; " + (f"did you mean {near[0]!r}?" if near else "see the README's table")
                )
        return object.__new__(cls)

    def __post_init__(self) -> None:
        given: Any = self.retention
        if isinstance(given, str) or not isinstance(given, (list, tuple)):
            raise ConfigError(f"retention={given!r:.200} must list rules, as [{{'max_age': '90d'}}]")
        object.__setattr__(self, "retention", tuple(RetentionRule.coerce(rule) for rule in given))
        for spec in fields(self):
            if "allowed" in spec.metadata:
                continue
            _check(spec.name, getattr(self, spec.name), dict(spec.metadata), type(spec.default))


def _check(name: str, value: Any, rule: dict[str, Any], default_type: type) -> None:
    if "choices" in rule:
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{name}={value!r} must be a non-blank string")
        if rule["choices"] and value not in rule["choices"]:
            raise ConfigError(f"{name}={value!r} is not one of {', '.join(rule['choices'])}")
        return
    if value is None and rule["optional"]:
        return
    whole = default_type is int or rule["optional"]
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise ConfigError(f"{name}={value!r} must be a {'whole number' if whole else 'number'}")
    if not rule["low"] <= value <= rule["high"]:
        raise ConfigError(f"{name}={value!r} is out of range; allowed is {rule['low']:g} to {rule['high']:g}")
