"""Evidence: what the memory itself knows about a failed step, as numbers with names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import EpisodicNode, Node, Subgraph
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.retrieval import Retriever
from fluxmem_local.text import is_blank, tokenize
from fluxmem_local.types import FloatArray, Layer, Scope

from .feedback import specifics, trim_feedback
from .outwardness import Outwardness

__all__ = ["Evidence", "Failure", "Item", "Rival", "gather_evidence"]

# Characters of feedback that search and similarity see; models read some 256 tokens.
_FEEDBACK_CHARS = 1200
# Rounds of expansion that one search provides for.
_EXPANSIONS_AHEAD = 4
# What similar tasks taught, beside cosine and half of BM25.
_LEARNED_SHARE = 0.5
_BM25_K1, _BM25_B = 1.5, 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed round: what was to be done, what the step saw, what came of it.

    ``outside`` tells that the task function itself knows the failure to be outside of the memory.
    """

    task: str
    observation: str
    result: str
    feedback: str
    subgraph: Subgraph
    context: str
    episode_id: str
    scope: Scope
    round: int = 1
    outside: bool = False

    @property
    def doing(self) -> str:
        """What was seen and done: observation, result, feedback."""
        said = (self.observation, self.result, self.feedback)
        return "\n".join(trim_feedback(text, _FEEDBACK_CHARS) for text in said).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another item on the same subject: its id, its cosine, whether it was in the context.

    ``beside`` is the part of the cosine that does not come from both being about the task.
    """

    id: str
    similarity: float
    inside: bool
    beside: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One memory and its measures against the failure; similarities are cosines.

    ``used`` in [0, 1] tells how clearly the step followed the item: what the item says and the task does not, seen
    again in what was done. ``tied`` counts instance marks (numbers, names, paths) that neither task nor failure share.
    ``lumped`` counts the parts that the item strings together.
    """

    node: Node
    inside: bool
    to_task: float
    to_feedback: float
    to_doing: float
    to_whole: float
    lexical: float
    used: float
    shared_marks: int
    tied: int
    lumped: int
    rival: Rival | None = None
    helped: int = 0
    hurt: int = 0

    @property
    def relevance(self) -> float:
        """Dense similarity to the whole failure plus half of its BM25, as in Stage I."""
        return self.to_whole + 0.5 * self.lexical


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The items of the context and the best of those outside of it, best first.

    ``beside`` has, for each pair of items, the similarity that does not come from both being about the task.
    ``outwardness`` in [0, 1] tells how much the feedback sounds like a failure of the world outside.
    """

    inside: tuple[Item, ...]
    outside: tuple[Item, ...]
    beside: Mapping[tuple[str, str], float] = field(default_factory=dict, repr=False)
    outwardness: float = 0.0

    def item(self, id: str) -> Item | None:
        """Find an item by id."""
        return next((item for item in (*self.inside, *self.outside) if item.node.id == id), None)


async def gather_evidence(
    failure: Failure,
    *,
    store: MemoryStore,
    retriever: Retriever,
    embedder: BaseEmbedder | None,
    config: FluxMemConfig,
    exclude: Sequence[str] = (),
    outwardness: Outwardness | None = None,
) -> Evidence:
    """Measure the context's items and search the memory for others, leaving out ``exclude``."""
    feedback = trim_feedback(failure.feedback, _FEEDBACK_CHARS)
    outward = 0.0 if outwardness is None else await outwardness.of(feedback)
    query = failure.subgraph.query
    whole = f"{query}\n{trim_feedback(failure.result, _FEEDBACK_CHARS)}\n{feedback}".strip()
    inside = [node for node in failure.subgraph.nodes if node.id != failure.episode_id]
    stood_in_for = [node.variant_of for node in inside if node.variant_of is not None]
    hits = await retriever.retrieve(
        whole,
        top_k=config.expand_top_k * _EXPANSIONS_AHEAD,
        layers=tuple(Layer),
        scope=failure.scope,
        filters=None,
        verify=False,
        # Of its own trials, a task has in its context what is still on trial.
        trial_of=None,
        exclude=(*(node.id for node in inside), *stood_in_for, failure.episode_id, *exclude),
    )
    outside = [hit.node for hit in hits if not _is_running(hit.node)]
    nodes = [*inside, *outside]
    if not nodes:
        return Evidence(inside=(), outside=(), outwardness=outward)
    vectors = _vectors(nodes, store)
    similarities = await _similarities(vectors, embedder, (failure.task, feedback, failure.doing, whole))
    pairwise = vectors @ vectors.T
    beside = pairwise - np.outer(similarities[0], similarities[0])
    np.fill_diagonal(pairwise, -1.0)
    lexical = _lexical(whole, nodes)
    used = _used(nodes, failure, vectors, similarities[2])
    outcomes = store.outcomes(node_ids=[node.id for node in nodes])
    said = specifics(failure.doing) | specifics(failure.task)
    fresh = specifics(failure.doing) - specifics(failure.task)
    items = []
    for position, node in enumerate(nodes):
        marks = specifics(node.content)
        nearest = int(pairwise[position].argmax()) if len(nodes) > 1 else None
        items.append(
            Item(
                node=node,
                inside=position < len(inside),
                to_task=float(similarities[0][position]),
                to_feedback=float(similarities[1][position]),
                to_doing=float(similarities[2][position]),
                to_whole=float(similarities[3][position]),
                lexical=float(lexical[position]),
                used=float(used[position]),
                shared_marks=len(marks & fresh),
                tied=len(marks - said),
                lumped=_num_parts(node.content),
                rival=None
                if nearest is None
                else Rival(
                    id=nodes[nearest].id,
                    similarity=float(pairwise[position, nearest]),
                    inside=nearest < len(inside),
                    beside=float(beside[position, nearest]),
                ),
                helped=sum(outcome.helped for outcome in outcomes if outcome.node_id == node.id),
                hurt=sum(outcome.hurt for outcome in outcomes if outcome.node_id == node.id),
            )
        )
    learned = {hit.node.id: hit.signals.get("graph", 0.0) for hit in hits}
    found = sorted(items[len(inside) :], key=lambda item: -(item.relevance + _LEARNED_SHARE * learned[item.node.id]))
    ids = [node.id for node in nodes]
    return Evidence(
        inside=tuple(items[: len(inside)]),
        outside=tuple(found),
        beside={(one, other): float(beside[i, j]) for i, one in enumerate(ids) for j, other in enumerate(ids)},
        outwardness=outward,
    )


