"""A small memory and the worlds that the tests of Stage II act in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fluxmem_local.agent.results import RoundStarted, TaskEvent
from fluxmem_local.agent.tasks import TaskRunner
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import DistillEdge, EpisodicNode, Node, ProceduralNode, SemanticNode
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.retrieval import Retriever
from fluxmem_local.stages.formation import StageI
from fluxmem_local.testing import HashEmbedder

TASK = "Which country has the highest average of medals per athlete in medals.csv"
VIEWER = "Questions on a medals csv table: open it in the spreadsheet viewer and read the rendered grid."
PYTHON = "The python aggregation tool reads a csv table of any size, also when the spreadsheet viewer cannot render it."
SKILL = "Table questions: find the medals column, add it up by country, rank the countries by the total."
EPISODE = "Ranked the countries by their number of medals."
REFUSAL = "RenderLimitError: spreadsheet viewer cannot render medals.csv: the table is too large"
OBJECTION = (
    "Self-check failed: the procedure is too coarse, it ranks the total and not the average per athlete as asked."
)
OTHERS = (
    "Tents are dried before they are packed.",
    "The train to the coast leaves at seven.",
    "Tea needs water at 80.",
)


@dataclass
class Small:
    """A memory with the runner on it."""

    store: MemoryStore
    runner: TaskRunner
    retriever: Retriever
    embedder: BaseEmbedder
    ids: dict[str, str] = field(default_factory=dict)


async def small_memory(
    llm: BaseLLM | None = None, *, path: str | None = None, config: FluxMemConfig | None = None, seeded: bool = True
) -> Small:
    embedder = HashEmbedder(256)
    config = config or FluxMemConfig()
    store = MemoryStore.open(path, dimension=embedder.dimension, fingerprint=embedder.fingerprint)
    retriever = Retriever(store, embedder, llm, config)
    runner = TaskRunner(store, retriever, StageI(retriever, config), embedder, llm, config)
    small = Small(store=store, runner=runner, retriever=retriever, embedder=embedder)
    if seeded:
        texts = {"viewer": VIEWER, "python": PYTHON, **{f"other{number}": text for number, text in enumerate(OTHERS)}}
        nodes: list[Node] = [SemanticNode(id=name, content=text) for name, text in texts.items()]
        nodes += [
            EpisodicNode(id="episode", task_description=EPISODE, success=True),
            ProceduralNode(id="skill", skill_text=SKILL, source_episode_ids=("episode",)),
        ]
        await add(small, nodes)
        with store.transaction() as transaction:
            transaction.add_edges([DistillEdge(source_id="episode", target_id="skill")])
    return small


async def add(small: Small, nodes: Sequence[Node]) -> None:
    from dataclasses import replace

    rows = await small.embedder.embed_batch([node.content for node in nodes])
    with small.store.transaction() as transaction:
        transaction.add_nodes([replace(node, embedding=row) for node, row in zip(nodes, rows, strict=True)])


@dataclass
class World:
    """Succeeds once every needed node is in the context and no noise is; it counts its calls."""

    needed: frozenset[str] = frozenset()
    noise: frozenset[str] = frozenset()
    feedback: str = REFUSAL
    shown: tuple[str, ...] = ()
    contexts: list[str] = field(default_factory=list)
    events: list[TaskEvent] = field(default_factory=list)

    def listen(self, event: TaskEvent) -> None:
        self.events.append(event)
        if isinstance(event, RoundStarted):
            self.shown = event.context_ids

    async def execute(self, context: str) -> tuple[str, str, bool]:
        self.contexts.append(context)
        if self.needed <= set(self.shown) and not self.noise & set(self.shown):
            return "done", "", True
        return "", self.feedback, False


CONTEXT = ("viewer", "other0", "episode", "skill")


def everything(store: MemoryStore) -> dict[str, object]:
    """All that a task may leave behind, except its episode."""
    from fluxmem_local.types import NodeState

    nodes = store.select(states=tuple(NodeState))
    return {
        "nodes": {
            node.id: (node.content, node.state)
            for node in nodes
            if not (isinstance(node, EpisodicNode) and "rounds" in node.metadata)
        },
        "edges": {
            (edge.kind, edge.source_id, edge.target_id, edge.success_count, edge.failure_count)
            for edge in store.edges()
        },
        "outcomes": list(store.outcomes()),
    }
