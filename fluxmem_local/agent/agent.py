"""FluxMemAgent: the whole system behind one object (spec section 6)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import DimensionError, InvalidInputError
from fluxmem_local.graph import Edit, Node, ProceduralNode, SemanticNode
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM, BaseVectorStore, approximate_tokens
from fluxmem_local.memory_store import HistoryEntry, MemoryStore, Receipt, VerifyReport
from fluxmem_local.retrieval import AsOf, Hit, Retriever, serialize_context
from fluxmem_local.settings import load_config
from fluxmem_local.stages.edits import undo_edit
from fluxmem_local.stages.execution import ExecuteFn
from fluxmem_local.stages.formation import StageI
from fluxmem_local.storage.checks import check_folder, check_text
from fluxmem_local.storage.times import Time
from fluxmem_local.types import Layer, Origin, Scope

from .answering import Answer, ask
from .arguments import check_bound, check_file, check_flag, check_function, check_id, check_type, listed_ids
from .builder import build_embedder, build_llm
from .embedding import CheckedEmbedder
from .knowledge import IngestReport, Knowledge
from .maintenance import ReindexReport, reindex
from .results import EventListener, TaskResult
from .sight import lines_seen, node_seen, past_seen
from .skills import SkillsExport, SkillsImport, approve_skill, diff_skill, export_skills, import_skills
from .tasks import TaskRunner

if TYPE_CHECKING:
    from fluxmem_local.stages.consolidation import ConsolidationReport
    from fluxmem_local.stages.evolution import ReplayFn
    from fluxmem_local.storage.backup import BackupReport
    from fluxmem_local.storage.portable import ImportReport
    from fluxmem_local.storage.salvage import Salvaged

__all__ = ["CONFIGURED", "Configured", "FluxMemAgent"]


class Configured:
    """The type of the default that says: the model which the settings name."""


CONFIGURED: Final = Configured()
_Scoped = Scope | Mapping[str, str | None] | None


class FluxMemAgent:
    """A memory that gets better: facts, episodes and skills in one graph whose links are repaired.

    ``llm`` None: no verification, repair by attribution, or skills. ``embedder`` None: search by words only; what is
    added then is embedded by a later ``reindex``. ``config`` None: the settings of environment and fluxmem.toml.
    ``path`` None: in memory; a directory: durable. Vector stores that are given are used and kept.

    Raises:
        InvalidInputError: an argument that is none of these.
        DimensionError: ``config.embedding_dimension`` is not the embedder's.
        EmbedderMismatchError: another embedder wrote the memory at ``path``.
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
        check_type("llm", llm, BaseLLM)
        check_type("embedder", embedder, BaseEmbedder)
        check_type("config", config, FluxMemConfig)
        given_stores = {
            Layer.SEMANTIC: semantic_vectorstore,
            Layer.EPISODIC: episodic_vectorstore,
            Layer.PROCEDURAL: procedural_vectorstore,
        }
        for layer, vector_store in given_stores.items():
            check_type(f"{layer}_vectorstore", vector_store, BaseVectorStore)
        for name, flag in (("create", create), ("accept_other_embedder", accept_other_embedder)):
            check_flag(name, flag)
        folder = None if path is None else check_folder(path)
        self.config = config if config is not None else load_config(directory=folder)
        self.llm = llm
        self._own_models: tuple[BaseLLM | BaseEmbedder, ...] = ()
        self.embedder = CheckedEmbedder(embedder) if embedder is not None else None
        if self.embedder is not None and self.config.embedding_dimension not in (None, self.embedder.dimension):
            raise DimensionError(
                f"embedding_dimension={self.config.embedding_dimension} is set, but the embedder makes vectors of "
                f"{self.embedder.dimension}; leave the setting out to take the embedder's"
            )
        self._store = MemoryStore.open(
            folder,
            dimension=self.embedder.dimension if self.embedder is not None else None,
            fingerprint=self.embedder.fingerprint if self.embedder is not None else None,
            create=create,
            accept_other_embedder=accept_other_embedder,
            lock_timeout_s=self.config.lock_timeout_s,
            vector_stores={layer: store for layer, store in given_stores.items() if store is not None},
        )
        self._knowledge = Knowledge(self._store, self.embedder)
        self._retriever = Retriever(self._store, self.embedder, self.llm, self.config)
        self._formation = StageI(self._retriever, self.config)
        self._runner = TaskRunner(self._store, self._retriever, self._formation, self.embedder, self.llm, self.config)

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
    ) -> FluxMemAgent:
        """Open a memory with the models that the settings name, or with given ones; None switches one off.

        Args:
            path: the memory's directory; None: in memory.
            config: settings; None: those of environment and fluxmem.toml.
            llm: a language model in place of the configured one.
            embedder: an embedder in place of the configured one.
            create: make the memory if there is none.
            accept_other_embedder: open it although another embedder wrote it; ``reindex`` must follow.

        Raises:
            ModelNotFoundError: a configured model is not on this machine.
            MemoryNotFoundError: there is no memory at ``path`` and ``create`` is False.
            EmbedderMismatchError: another embedder wrote the memory.
        """
        check_type("config", config, FluxMemConfig)
        folder = None if path is None else check_folder(path)
        config = config if config is not None else load_config(directory=folder)
        own_llm = build_llm(config) if isinstance(llm, Configured) else None
        own_embedder = build_embedder(config) if isinstance(embedder, Configured) else None
        agent = cls(
            own_llm if isinstance(llm, Configured) else llm,
            own_embedder if isinstance(embedder, Configured) else embedder,
            config,
            path=folder,
            create=create,
            accept_other_embedder=accept_other_embedder,
        )
        agent._own_models = tuple(model for model in (own_llm, own_embedder) if model is not None)
        return agent

    @staticmethod
    def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str]) -> BackupReport:
        """Make a memory at ``path``, where there is none, from what ``backup`` wrote; the backup stays as it is.

        Raises:
            InvalidInputError: there is a memory at ``path`` already.
            MemoryNotFoundError: there is no backup.
            MemoryDamagedError: the backup is damaged; nothing was made.
            SchemaVersionError: a newer version of this package wrote it; nothing was made.
            StorageError: the place cannot be written, or is full.
        """
        # Here, because a verb such as `stats` should start without it.
        from fluxmem_local.storage.backup import restore

        return restore(check_folder(backup), check_folder(path))

    @staticmethod
    def salvage(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Salvaged:
        """Copy what can be read of a damaged memory into a new one at ``target``; the damaged one is only read.

        Raises:
            MemoryNotFoundError: there is no memory at ``path``.
            MemoryDamagedError: nothing of it can be read; nothing was made.
            InvalidInputError: there is a memory at ``target``.
            StorageError: a file cannot be read, or the target not be written.
        """
        return MemoryStore.salvage(path, target)

    async def add_knowledge(
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
        """Store a text as facts, without any call of the language model.

        Content that the scope knows already is counted, not stored again; its id is returned in its place.

        Args:
            text: any length.
            source: where it is from.
            chunk_size: characters of a fact at most; None: the setting, 512 by default.
            metadata: kept with each fact, and usable as a filter.
            scope: whom the facts belong to; None: everyone.
            markdown: whether the text has headings that its facts should know, as ``headings`` in their metadata; None:
                if ``source`` ends as Markdown files do.
            added_by: "user", the memory's owner; or "agent", whose own word counts less, and is marked in contexts,
                until a task succeeds with it or the owner confirms it or says the same.

        Returns:
            The facts' ids in the text's order.

        Raises:
            BlankTextError: the text has no visible character.
            InvalidInputError: ``chunk_size`` under 1.
            DimensionError: the embedder's vectors are not what it promises.
        """
        return await self._knowledge.add_text(
            text,
            source=source,
            chunk_size=self.config.chunk_size if chunk_size is None else chunk_size,
            metadata=metadata,
            scope=Scope.coerce(scope),
            markdown=markdown,
            added_by=added_by,
        )

    async def add_knowledge_nodes(self, nodes: Sequence[Node]) -> list[str]:
        """Store nodes of any layer under their own ids, all or none, and return the ids in the nodes' order.

        Raises:
            InvalidInputError: something that is no node, or an id that is taken by other content.
            BlankTextError: a node without visible content.
            DimensionError: a node brings a vector of the wrong size, with NaN or infinity, or of zeros.
            NotFoundError: a skill whose source episode the memory does not hold.
        """
        return await self._knowledge.add_nodes(nodes)

    async def ingest(
        self,
        source: str,
        facts: Sequence[SemanticNode],
        digest: str | None,
        scope: _Scoped = None,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> IngestReport:
        """Store all facts of one source, unless this digest of its content was taken in before.

        Facts of an earlier content of the source that it no longer states are forgotten. Without a digest the source
        is a stream, of which each piece is new.
        """
        return await self._knowledge.ingest(source, facts, digest, Scope.coerce(scope), on_progress=on_progress)

    async def retrieve(
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
        """Find the nodes nearest to a query, best first.

        Args:
            query: what is asked.
            top_k: hits at most.
            layers: where to look.
            scope: who asks; None sees everything.
            filters: conditions on metadata: ``{"team": "ops"}`` is equality, ``{"year": {"gte": 2020, "lt": 2025}}`` a
                range; operators are in, ne, gt, gte, lt, lte, exists and contains (of a list), and ``{"or": [...]}``,
                ``{"and": [...]}`` and ``{"not": {...}}`` join filters. ``id``, ``source`` and ``created_at`` are keys
                too.
            as_of: the moment the question is about: a datetime, a date, ISO 8601 text, or seconds since 1970 (UTC).
                Then what was stored later is left out, what was changed later is found as it was, and what holds is
                judged by that moment. None is now: what by its metadata (``valid_from``, ``valid_to``) no longer holds,
                or not yet, is left out. ``"any"`` asks for all, whenever it holds.
            verify: let the language model read the best candidates.
            explain: give each hit an ``explanation``: the weights of its signals, and the similar past tasks, edges and
                repairs that its place comes from.

        Raises:
            BlankTextError: the query has no visible character.
            InvalidInputError: ``top_k`` under 1, an unknown layer, or filters or a time that cannot be read.
        """
        check_flag("verify", verify)
        check_flag("explain", explain)
        return await self._retriever.retrieve(
            query,
            top_k=top_k,
            layers=layers,
            scope=_asking(scope),
            filters=filters,
            as_of=as_of,
            verify=verify,
            with_explanation=explain,
        )

    async def context(
        self,
        task: str,
        observation: str = "",
        scope: _Scoped = None,
        *,
        filters: Mapping[str, Any] | None = None,
        as_of: AsOf = None,
        token_budget: int | None = None,
    ) -> str:
        """Return the context that a step of this task would be given (Stage I), and change nothing.

        Args:
            task: the task.
            observation: what the agent sees.
            scope: who asks; None sees everything.
            filters: conditions on the facts' metadata, as in ``retrieve``.
            as_of: the moment it is about, as in ``retrieve``.
            token_budget: tokens at most, counted by the language model's tokenizer; None: the setting
                ``context_token_budget``.

        Raises:
            BlankTextError: task and observation have no visible character.
            InvalidInputError: filters or a time that cannot be read, or a budget under 1.
        """
        check_text(task, "task")
        check_text(observation, "observation")
        if token_budget is None:
            token_budget = self.config.context_token_budget
        if isinstance(token_budget, bool) or not isinstance(token_budget, int) or token_budget < 1:
            raise InvalidInputError(f"token_budget={token_budget!r:.200} is no number of tokens; give 1 or more")
        formed = await self._formation.form(task, observation, scope=_asking(scope), filters=filters, as_of=as_of)
        return serialize_context(
            formed.subgraph,
            token_budget=token_budget,
            count_tokens=self.llm.count_tokens if self.llm is not None else approximate_tokens,
        ).text

    async def run_task(
        self,
        task_query: str,
        execute_fn: ExecuteFn,
        observations: Sequence[str] | None = None,
        scope: _Scoped = None,
        context_ids: Sequence[str] | None = None,
        *,
        on_event: EventListener | None = None,
    ) -> TaskResult:
        """Run a task, each observation one step; repair the memory when a step fails, and learn from how it ended.

        Args:
            task_query: the task.
            execute_fn: called with the context, once a round and never after a success; it returns
                ``(result, feedback, success)``, or an awaitable of it. An exception in it is feedback.
            observations: what the agent sees at each step; None: one step without any.
            scope: whose task it is; None: shared.
            context_ids: start each step from exactly these nodes in place of Stage I's choice.
            on_event: called with each event while the task runs.

        Raises:
            BlankTextError: the task has no visible character.
            InvalidInputError: no observation, or the task function returned something else.
            NotFoundError: an unknown context id.
        """
        return await self._runner.run_task(task_query, execute_fn, observations, scope, context_ids, on_event)

    async def run_step(
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
        """Run one step as a task of its own; ``step_index`` numbers it in its links and events.

        Raises:
            BlankTextError: the task has no visible character.
            InvalidInputError: a negative step index, or the task function returned something else.
            NotFoundError: an unknown context id.
        """
        return await self._runner.run_step(
            task_query, observation, execute_fn, step_index, scope, context_ids, on_event
        )

    async def record_episode(
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
        """Record a task that ran elsewhere, with the nodes it used, and return its episode's id.

        Raises:
            BlankTextError: the task has no visible character.
            InvalidInputError: the trajectory is not made of (observation, action) pairs.
            NotFoundError: an unknown node among ``used_ids``.
        """
        return await self._runner.record_episode(task, trajectory, success, feedback, used_ids, scope, added_by)

    async def ask(self, question: str, *, scope: _Scoped = None, on_event: EventListener | None = None) -> Answer:
        """Answer a question from memory alone, check the answer against the facts, and record the episode.

        An answer that the facts do not support is tried again with a repaired memory; if none is supported, the answer
        says that the memory does not say, and cites nothing.

        Raises:
            ModelError: there is no language model, or it cannot work.
            BlankTextError: the question has no visible character.
        """
        return await ask(
            self._runner, self.llm, question, store=self._store, scope=Scope.coerce(scope), on_event=on_event
        )

    async def consolidate(
        self,
        replay_fn: ReplayFn | None = None,
        dry_run: bool = False,
        *,
        max_seconds: float | None = None,
        max_llm_calls: int | None = None,
    ) -> ConsolidationReport:
        """Distil episodes into skills, let the skills mature, and tidy the graph (Stage III).

        Only episodes with news are worked on, and running it again on the same episodes changes nothing. Each skill is
        stored as soon as it is done: a run that is cancelled, killed or out of budget goes on there the next time.

        Args:
            replay_fn: ``(episode, skill) -> bool``, plain or async: does the episode's task succeed with this skill?
                None: recorded evidence decides.
            dry_run: only report.
            max_seconds: no further skill is begun after so many seconds; None: no bound.
            max_llm_calls: the language model is asked no more often; None: no bound.

        Raises:
            InvalidInputError: ``replay_fn`` cannot be called, or a bound that is no number of at least 0.
        """
        check_function("replay_fn", replay_fn)
        check_flag("dry_run", dry_run)
        check_bound("max_seconds", max_seconds)
        check_bound("max_llm_calls", max_llm_calls, whole=True)
        # Here, as are export and import, because a verb such as `stats` should start without them.
        from fluxmem_local.stages.budget import Budget
        from fluxmem_local.stages.consolidation import StageIII

        stage = StageIII(self._store, self.embedder, self.llm, self.config)
        report = await stage.run(replay_fn, dry_run, budget=Budget(seconds=max_seconds, llm_calls=max_llm_calls))
        return replace(report, forgotten=await self._knowledge.retain(self.config.retention, dry_run=dry_run))

    def approve_skill(self, id: str, *, approved: bool = True, scope: _Scoped = None) -> ProceduralNode:
        """Approve the present version of a skill for export, or take that back, and return the skill.

        Raises:
            NotFoundError: no node of this id that the scope sees.
            InvalidInputError: it is no skill.
        """
        check_id("id", id)
        check_flag("approved", approved)
        return approve_skill(self._store, id, approved=approved, scope=_asking(scope))

    def export_skills(
        self,
        folder: str | os.PathLike[str],
        ids: Sequence[str] | None = None,
        *,
        scope: _Scoped = None,
        force: bool = False,
    ) -> SkillsExport:
        """Write approved skills as Agent Skills folders; ``import_skills`` reads their SKILL.md without loss.

        Args:
            folder: where their folders go; it is made if there is none.
            ids: which ones; None: all.
            scope: only what it sees.
            force: also those that nobody approved.

        Raises:
            NotFoundError: an unknown id.
            InvalidInputError: an id of no skill, or a folder that cannot be written to.
        """
        check_flag("force", force)
        wanted = None if ids is None else listed_ids("ids", ids)
        return export_skills(self._store, check_folder(folder), ids=wanted, scope=_asking(scope), force=force)

    async def import_skills(self, folder: str | os.PathLike[str], *, scope: _Scoped = None) -> SkillsImport:
        """Take in the SKILL.md of a folder, or of the folders in it, all or nothing; what is there is not doubled.

        Args:
            folder: what ``export_skills`` or another program wrote.
            scope: whom the skills are for; None: as the files say.

        Raises:
            ImportFormatError: a file that cannot be read; its path is named, and nothing was imported.
        """
        return await import_skills(self._store, self.embedder, check_folder(folder), scope=_asking(scope))

    def diff_skill(self, id: str, other: int | str | os.PathLike[str] | None = None, *, scope: _Scoped = None) -> str:
        """Compare a skill's text with another version of it, or with that of a SKILL.md folder; "" when equal.

        Args:
            id: the skill.
            other: the number of a version, or a folder; None: the version before.
            scope: who asks.

        Raises:
            NotFoundError: no such skill or version.
            ImportFormatError: a SKILL.md that cannot be read.
        """
        check_id("id", id)
        if other is not None and (isinstance(other, bool) or not isinstance(other, int)):
            other = check_folder(other)
        return diff_skill(self._store, id, other, scope=_asking(scope))

    async def update(self, id: str, content: str, *, added_by: Origin | str = Origin.USER) -> Node:
        """Give a node new content, embedded anew; metadata and links stay, the old content goes to its history.

        ``added_by`` says who wrote the new content, as in ``add_knowledge``.

        Raises:
            NotFoundError: no node of this id.
            BlankTextError: the content has no visible character.
        """
        return await self._knowledge.update(id, content, added_by=added_by)

    async def forget(
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
        """Remove nodes with all that was derived from them: by ids, or by source or filters, scope and age.

        Vectors, links, versions, repairs and what was distilled from them alone go, too; quotes of facts in episodes,
        skills and histories are replaced by "[forgotten]". Skills that lost a source are scored anew.

        Args:
            ids: one id or several.
            source: of the facts; what another source states as well is kept.
            filters: conditions on metadata, as in ``retrieve``.
            scope: all that belongs to this user, agent or session.
            before: all that was stored before this time: a datetime, a date, ISO 8601 text or seconds since 1970.
            dry_run: only say what would be removed.
            purge: leave no byte of it in any file of the memory, which is written anew for that; alone it does so for
                what was forgotten before. A skill that other episodes teach as well keeps words shorter than a quote.

        Raises:
            InvalidInputError: nothing was named, a blank source, filters or an age that cannot be read, ids together
                with something else, or filters together with a source.
            NotFoundError: the memory holds no such id, source or scope, or nothing that meets the filters.
        """
        return await self._knowledge.forget(
            ids,
            source=source,
            filters=filters,
            scope=_asking(scope),
            before=before,
            dry_run=dry_run,
            purge=purge,
        )

    def confirm(self, ids: Sequence[str] | str) -> list[str]:
        """Trust what an agent wrote by itself, and return those of the ids that were not trusted before.

        Raises:
            NotFoundError: the memory holds no such id; nothing was changed.
        """
        return self._knowledge.confirm(ids)

    async def reindex(self, *, on_progress: Callable[[int], None] | None = None) -> ReindexReport:
        """Embed all that has no vector of this embedder, and build the indices anew.

        Raises:
            ModelError: the agent has no embedder.
        """
        check_function("on_progress", on_progress)
        return await reindex(self._store, self.embedder, on_progress=on_progress)

    def undo(self, edit_id: str) -> Edit:
        """Take a kept repair of the graph back, and return the edit as it stands then.

        Raises:
            NotFoundError: no such edit.
            InvalidInputError: the edit changes nothing, or no longer.
        """
        check_id("edit_id", edit_id)
        return undo_edit(self._store, edit_id)

    def export(self, file: IO[str], *, scope: _Scoped = None) -> int:
        """Write the memory as JSON Lines and return their number; ``scope`` limits it to what that scope sees.

        Raises:
            InvalidInputError: the file is closed, or not open for writing text.
        """
        check_file(file, "write")
        num_lines = 0
        for line in lines_seen(self._store, _asking(scope)):
            file.write(line + "\n")
            num_lines += 1
        return num_lines

    def import_(self, file: IO[str]) -> ImportReport:
        """Take in what ``export`` wrote, all or nothing; nodes that are there already are not doubled.

        Raises:
            InvalidInputError: the file is closed, or not open for reading text.
            ImportFormatError: a line that cannot be read; the message gives its number.
        """
        check_file(file, "read")
        return self._store.import_lines(file)

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy what is committed now into a folder without a memory, while others go on reading and writing.

        Raises:
            InvalidInputError: there is a memory already.
            StorageError: the place cannot be written, or is full.
        """
        return self._store.backup(path)

    def get(self, id: str, *, scope: _Scoped = None) -> Node:
        """Return a node; ``scope`` says who asks, None sees everything.

        Raises:
            NotFoundError: no node of this id that the scope sees.
        """
        check_id("id", id)
        return node_seen(self._store, id, _asking(scope))

    def history(self, id: str, *, scope: _Scoped = None) -> list[HistoryEntry]:
        """Return what happened to a node, oldest first; ``scope`` leaves out the repairs of tasks it does not see.

        Raises:
            NotFoundError: no node of this id that the scope sees.
        """
        check_id("id", id)
        return past_seen(self._store, id, _asking(scope))

    @property
    def store(self) -> MemoryStore:
        """The memory beneath, for reading more than the agent's methods show."""
        return self._store

    @property
    def stats(self) -> dict[str, Any]:
        """Counts of nodes by layer, edges by kind, edits, and the memory's size in bytes.

        With rules of retention also ``retention``: each rule with ``num_due``, what the next consolidation forgets by
        it.
        """
        due = self._store.due(self.config.retention, now=time.time())
        rules = [{**asdict(rule), "num_due": len(ids)} for rule, ids in due]
        return {**self._store.stats(), **({"retention": rules} if rules else {})}

    def verify(self, *, fix: bool = False) -> VerifyReport:
        """Check the graph's rules and that all indices agree with it; ``fix`` repairs what can be."""
        check_flag("fix", fix)
        return self._store.verify(fix=fix)

    def rebuild_indices(self) -> None:
        """Build the vector and word indices anew from the stored nodes."""
        self._store.rebuild_indices()

    def close(self) -> None:
        """Close the memory, and the models that ``open`` made; a second call does nothing.

        Models that were given stay as they are: whoever made them may use them elsewhere.
        """
        self._store.close()
        for model in self._own_models:
            model.close()

    def __enter__(self) -> FluxMemAgent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> FluxMemAgent:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _asking(scope: _Scoped) -> Scope | None:
    """Keep None, the owner's view of everything, apart from the empty scope, which sees what is shared."""
    return None if scope is None else Scope.coerce(scope)
