"""Retriever: a question to ranked hits of any layers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import BlankTextError, DimensionError, InvalidInputError
from fluxmem_local.graph import Node
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM
from fluxmem_local.memory_store import MemoryStore, PastStore, replaced_since
from fluxmem_local.storage.checks import check_text
from fluxmem_local.storage.filters import check_filters
from fluxmem_local.text import is_blank
from fluxmem_local.types import FloatArray, Layer, Scope

from .episodic import retrieve_episodes, similar_tasks
from .experience import learn
from .explaining import explain
from .filters import AsOf, View, times_of
from .fusion import rank
from .hits import Hit
from .procedural import inherit_skills, retrieve_skills
from .query import Query
from .ranking import signal_weights
from .semantic import retrieve_facts
from .shelf import CaseShelf

__all__ = ["Retriever"]

# Past tasks that one question learns from, the most similar ones. Many: of a task that is done each day, the one day
# on which its memory was repaired must be among them.
_SIMILAR_TASKS = 256
# A task that is less similar than the threshold by up to this much is not the same, but may be the same need.
_RELATED_BELOW = 0.25
# Related ones are asked where fewer than this many are known that are alike, and so many are enough.
_RELATED_TASKS = 32


class Retriever:
    """Finds what a memory holds on a question.

    ``embedder`` None searches by words only. ``llm`` None, ``llm_weight`` 0 or ``verify=False`` rank without
    verification.
    """

    def __init__(
        self, store: MemoryStore, embedder: BaseEmbedder | None, llm: BaseLLM | None, config: FluxMemConfig
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.llm = llm
        self.config = config
        self._cases = CaseShelf(store, self._embed)

    async def retrieve(
        self,
        query: str,
        *,
        top_k: int = 5,
        layers: Sequence[Layer | str] = (Layer.SEMANTIC,),
        scope: Scope | None = None,
        filters: Mapping[str, Any] | None = None,
        as_of: AsOf = None,
        verify: bool = True,
        trial_of: str | None = None,
        exclude: Collection[str] = (),
        drop_dispensable: bool = False,
        with_explanation: bool = False,
    ) -> list[Hit]:
        """Return the ``top_k`` best nodes of all ``layers`` together, best first.

        Args:
            query: what is asked.
            top_k: hits at most.
            layers: where to look.
            scope: who asks; None sees everything.
            filters: conditions on metadata; see ``storage.filters.matching``.
            as_of: the moment the question is about; None: now, and "any": whenever.
            verify: let the language model read the best candidates.
            trial_of: id of the episode whose unfinished reshapes are visible too.
            exclude: ids that must not be returned.
            drop_dispensable: leave out what misled similar tasks, in place of ranking it last.
            with_explanation: say of each hit what its place comes from.

        Raises:
            BlankTextError: the query has no visible character.
            InvalidInputError: ``top_k`` under 1, an unknown layer, or filters or a time that cannot be read.
            DimensionError: the embedder gave a vector of another size than it says.
        """
        wanted = _layers(layers)
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
            raise InvalidInputError(f"top_k={top_k!r} is no number of hits; give 1 or more")
        then = await self.then(as_of)
        asked = await then.prepare(query, scope=scope, filters=filters, as_of=as_of, trial_of=trial_of, exclude=exclude)
        hits: list[Hit] = []
        for layer in wanted:
            hits += await then.search_layer(layer, asked, top_k=top_k, verify=verify, drop_dispensable=drop_dispensable)
        order = rank([hit.node.id for hit in hits], np.array([hit.score for hit in hits], np.float32))
        best = [hits[position] for position in order[:top_k]]
        return explain(then.store, asked, best, signal_weights(self.config)) if with_explanation else best

    async def then(self, as_of: AsOf) -> Retriever:
        """Return a retriever on the memory with the contents that it had at a moment; this one when it had the same.

        Raises:
            InvalidInputError: ``as_of`` names no time.
        """
        known_at = times_of(as_of)["known_at"]
        replaced = {} if known_at is None else replaced_since(self.store, known_at)
        if not replaced:
            return self
        bare = [id for id, past in replaced.items() if past.embedding is None]
        vectors = await self._embed([replaced[id].content for id in bare]) if bare else []
        replaced |= {id: replace(replaced[id], embedding=vector) for id, vector in zip(bare, vectors, strict=True)}
        return Retriever(PastStore(self.store, replaced), self.embedder, self.llm, self.config)

    async def prepare(
        self,
        query: str,
        *,
        task: str | None = None,
        scope: Scope | None = None,
        filters: Mapping[str, Any] | None = None,
        as_of: AsOf = None,
        trial_of: str | None = None,
        exclude: Collection[str] = (),
    ) -> Query:
        """Embed a question and gather what similar past tasks taught, for the searches that follow.

        Args:
            query: what is asked.
            task: the task behind the question: past tasks may be like it or like the question; None: the question.
            scope: who asks; None sees everything.
            filters: conditions on metadata.
            as_of: the moment the question is about; None: now, and "any": whenever.
            trial_of: id of the episode whose unfinished reshapes are visible too.
            exclude: ids that must not be returned.

        Raises:
            BlankTextError: the query has no visible character.
            InvalidInputError: the query is no text.
            DimensionError: the embedder gave a vector of another size than it says.
        """
        check_text(query, "the query")
        if is_blank(query):
            raise BlankTextError(f"query={query!r} is blank; ask with at least one visible character")
        view = View(scope=scope, filters=filters, trial_of=trial_of, exclude=frozenset(exclude), **times_of(as_of))
        check_filters(filters)
        texts = [query] if task is None or task == query or is_blank(task) else [query, task]
        vectors = await self._embed(texts)
        # Filters and exclusions are about the answer; a past task teaches even if it is not wanted itself.
        seen = View(scope=scope)
        asked = [Query(text=text, vector=vector, view=seen) for text, vector in zip(texts, vectors, strict=True)]
        threshold = self.config.interference_similarity_threshold
        related = threshold - _RELATED_BELOW
        tasks = similar_tasks(self.store, asked, count=_SIMILAR_TASKS, threshold=threshold)
        if len(tasks) < _RELATED_TASKS:
            tasks = similar_tasks(self.store, asked, count=_RELATED_TASKS, threshold=related)
        experience = learn(self.store, tasks, related, threshold)
        return Query(
            text=query,
            vector=vectors[0],
            task=texts[-1],
            task_vector=vectors[-1],
            view=view,
            experience=experience,
        )

    async def search_layer(
        self, layer: Layer, query: Query, *, top_k: int, verify: bool = True, drop_dispensable: bool = False
    ) -> list[Hit]:
        """Return the ``top_k`` best nodes of one layer, best first."""
        if layer is Layer.EPISODIC:
            return retrieve_episodes(
                self.store, query, top_k=top_k, config=self.config, drop_dispensable=drop_dispensable
            )
        if layer is Layer.PROCEDURAL:
            return retrieve_skills(
                self.store, query, top_k=top_k, config=self.config, drop_dispensable=drop_dispensable
            )
        return await retrieve_facts(
            self.store,
            query,
            top_k=top_k,
            config=self.config,
            llm=self.llm if verify else None,
            drop_dispensable=drop_dispensable,
        )

    async def inherit_skills(self, query: Query, episodes: Sequence[Hit]) -> list[Hit]:
        """Return the skills that the retrieved episodes vouch for, and a few by their own words, best first.

        Each shows the cases that fit the question.
        """
        hits = inherit_skills(self.store, query, episodes, config=self.config)
        return [replace(hit, node=await self._cases.present(query, hit.node)) for hit in hits]

    def get_many(self, ids: Sequence[str]) -> list[Node]:
        """Get nodes by id, in the asked order.

        Raises:
            NotFoundError: the memory holds no such id.
        """
        return self.store.get_many(ids)

    async def _embed(self, texts: list[str]) -> list[FloatArray | None]:
        if self.embedder is None or self.store.dimension is None:
            return [None] * len(texts)
        # One call a step, whatever its number of texts.
        given = (
            [await self.embedder.embed_text(texts[0])] if len(texts) == 1 else await self.embedder.embed_batch(texts)
        )
        try:
            embedded = np.asarray(given, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise DimensionError(f"the embedder gave no array of numbers for {len(texts)} texts: {error}") from error
        expected = (len(texts), self.store.dimension)
        if embedded.shape != expected or not np.isfinite(embedded).all():
            raise DimensionError(
                f"the embedder gave vectors of shape {embedded.shape} for {len(texts)} texts, with "
                f"{np.count_nonzero(~np.isfinite(embedded))} values that are no numbers; this memory needs {expected}"
            )
        norms = np.linalg.norm(embedded, axis=1, keepdims=True)
        # A vector of zeros, as of a question without a known word, is near to nothing: words alone count then.
        return [row / norm if norm > 0 else None for row, norm in zip(embedded, norms[:, 0], strict=True)]


def _layers(layers: Sequence[Layer | str]) -> list[Layer]:
    if not isinstance(layers, Iterable):
        raise InvalidInputError(f"layers={layers!r} is no list of layers; give for example ['semantic']")
    given = [layers] if isinstance(layers, (str, Layer)) else list(layers)
    if not given:
        raise InvalidInputError(f"layers is empty; give one or more of {', '.join(layer.value for layer in Layer)}")
    try:
        return list(dict.fromkeys(Layer(layer) for layer in given))
    except ValueError:
        raise InvalidInputError(
            f"layers={layers!r} names an unknown layer; known are {', '.join(layer.value for layer in Layer)}"
        ) from None
