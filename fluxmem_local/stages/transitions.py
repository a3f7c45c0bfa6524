"""Transitions: what lived episodes show of which places lead where, as facts (spec section 5)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import EpisodicNode, SemanticNode
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.memory_store import LEARNED_FROM, MemoryStore, Transaction
from fluxmem_local.types import Layer, Origin, Scope

from .teaching import actions_of

__all__ = ["Lessons", "Transition", "find_transitions", "plan_lessons", "write_lessons"]

# Words that an action of moving begins with, as "go to" or "cd".
_MOST_HEAD_WORDS = 3
# Of the steps from one place to another, this part must have been seen the other way round too.
_LEAST_RETURNS = 0.5
_LEAST_PLACES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """After an action, which of its kind could be done next, and the episodes that show it."""

    after: str
    then: tuple[str, ...]
    episode_ids: tuple[str, ...]

    @property
    def text(self) -> str:
        """The fact in words."""
        return f'After "{self.after}" can be done: ' + ", ".join(f'"{action}"' for action in self.then)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """Facts to write, and ids of those that the episodes do not show any more."""

    new: tuple[SemanticNode, ...] = ()
    gone: tuple[str, ...] = ()


async def plan_lessons(
    store: MemoryStore, episodes: Sequence[EpisodicNode], embedder: BaseEmbedder | None, config: FluxMemConfig
) -> Lessons:
    """Compare what the episodes show with what earlier consolidations wrote; the same episodes give no news."""
    by_scope: dict[Scope, list[EpisodicNode]] = {}
    for episode in episodes:
        by_scope.setdefault(episode.scope, []).append(episode)
    shown = {
        (scope, transition.text): transition
        for scope, members in by_scope.items()
        for transition in find_transitions(members, min_support=config.min_support)
    }
    derived = store.select(layers=(Layer.SEMANTIC,), filters={LEARNED_FROM: {"exists": True}})
    known = {(node.scope, node.content): node for node in derived if node.added_by is Origin.DERIVED}
    new = [
        SemanticNode(
            content=text,
            scope=scope,
            added_by=Origin.DERIVED,
            metadata={LEARNED_FROM: list(transition.episode_ids)},
        )
        for (scope, text), transition in shown.items()
        if (scope, text) not in known and not store.is_forgotten(Layer.SEMANTIC, scope, text)
    ]
    if new and embedder is not None:
        vectors = await embedder.embed_batch([node.content for node in new])
        new = [replace(node, embedding=vector) for node, vector in zip(new, vectors, strict=True)]
    return Lessons(new=tuple(new), gone=tuple(node.id for key, node in known.items() if key not in shown))


def write_lessons(change: Transaction, lessons: Lessons, store: MemoryStore) -> None:
    """Write what was planned, except for what an episode that is not there any more has shown."""
    change.delete_nodes(sorted(store.present(lessons.gone)))
    there = store.present([id for node in lessons.new for id in node.metadata[LEARNED_FROM]])
    change.add_nodes([node for node in lessons.new if there.issuperset(node.metadata[LEARNED_FROM])])


def find_transitions(episodes: Sequence[EpisodicNode], *, min_support: int) -> tuple[Transition, ...]:
    """Find the actions that move between places, and what can be reached from each.

    Actions of one head ("go to kitchen", "go to hallway") move when most steps from one to the next were also done the
    other way round: what is taken up, opened or mixed has no such way back.

    Args:
        episodes: finished episodes of any tasks.
        min_support: episodes in which a head must have been seen in a row.
    """
    moving = [
        (head, pairs)
        for head, pairs in _pairs_by_head(episodes).items()
        if len(set().union(*pairs.values())) >= min_support and _moves(pairs)
    ]
    moving.sort(key=lambda each: (-sum(map(len, each[1].values())), each[0]))
    found: list[Transition] = []
    known: set[tuple[str, str]] = set()
    for head, pairs in moving:
        objects = {(before.removeprefix(head), after.removeprefix(head)) for before, after in pairs}
        # What is done to each place on the way there, as opening its door, says the same once more.
        if not objects <= known:
            found += _transitions(pairs)
            known |= objects
    return tuple(sorted(found, key=lambda transition: transition.after))


def _moves(pairs: Collection[tuple[str, str]]) -> bool:
    places = {action for pair in pairs for action in pair}
    both_ways = sum((after, before) in pairs for before, after in pairs)
    return len(places) >= _LEAST_PLACES and both_ways >= _LEAST_RETURNS * len(pairs)


def _pairs_by_head(episodes: Sequence[EpisodicNode]) -> dict[str, dict[tuple[str, str], set[str]]]:
    """Collect, by head, each action that was followed by another of its head, and in which episodes."""
    heads = _heads(episodes)
    found: dict[str, dict[tuple[str, str], set[str]]] = {}
    for episode in episodes:
        last: dict[str, str] = {}
        for action in actions_of(episode):
            head = heads.get(action)
            if head is not None:
                before = last.get(head, action)
                if before != action:
                    found.setdefault(head, {}).setdefault((before, action), set()).add(episode.id)
                last[head] = action
    return found


def _heads(episodes: Sequence[EpisodicNode]) -> dict[str, str]:
    """Give each action its head: the longest run of first words that it shares with several others."""
    actions = {action for episode in episodes for action in actions_of(episode)}
    counts: dict[str, int] = {}
    for action in actions:
        for head in _beginnings(action):
            counts[head] = counts.get(head, 0) + 1
    heads = {}
    for action in actions:
        shared = [head for head in _beginnings(action) if counts[head] >= _LEAST_PLACES]
        if shared:
            heads[action] = shared[-1]
    return heads


def _beginnings(action: str) -> list[str]:
    words = action.split()
    return [" ".join(words[:size]) for size in range(1, min(len(words), _MOST_HEAD_WORDS + 1))]


def _transitions(pairs: Mapping[tuple[str, str], set[str]]) -> list[Transition]:
    reached: dict[str, list[str]] = {}
    seen: dict[str, set[str]] = {}
    for (before, after), ids in pairs.items():
        reached.setdefault(before, []).append(after)
        seen.setdefault(before, set()).update(ids)
    return [
        Transition(after=before, then=tuple(sorted(then)), episode_ids=tuple(sorted(seen[before])))
        for before, then in reached.items()
    ]
