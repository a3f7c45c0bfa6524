"""FluxMem: the agent for code without asyncio."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, TypeVar

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import Edit, Node, ProceduralNode, SemanticNode
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM, BaseVectorStore
from fluxmem_local.memory_store import HistoryEntry, MemoryStore, Receipt, VerifyReport
from fluxmem_local.retrieval import AsOf, Hit
from fluxmem_local.stages.consolidation import ConsolidationReport
from fluxmem_local.stages.evolution import ReplayFn
from fluxmem_local.stages.execution import ExecuteFn
from fluxmem_local.storage.backup import BackupReport
from fluxmem_local.storage.portable import ImportReport
from fluxmem_local.storage.salvage import Salvaged
from fluxmem_local.storage.times import Time
from fluxmem_local.types import Layer, Origin, Scope

from .agent import CONFIGURED, Configured, FluxMemAgent
from .answering import Answer
from .knowledge import IngestReport
from .maintenance import ReindexReport
from .results import EventListener, TaskResult
from .skills import SkillsExport, SkillsImport

__all__ = ["FluxMem"]

_T = TypeVar("_T")
_Scoped = Scope | Mapping[str, str | None] | None


class FluxMem:
    """The same as FluxMemAgent, with plain methods; see there for what they do.

    The agent runs on an event loop in a thread of its own, so this works inside a running loop as well. A task function
    may be a plain one: it runs in a worker thread, and may itself call the memory.
    """

    def __init__(
        self,
        llm: BaseLLM | None,
        embedder: BaseEmbedder | None,
        config: FluxMemConfig | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        semantic_vectorstore: BaseVectorStore | None = None,
        episodic_vectorstore: BaseVectorStore | None = None,
        procedural_vectorstore: BaseVectorStore | None = None,
        create: bool = True,
        accept_other_embedder: bool = False,
    ) -> None:
        self._start(
            FluxMemAgent(
                llm,
                embedder,
                config,
                path=path,
                semantic_vectorstore=semantic_vectorstore,
                episodic_vectorstore=episodic_vectorstore,
                procedural_vectorstore=procedural_vectorstore,
                create=create,
                accept_other_embedder=accept_other_embedder,
            )
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None,
        *,
        config: FluxMemConfig | None = None,
        llm: BaseLLM | Configured | None = CONFIGURED,
        embedder: BaseEmbedder | Configured | None = CONFIGURED,
        create: bool = True,
        accept_other_embedder: bool = False,
    ) -> FluxMem:
        """Open a memory with the models that the settings name, or with given ones; None switches one off."""
        memory = cls.__new__(cls)
        memory._start(
            FluxMemAgent.open(
                path,
                config=config,
                llm=llm,
                embedder=embedder,
                create=create,
                accept_other_embedder=accept_other_embedder,
            )
        )
        return memory

    def _start(self, agent: FluxMemAgent) -> None:
        self._agent = agent
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fluxmem", daemon=True)
        self._thread.start()

    def _wait(self, coming: Coroutine[Any, Any, _T]) -> _T:
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            coming.close()
            why = "is closed" if self._loop.is_closed() else "cannot be called from its own event loop; await its agent"
            raise InvalidInputError(f"this FluxMem {why}")
        future = asyncio.run_coroutine_threadsafe(coming, self._loop)
        try:
            return future.result()
        except BaseException:
            # An interrupted caller must not leave the task running behind its back.
            future.cancel()
            raise

    @property
    def agent(self) -> FluxMemAgent:
        """The agent beneath; its coroutines belong to this object's event loop."""
        return self._agent

    @property
    def config(self) -> FluxMemConfig:
        """The settings."""
        return self._agent.config

    @property
    def store(self) -> MemoryStore:
        """The memory beneath, for reading more than these methods show."""
        return self._agent.store

    @property
    def stats(self) -> dict[str, Any]:
        """Counts of nodes by layer, edges by kind, edits, and the memory's size in bytes."""
        return self._agent.stats

    def add_knowledge(
        self,
        text: str,
        source: str = "",
        chunk_size: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        scope: _Scoped = None,
        *,
        markdown: bool | None = None,
        added_by: Origin | str = Origin.USER,
    ) -> list[str]:
        """Store a text as facts and return their ids in the text's order."""
        return self._wait(
            self._agent.add_knowledge(text, source, chunk_size, metadata, scope, markdown=markdown, added_by=added_by)
        )

    def add_knowledge_nodes(self, nodes: Sequence[Node]) -> list[str]:
        """Store nodes of any layer under their own ids, all or none."""
        return self._wait(self._agent.add_knowledge_nodes(nodes))

    def ingest(
        self,
        source: str,
        facts: Sequence[SemanticNode],
        digest: str | None,
        scope: _Scoped = None,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> IngestReport:
        """Store all facts of one source, unless this digest of its content was taken in before."""
        return self._wait(self._agent.ingest(source, facts, digest, scope, on_progress=on_progress))

    def retrieve(
        self,
        query: str,
        *,
        top_k: int = 5,
        layers: Sequence[Layer | str] = (Layer.SEMANTIC,),
        scope: _Scoped = None,
        filters: Mapping[str, Any] | None = None,
        as_of: AsOf = None,
        verify: bool = True,
        explain: bool = False,
    ) -> list[Hit]:
        """Find the nodes nearest to a query, best first."""
        return self._wait(
            self._agent.retrieve(
                query,
                top_k=top_k,
                layers=layers,
                scope=scope,
                filters=filters,
                as_of=as_of,
                verify=verify,
                explain=explain,
            )
        )

    def context(
        self,
        task: str,
        observation: str = "",
        scope: _Scoped = None,
        *,
        filters: Mapping[str, Any] | None = None,
        as_of: AsOf = None,
        token_budget: int | None = None,
    ) -> str:
        """Return the context that a step of this task would be given, and change nothing."""
        return self._wait(
            self._agent.context(task, observation, scope, filters=filters, as_of=as_of, token_budget=token_budget)
        )

    def run_task(
        self,
        task_query: str,
        execute_fn: ExecuteFn,
        observations: Sequence[str] | None = None,
        scope: _Scoped = None,
        context_ids: Sequence[str] | None = None,
        *,
        on_event: EventListener | None = None,
    ) -> TaskResult:
        """Run a task, each observation one step, and repair the memory when a step fails."""
        return self._wait(
            self._agent.run_task(
                task_query, _in_worker(execute_fn), observations, scope, context_ids, on_event=on_event
            )
        )

    def run_step(
        self,
        task_query: str,
        observation: str,
        execute_fn: ExecuteFn,
        step_index: int = 0,
        scope: _Scoped = None,
        context_ids: Sequence[str] | None = None,
        *,
        on_event: EventListener | None = None,
    ) -> TaskResult:
        """Run one step as a task of its own."""
        return self._wait(
            self._agent.run_step(
                task_query, observation, _in_worker(execute_fn), step_index, scope, context_ids, on_event=on_event
            )
        )

    def record_episode(
        self,
        task: str,
        trajectory: Sequence[tuple[str, str]],
        success: bool,
        feedback: str = "",
        used_ids: Sequence[str] = (),
        scope: _Scoped = None,
        *,
        added_by: Origin | str = Origin.AGENT,
    ) -> str:
        """Record a task that ran elsewhere and return its episode's id."""
        return self._wait(
            self._agent.record_episode(task, trajectory, success, feedback, used_ids, scope, added_by=added_by)
        )

    def ask(self, question: str, *, scope: _Scoped = None, on_event: EventListener | None = None) -> Answer:
        """Answer a question from memory, checked against the facts it cites."""
        return self._wait(self._agent.ask(question, scope=scope, on_event=on_event))

    def consolidate(
        self,
        replay_fn: ReplayFn | None = None,
        dry_run: bool = False,
        *,
        max_seconds: float | None = None,
        max_llm_calls: int | None = None,
    ) -> ConsolidationReport:
        """Distil episodes into skills, let them mature, and tidy the graph."""
        return self._wait(
            self._agent.consolidate(replay_fn, dry_run, max_seconds=max_seconds, max_llm_calls=max_llm_calls)
        )

    def approve_skill(self, id: str, *, approved: bool = True, scope: _Scoped = None) -> ProceduralNode:
        """Approve the present version of a skill for export, or take that back."""
        return self._agent.approve_skill(id, approved=approved, scope=scope)

    def export_skills(
        self,
        folder: str | os.PathLike[str],
        ids: Sequence[str] | None = None,
        *,
        scope: _Scoped = None,
        force: bool = False,
    ) -> SkillsExport:
        """Write approved skills as Agent Skills folders."""
        return self._agent.export_skills(folder, ids, scope=scope, force=force)

    def import_skills(self, folder: str | os.PathLike[str], *, scope: _Scoped = None) -> SkillsImport:
        """Take in the SKILL.md of a folder, or of the folders in it."""
        return self._wait(self._agent.import_skills(folder, scope=scope))

    def diff_skill(self, id: str, other: int | str | os.PathLike[str] | None = None, *, scope: _Scoped = None) -> str:
        """Compare a skill's text with another version of it, or with that of a SKILL.md folder."""
        return self._agent.diff_skill(id, other, scope=scope)

    def update(self, id: str, content: str, *, added_by: Origin | str = Origin.USER) -> Node:
        """Give a node new content, embedded anew."""
        return self._wait(self._agent.update(id, content, added_by=added_by))

    def forget(
        self,
        ids: Sequence[str] | str | None = None,
        *,
        source: str | None = None,
        filters: Mapping[str, Any] | None = None,
        scope: _Scoped = None,
        before: Time | None = None,
        dry_run: bool = False,
        purge: bool = False,
    ) -> Receipt:
        """Remove nodes with all that was derived from them: by ids, or by source or filters, scope and age."""
        return self._wait(
            self._agent.forget(
                ids, source=source, filters=filters, scope=scope, before=before, dry_run=dry_run, purge=purge
            )
        )

    def confirm(self, ids: Sequence[str] | str) -> list[str]:
        """Trust what an agent wrote by itself."""
        return self._agent.confirm(ids)

    def reindex(self, *, on_progress: Callable[[int], None] | None = None) -> ReindexReport:
        """Embed all that has no vector of this embedder, and build the indices anew."""
        return self._wait(self._agent.reindex(on_progress=on_progress))

    def get(self, id: str, *, scope: _Scoped = None) -> Node:
        """Return a node."""
        return self._agent.get(id, scope=scope)

    def history(self, id: str, *, scope: _Scoped = None) -> list[HistoryEntry]:
        """Return what happened to a node, oldest first."""
        return self._agent.history(id, scope=scope)

    def undo(self, edit_id: str) -> Edit:
        """Take a kept repair of the graph back."""
        return self._agent.undo(edit_id)

    def verify(self, *, fix: bool = False) -> VerifyReport:
        """Check the graph's rules and that all indices agree with it."""
        return self._agent.verify(fix=fix)

    def rebuild_indices(self) -> None:
        """Build the vector and word indices anew from the stored nodes."""
        self._agent.rebuild_indices()

    @staticmethod
    def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str]) -> BackupReport:
        """Make a memory at ``path``, where there is none, from what ``backup`` wrote."""
        return FluxMemAgent.restore(backup, path)

    @staticmethod
    def salvage(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Salvaged:
        """Copy what can be read of a damaged memory into a new one at ``target``; the damaged one is only read."""
        return FluxMemAgent.salvage(path, target)

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy what is committed now into a folder without a memory, while others go on reading and writing."""
        return self._agent.backup(path)

    def export(self, file: IO[str], *, scope: _Scoped = None) -> int:
        """Write the memory, or what a scope sees of it, as JSON Lines and return their number."""
        return self._agent.export(file, scope=scope)

    def import_(self, file: IO[str]) -> ImportReport:
        """Take in what ``export`` wrote, all or nothing."""
        return self._agent.import_(file)

    def close(self) -> None:
        """Close the memory and end its thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self._wait(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._agent.close()

    def __enter__(self) -> FluxMem:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _in_worker(execute_fn: ExecuteFn) -> ExecuteFn:
    """Let a plain task function run in a worker thread, so that it may call the memory it serves."""
    # Whatever cannot be called, or is a coroutine function already, is the agent's to judge.
    if not callable(execute_fn) or inspect.iscoroutinefunction(execute_fn):
        return execute_fn

    async def run(context: str) -> Any:
        outcome: Any = await asyncio.to_thread(execute_fn, context)
        return await outcome if inspect.isawaitable(outcome) else outcome

    return run
