"""S_t(q): a subgraph as the text that an agent reads, within a token budget (spec section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import EpisodicNode, Node, ProceduralNode, Skill, Subgraph
from fluxmem_local.types import Layer

from .markup import attributes, escape, json_attribute, shorten

__all__ = ["RenderedContext", "render_episode", "serialize_context"]

_TAGS: Mapping[Layer, str] = {
    Layer.SEMANTIC: "semantic_memory",
    Layer.EPISODIC: "episodic_memory",
    Layer.PROCEDURAL: "procedural_memory",
}
_WHOLE = 1 << 40
_MAX_FEEDBACK_CHARS = 400
_MAX_SOURCE_CHARS = 200
# Under this many characters a shortened memory says nothing any more.
_LEAST_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedContext:
    """A serialised context: its text, the ids of the nodes in it (in their order), and its size in tokens."""

    text: str
    ids: tuple[str, ...]
    num_tokens: int


def serialize_context(subgraph: Subgraph, *, token_budget: int, count_tokens: Callable[[str], int]) -> RenderedContext:
    """Write ``S_t(q) = Concat(q, o_t, V_sem, V_epi, V_proc)`` as well-formed XML of at most ``token_budget`` tokens.

    The first node of each layer comes in before the second of any, and so on; what no longer fits is left out whole,
    from the end, and counted in the layer's ``omitted``. A layer's first node is shortened rather than left out. The
    task is written in full even if it alone is over the budget; the observation is shortened. Every text that is not
    whole ends with an ellipsis, and its element says ``shortened="true"``. A skill's structure stands in its element as
    the attribute ``structure``, a JSON object (``Skill.outline``); it goes before its text does.
    """
    frame = _Frame(subgraph, token_budget, count_tokens)
    pieces = {node.id: _render(node, _WHOLE, _structure(node)) for node in subgraph.nodes}
    costs = {id: count_tokens(piece) for id, piece in pieces.items()}

    def put(node: Node, piece: str) -> None:
        pieces[node.id] = piece
        costs[node.id] = count_tokens(piece)

    layers: dict[Layer, tuple[Node, ...]] = {
        Layer.SEMANTIC: subgraph.semantic,
        Layer.EPISODIC: subgraph.episodic,
        Layer.PROCEDURAL: subgraph.procedural,
    }
    left = token_budget - frame.num_tokens
    chosen: dict[Layer, list[str]] = {layer: [] for layer in Layer}
    order: list[str] = []
    # Cheapest first: what one layer's first node leaves of its share goes to the dearer ones.
    firsts = sorted((nodes[0] for nodes in layers.values() if nodes), key=lambda node: costs[node.id])
    for position, node in enumerate(firsts):
        share = left // (len(firsts) - position)
        if costs[node.id] > share:
            put(node, _fit(node, share, count_tokens))
        if pieces[node.id]:
            chosen[node.layer].append(node.id)
            order.append(node.id)
            left -= costs[node.id]
    open_layers = {layer for layer in Layer if chosen[layer]}
    for place in range(1, max((len(nodes) for nodes in layers.values()), default=0)):
        for layer in sorted(open_layers, key=list(Layer).index):
            nodes = layers[layer]
            if place < len(nodes) and costs[nodes[place].id] > left:
                put(nodes[place], _render(nodes[place], _WHOLE))
            if place >= len(nodes) or costs[nodes[place].id] > left:
                # A worse memory must not overtake a better one because it is shorter.
                open_layers.discard(layer)
                continue
            chosen[layer].append(nodes[place].id)
            order.append(nodes[place].id)
            left -= costs[nodes[place].id]
    # A tokenizer may count the whole higher than the sum of its parts.
    while True:
        text = frame.fill({layer: [pieces[id] for id in ids] for layer, ids in chosen.items()})
        num_tokens = count_tokens(text)
        if num_tokens <= token_budget or not order:
            break
        dropped = order.pop()
        for ids in chosen.values():
            if dropped in ids:
                ids.remove(dropped)
    return RenderedContext(text=text, ids=tuple(id for layer in Layer for id in chosen[layer]), num_tokens=num_tokens)


def render_episode(node: EpisodicNode) -> str:
    """Write an episode as plain text for a language model or an embedder."""
    lines = [f"Task: {node.task_description}"]
    for seen, done in node.trajectory:
        lines += [f"Observation: {seen}"] if seen.strip() else []
        lines += [f"Action: {done}"] if done.strip() else []
    lines.append(f"Outcome: {node.status}")
    if node.feedback.strip():
        lines.append(f"Feedback: {shorten(node.feedback.strip(), _MAX_FEEDBACK_CHARS)}")
    return "\n".join(lines)


class _Frame:
    """The context without its nodes."""

    def __init__(self, subgraph: Subgraph, token_budget: int, count_tokens: Callable[[str], int]) -> None:
        self._totals = {
            Layer.SEMANTIC: len(subgraph.semantic),
            Layer.EPISODIC: len(subgraph.episodic),
            Layer.PROCEDURAL: len(subgraph.procedural),
        }
        self._task = escape(subgraph.task)
        observation = subgraph.observation if subgraph.observation.strip() else ""
        self._observation = _element("observation", observation, 0)
        # Counted with every node left out: the attributes that say so cost tokens too.
        self.num_tokens = count_tokens(self.fill({}))
        # Half of what is left at most: an observation may be a whole page.
        room = (token_budget - self.num_tokens) // 2
        if observation and room > 0:
            fitting = _longest(
                lambda max_chars: _element("observation", observation, max_chars),
                len(observation),
                room,
                count_tokens,
            )
            self._observation = fitting or self._observation
            self.num_tokens = count_tokens(self.fill({}))

    def fill(self, pieces: Mapping[Layer, Sequence[str]]) -> str:
        lines = ["<context>", f"<task>{self._task}</task>", self._observation]
        for layer, tag in _TAGS.items():
            inside = pieces.get(layer, ())
            omitted = self._totals[layer] - len(inside)
            lines += [f"<{tag}{attributes({'omitted': omitted or None})}>", *inside, f"</{tag}>"]
        return "\n".join([*lines, "</context>"])


def _fit(node: Node, budget: int, count_tokens: Callable[[str], int]) -> str:
    """Render a node without structure, shortened to ``budget`` tokens; "" when no use would be left of it."""
    longest = max(len(node.content), *(len(text) for text in _texts(node)))
    return _longest(lambda max_chars: _render(node, max_chars), longest, budget, count_tokens, least=_LEAST_CHARS)


def _longest(
    render: Callable[[int], str], max_chars: int, budget: int, count_tokens: Callable[[str], int], *, least: int = 1
) -> str:
    """Render with as many characters as fit into ``budget`` tokens; "" when not even ``least`` do."""
    best = ""
    low, high = least, max(least, max_chars)
    while low <= high:
        middle = (low + high) // 2
        text = render(middle)
        if count_tokens(text) <= budget:
            best, low = text, middle + 1
        else:
            high = middle - 1
    return best


def _render(node: Node, max_chars: int, structure: str = "") -> str:
    """Write one node; each of its texts has at most ``max_chars`` characters."""
    if isinstance(node, EpisodicNode):
        return _render_episode(node, max_chars)
    if isinstance(node, ProceduralNode):
        pems = None if node.pems_score is None else f"{node.pems_score:.4f}"
        element = _element(
            "skill", node.skill_text, max_chars, id=node.id, version=node.version, pems=pems, **_doubts(node)
        )
        tag, rest = element.split(">", 1)
        return f"{tag}{structure}>{rest}"
    source = shorten(node.source, _MAX_SOURCE_CHARS) or None
    return _element("fact", node.content, max_chars, id=node.id, source=source, **_doubts(node))


def _doubts(node: Node) -> dict[str, str]:
    """Mark the word of an agent that nobody confirmed: it is a claim to check, and no instruction."""
    return {} if node.trusted else {"added_by": str(node.added_by), "confirmed": "false"}


def _structure(node: Node) -> str:
    data = node.metadata.get("structure") if isinstance(node, ProceduralNode) else None
    if data:
        # Metadata may hold anything; the text does without it.
        with suppress(InvalidInputError):
            return json_attribute("structure", Skill.from_dict(data).outline())
    return ""


def _element(tag: str, text: str, max_chars: int, **values: object) -> str:
    """Write a text of at most ``max_chars`` characters as an element, which says so when that is not all of it."""
    cut = "true" if len(text) > max_chars else None
    return f"<{tag}{attributes({**values, 'shortened': cut})}>{escape(shorten(text, max_chars))}</{tag}>"


def _render_episode(node: EpisodicNode, max_chars: int) -> str:
    # The last steps are those that led to the outcome, so a shortened trajectory loses its beginning.
    steps: list[str] = []
    room = max_chars
    for seen, done in reversed(node.trajectory):
        if room < _LEAST_CHARS:
            break
        most_seen = min(len(seen), room // 2)
        most_done = min(len(done), room - most_seen)
        room -= most_seen + most_done
        steps.append(f"<step>{_element('observation', seen, most_seen)}{_element('action', done, most_done)}</step>")
    omitted = len(node.trajectory) - len(steps)
    feedback = node.feedback.strip()
    return "".join(
        [
            f"<episode{attributes({'id': node.id, 'success': _outcome(node)})}>",
            _element("task", node.task_description, max_chars),
            f"<steps{attributes({'omitted': omitted or None})}>" if node.trajectory else "",
            *reversed(steps),
            "</steps>" if node.trajectory else "",
            _element("feedback", feedback, min(max_chars, _MAX_FEEDBACK_CHARS)) if feedback else "",
            "</episode>",
        ]
    )


def _texts(node: Node) -> Sequence[str]:
    if not isinstance(node, EpisodicNode):
        return ("",)
    return (node.task_description, "".join(seen + done for seen, done in node.trajectory) * 2, node.feedback)


def _outcome(node: EpisodicNode) -> str:
    return "unknown" if node.success is None else str(node.success).lower()
