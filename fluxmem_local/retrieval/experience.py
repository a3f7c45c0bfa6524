"""Experience: what past tasks like the asked one taught about nodes (spec section 3, learned connectivity)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fluxmem_local.graph import Edge, Edit, EpisodicNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import FloatArray

from . import signals

__all__ = ["Experience", "learn", "trust_in"]

# A link says that a memory was at hand; a counted outcome says that it made the difference.
_LINK_EVIDENCE = 0.5
# A repair whose link is trusted less is one among other memories: tasks failed with it, and more than succeeded.
_TRUSTED_REPAIR = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What was learned, by node id.

    ``values`` is the graph signal in (-1, 1), ``proved`` the same of tasks alone that are like the asked one.
    ``repairs`` are nodes that a kept repair brought into a similar task, or that served it in place of what was cut,
    with the similarity of the nearest such task. ``misleading`` are nodes that hurt in similar tasks more than they
    helped; ``dispensable`` are those of them without which a similar task succeeded. A node of which nothing was
    learned is in none of them. ``tasks`` are the past tasks that taught it, with their similarity.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    proved: Mapping[str, float] = field(default_factory=dict)
    repairs: Mapping[str, float] = field(default_factory=dict)
    misleading: frozenset[str] = frozenset()
    dispensable: frozenset[str] = frozenset()
    tasks: Mapping[str, float] = field(default_factory=dict)

    @property
    def node_ids(self) -> list[str]:
        """The nodes of which something was learned, proved repairs first, then by value."""
        return sorted(self.values, key=lambda id: (-self.repairs.get(id, 0.0), -self.values[id], id))

    def signal(self, ids: Sequence[str], content: FloatArray, places: int) -> FloatArray:
        """Return the graph signal of n nodes: shape ``(n,)``.

        A repair brings in more than its task needed, and what a task only related to the asked one has no use for
        would crowd out the answer: of the nodes that such tasks alone speak for, those that fit best rise.

        Args:
            ids: n candidates.
            content: their scores by content, shape ``(n,)``.
            places: how many of them may rise by related tasks.
        """
        signal = np.array([self.values.get(id, 0.0) for id in ids], np.float32)
        related = [place for place, id in enumerate(ids) if signal[place] > 0 and self.proved.get(id, 0.0) <= 0]
        related.sort(key=lambda place: (-content[place], ids[place]))
        signal[related[places:]] = 0.0
        return signal

    def lift(self, ids: list[str], scores: FloatArray, top_k: int) -> FloatArray:
        """Put proved repairs above everything else and misleading nodes below.

        One success with a repair must be enough for the next similar task, and no sum of signals promises that. One
        place of ``top_k`` stays free for what content alone says, so that a newer fact can still get in.

        Args:
            ids: n candidates.
            scores: their fused scores, shape ``(n,)``.
            top_k: places in the answer.

        Returns:
            New scores: a repair has more, a misleading node less, by one and all that the candidates differ.
        """
        lifted: FloatArray = scores.copy()
        step = np.float32(1.0) + np.ptp(scores)
        repairs = [position for position, id in enumerate(ids) if id in self.repairs]
        repairs.sort(key=lambda position: (-self.repairs[ids[position]], -scores[position], ids[position]))
        lifted[repairs[: max(1, top_k - 1)]] += step
        lifted[[position for position, id in enumerate(ids) if id in self.misleading]] -= step
        return lifted


def learn(
    store: MemoryStore, tasks: Sequence[tuple[EpisodicNode, float]], related: float, threshold: float
) -> Experience:
    """Gather what ``tasks`` taught.

    Counted outcomes come first. Where a node has none in a task, the kept repairs of that task count, and then its
    edges, weighed by trust: a fact that was merely at hand in a failure gets a worse value, but is not misleading.
    What helped counts less for each later task that failed with the same link, and a repair that often failed so is
    no proved one: what was called a success may have been none.

    Args:
        store: the memory.
        tasks: finished episodes with their similarity to the asked task, ``related`` or more.
        related: similarity from which a task says something; under ``threshold`` its outcomes only move values a
            little: the same need in quite other words is no more similar than another need may be.
        threshold: similarity from which repairs and interference carry over.
    """
    if not tasks:
        return Experience()
    rows = {task.id: row for row, (task, _) in enumerate(tasks)}
    similarities = np.array([similarity for _, similarity in tasks], np.float32)
    evidence: dict[tuple[str, str], tuple[float, float]] = {
        (outcome.node_id, outcome.episode_id): (max(0, outcome.helped), max(0, outcome.hurt))
        for outcome in store.outcomes(episode_ids=list(rows))
    }
    links = _linked(store, list(rows))
    repairs: dict[str, float] = {}
    for edit in store.edits(episode_ids=list(rows)):
        if edit.kept and edit.episode_id is not None:
            similarity, brought = tasks[rows[edit.episode_id]][1], _brought_in(edit)
            trusted = [id for id in brought if links.get((id, edit.episode_id), _UNTESTED).held >= _TRUSTED_REPAIR]
            for id in trusted if similarity >= threshold else ():
                repairs[id] = max(similarity, repairs.get(id, similarity))
            for id in (*brought, *(edit.targets if edit.kind == "prune" else ())):
                evidence.setdefault((id, edit.episode_id), (1.0, 0.0) if id in brought else (0.0, 1.0))
    explicit = set(evidence)
    for pair, link in links.items():
        if pair in explicit:
            evidence[pair] = (evidence[pair][0] * link.held, evidence[pair][1])
        elif (success := tasks[rows[pair[1]]][0].success) is not None:
            evidence[pair] = (link.trust, 0.0) if success else (0.0, link.trust)

    columns = {id: column for column, id in enumerate(dict.fromkeys(id for id, _ in evidence))}
    helped = np.zeros((len(rows), len(columns)), np.float32)
    hurt = np.zeros_like(helped)
    blamed = np.zeros_like(helped)
    for (id, task_id), (for_it, against_it) in evidence.items():
        place = rows[task_id], columns[id]
        helped[place], hurt[place] = for_it, against_it
        # What was there when the task succeeded did not mislead it to the end.
        blamed[place] = against_it if (id, task_id) in explicit and for_it == 0 else 0.0
    relevance = signals.task_relevance(similarities, related, threshold)
    values = signals.graph(relevance, helped, hurt)
    alike = np.where(similarities >= threshold, relevance, 0.0).astype(np.float32)
    proved = signals.graph(alike, helped, hurt)
    misleads = alike @ blamed > alike @ helped
    misleading = frozenset(id for id, column in columns.items() if misleads[column])
    succeeded = np.array([bool(task.success) and similarity >= threshold for task, similarity in tasks])
    done_without = blamed[succeeded].any(axis=0)
    return Experience(
        values={id: float(values[column]) for id, column in columns.items()},
        proved={id: float(proved[column]) for id, column in columns.items()},
        repairs={id: similarity for id, similarity in repairs.items() if id not in misleading},
        misleading=misleading,
        dispensable=frozenset(id for id in misleading if done_without[columns[id]]),
        tasks={task.id: similarity for task, similarity in tasks},
    )


def _brought_in(edit: Edit) -> tuple[str, ...]:
    if edit.kind == "expand":
        return edit.targets
    if edit.kind == "prune":
        return tuple(edit.after.get("instead", ()))
    if edit.kind == "reshape":
        return tuple(edit.after.get("variants", {}).values())
    return ()


@dataclass(frozen=True, slots=True)
class _Link:
    """An edge between a node and a task: its trust as evidence, and the share of later tasks that it held in."""

    trust: float
    held: float


_UNTESTED = _Link(_LINK_EVIDENCE, 1.0)


def _linked(store: MemoryStore, task_ids: list[str]) -> dict[tuple[str, str], _Link]:
    ground = store.edges(target_ids=task_ids, kinds=("ground",))
    distill = store.edges(source_ids=task_ids, kinds=("distill",))
    edges = [*ground, *distill]
    pairs = [(edge.source_id, edge.target_id) for edge in ground]
    pairs += [(edge.target_id, edge.source_id) for edge in distill]
    held = trust_in([replace(edge, weight=1.0) for edge in edges])
    return {
        pair: _Link(_LINK_EVIDENCE * float(trust), float(share))
        for pair, trust, share in zip(pairs, trust_in(edges), held, strict=True)
    }


def trust_in(edges: Sequence[Edge]) -> FloatArray:
    """Weigh n edges by the tasks in which they were active: shape ``(n,)``, at least 0."""
    return signals.edge_trust(
        np.array([max(0.0, edge.weight) for edge in edges], np.float32),
        np.array([edge.success_count for edge in edges], np.float32),
        np.array([edge.failure_count for edge in edges], np.float32),
    )