def _is_running(node: Node) -> bool:
    return isinstance(node, EpisodicNode) and node.status == "running"


def _vectors(nodes: Sequence[Node], store: MemoryStore) -> FloatArray:
    """Return the nodes' vectors, shape ``(n, d)``; zeros for one without, or that anyone has forgotten since."""
    known = store.present_embeddings([node.id for node in nodes])
    vectors = np.zeros((len(nodes), store.dimension or 0), dtype=np.float32)
    for place, node in enumerate(nodes):
        if (vector := known.get(node.id)) is not None:
            vectors[place] = vector
    return vectors


async def _similarities(vectors: FloatArray, embedder: BaseEmbedder | None, texts: Sequence[str]) -> list[FloatArray]:
    nothing = np.zeros(len(vectors), np.float32)
    spoken = [text for text in texts if not is_blank(text)]
    if embedder is None or not spoken or not vectors.size:
        return [nothing] * len(texts)
    rows = dict(zip(spoken, await embedder.embed_batch(spoken), strict=True))
    return [vectors @ rows[text] if text in rows else nothing for text in texts]


def _lexical(text: str, nodes: Sequence[Node]) -> FloatArray:
    """BM25 of each node, scaled by the best of all: shape ``(n,)``, in [0, 1].

    The nodes are one collection here, whatever their layers: scores of layers of unlike size cannot be compared.
    """
    documents = [Counter(tokenize(node.content)) for node in nodes]
    lengths = np.array([document.total() for document in documents], np.float32)
    scale = _BM25_K1 * (1 - _BM25_B + _BM25_B * lengths / max(1.0, float(lengths.mean())))
    scores = np.zeros(len(nodes), np.float32)
    for token in set(tokenize(text)):
        counts = np.array([document[token] for document in documents], np.float32)
        holders = int((counts > 0).sum())
        if holders:
            rarity = math.log(1 + (len(nodes) - holders + 0.5) / (holders + 0.5))
            scores += rarity * counts * (_BM25_K1 + 1) / (counts + scale)
    best = float(scores.max())
    return scores / best if best > 0 else scores


def _used(nodes: Sequence[Node], failure: Failure, vectors: FloatArray, to_doing: FloatArray) -> FloatArray:
    """How clearly each node was followed, scaled by the clearest: shape ``(n,)``."""
    told = set(tokenize(failure.task))
    done = set(tokenize(failure.doing)) - told
    raw = np.zeros(len(nodes), np.float32)
    tokens = [set(tokenize(node.content)) for node in nodes]
    spread = {token: sum(token in others for others in tokens) for token in done}
    for position, words in enumerate(tokens):
        # A word that many items hold says nothing about which one was followed.
        raw[position] = sum(1.0 / spread[word] for word in words & done) / (2.0 + len(words) ** 0.5)
    best = float(raw.max())
    words_part = raw / best if best > 0 else raw
    return np.clip(0.6 * words_part + 0.6 * np.clip(to_doing, 0, 1), 0, 1).astype(np.float32)


def _num_parts(content: str) -> int:
    return sum(content.count(mark) for mark in ",;:→、，；") + content.count(" and ")
