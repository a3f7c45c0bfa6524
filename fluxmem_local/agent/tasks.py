"""TaskRunner: run a task on the memory, or record one that ran elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import BlankTextError, InvalidInputError
from fluxmem_local.graph import Edit, EpisodicNode, steps_of
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.retrieval import Retriever
from fluxmem_local.stages.events import EventListener, TaskFinished
from fluxmem_local.stages.execution import ANSWERED, ExecuteFn
from fluxmem_local.stages.formation import StageI
from fluxmem_local.stages.refinement import Progress, StageII, StepResult
from fluxmem_local.stages.settlement import settle_success, settle_without_success, use_edges
from fluxmem_local.storage.checks import check_text
from fluxmem_local.storage.owner_process import OWNER, this_process
from fluxmem_local.text import is_blank
from fluxmem_local.types import Origin, Scope

from .arguments import check_flag, check_function, check_origin, listed, listed_ids
from .results import TaskResult

__all__ = ["TaskRunner"]


class TaskRunner:
    """Runs tasks step by step: Stage I forms each step's context, Stage II repairs it on failure."""

    def __init__(
        self,
        store: MemoryStore,
        retriever: Retriever,
        stage_one: StageI,
        embedder: BaseEmbedder | None,
        llm: BaseLLM | None,
        config: FluxMemConfig,
    ) -> None:
        self._store = store
        self._stage_one = stage_one
        self._stage_two = StageII(store, retriever, embedder, llm, config)
        self._embedder = embedder
        self._config = config

    async def run_task(
        self,
        task_query: str,
        execute_fn: ExecuteFn,
        observations: Sequence[str] | None = None,
        scope: Scope | Mapping[str, str | None] | None = None,
        context_ids: Sequence[str] | None = None,
        on_event: EventListener | None = None,
        *,
        answers: bool = False,
    ) -> TaskResult:
        """Run a task, each observation one step, and learn from it.

        The first step that stays unsolved ends the task. A solved task keeps the repairs it needed; any other end
        takes all of them back.

        Args:
            task_query: the task.
            execute_fn: called with the context, once a round and never after a success; it returns
                ``(result, feedback, success)``, or an awaitable of it. An exception in it is feedback.
            observations: what the agent sees at each step; None: one step without any.
            scope: whose task it is.
            context_ids: start each step from exactly these nodes in place of Stage I's choice.
            on_event: called with each event while the task runs.
            answers: the task function only answers and does nothing, which teaches no skill.

        Raises:
            BlankTextError: the task has no visible character.
            InvalidInputError: no observation, or the task function returned something else.
            NotFoundError: an unknown context id.
        """
        observed = [""] if observations is None else listed("observations", observations, "texts, one for each step")
        if not observed:
            raise InvalidInputError(
                f"observations={observations!r:.200} must list a text for each step; leave it out for one step"
            )
        for seen in observed:
            check_text(seen, "an observation")
        noted = {ANSWERED: True} if answers else {}
        return await self._run(task_query, observed, execute_fn, 0, Scope.coerce(scope), context_ids, on_event, noted)

    async def run_step(
        self,
        task_query: str,
        observation: str,
        execute_fn: ExecuteFn,
        step_index: int = 0,
        scope: Scope | Mapping[str, str | None] | None = None,
        context_ids: Sequence[str] | None = None,
        on_event: EventListener | None = None,
    ) -> TaskResult:
        """Run one step as a task of its own; ``step_index`` numbers it in its links and events.

        Raises:
            BlankTextError: the task has no visible character.
            InvalidInputError: a negative step index, or the task function returned something else.
            NotFoundError: an unknown context id.
        """
        if isinstance(step_index, bool) or not isinstance(step_index, int) or not 0 <= step_index < 2**63:
            raise InvalidInputError(f"step_index={step_index!r} is no step number; give 0 or more, of 63 bits at most")
        check_text(observation, "the observation")
        return await self._run(
            task_query, [observation], execute_fn, step_index, Scope.coerce(scope), context_ids, on_event, {}
        )

    async def record_episode(
        self,
        task: str,
        trajectory: Sequence[tuple[str, str]],
        success: bool,
        feedback: str = "",
        used_ids: Sequence[str] = (),
        scope: Scope | Mapping[str, str | None] | None = None,
        added_by: Origin | str = Origin.AGENT,
    ) -> str:
        """Record a task that ran elsewhere, with the nodes it used, and return its episode's id.

        Raises:
            BlankTextError: the task has no visible character.
            InvalidInputError: the trajectory is not made of (observation, action) pairs.
            NotFoundError: an unknown node among ``used_ids``.
        """
        check_flag("success", success)
        steps = steps_of(trajectory)
        check_text(feedback, "feedback")
        used = self._store.get_many(listed_ids("used_ids", used_ids))
        started = await self._episode(task, Scope.coerce(scope))
        episode = replace(
            started,
            trajectory=steps,
            success=bool(success),
            status="succeeded" if success else "failed",
            feedback=feedback,
            added_by=check_origin("added_by", added_by),
        )
        with self._store.transaction() as transaction:
            transaction.add_nodes([episode])
            transaction.add_edges(use_edges(episode.id, used))
            if success:
                transaction.record_outcomes(
                    [Outcome(node_id=node.id, episode_id=episode.id, helped=1) for node in used]
                )
        return episode.id

    async def _episode(self, task: str, scope: Scope) -> EpisodicNode:
        if not isinstance(task, str) or is_blank(task):
            raise BlankTextError(f"task={task!r:.200} is blank; say what is to be done")
        vector = None if self._embedder is None else await self._embedder.embed_text(task)
        return EpisodicNode(task_description=task, embedding=vector, scope=scope)

    async def _run(
        self,
        task: str,
        observations: Sequence[str],
        execute_fn: ExecuteFn,
        first_index: int,
        scope: Scope,
        context_ids: Sequence[str] | None,
        on_event: EventListener | None,
        noted: Mapping[str, bool],
    ) -> TaskResult:
        if not callable(execute_fn):
            raise InvalidInputError(f"execute_fn={execute_fn!r:.200} cannot be called; give a function of the context")
        check_function("on_event", on_event)
        if context_ids is not None:
            context_ids = listed_ids("context_ids", context_ids)
            self._store.get_many(context_ids)
        episode = replace(await self._episode(task, scope), metadata={OWNER: this_process(), **noted})
        progress = Progress(episode=episode, scope=scope, listener=on_event)
        with self._store.transaction() as transaction:
            transaction.add_nodes([episode])
        try:
            for step_index, observation in enumerate(observations, first_index):
                formed = await self._stage_one.form(
                    task, observation, scope=scope, episode_id=episode.id, context_ids=context_ids
                )
                step = await self._stage_two.run_step(formed.subgraph, execute_fn, progress, step_index=step_index)
                progress.trajectory.append((observation, step.result))
                if not step.success:
                    break
        # Cancellation and Ctrl-C too: whatever ends the task early must leave no half-made repair behind.
        except BaseException:
            self._settle(progress, _ended(progress, "interrupted"))
            raise
        return self._finish(progress, step)

    def _settle(self, progress: Progress, episode: EpisodicNode) -> tuple[Edit, ...]:
        if episode.success:
            return settle_success(self._store, progress, episode)
        alike = self._config.interference_similarity_threshold
        return settle_without_success(self._store, progress, episode, alike=alike)

    def _finish(self, progress: Progress, step: StepResult) -> TaskResult:
        status = "succeeded" if step.success else "failed"
        edits = self._settle(progress, _ended(progress, status, step.feedback))
        result = TaskResult(
            success=step.success,
            trajectory=tuple(progress.trajectory),
            steps=len(progress.trajectory),
            episode_id=progress.episode.id,
            rounds=len(progress.rounds),
            edits=edits,
            attributions=tuple(progress.attributions),
            result=step.result,
            feedback=step.feedback,
        )
        progress.tell(
            TaskFinished(
                episode_id=result.episode_id,
                step_index=progress.rounds[-1]["step"],
                round=step.rounds,
                status=status,
                rounds=result.rounds,
            )
        )
        return result


def _ended(progress: Progress, status: str, feedback: str = "") -> EpisodicNode:
    # The record has all feedback, whole: prompts get a trimmed one.
    last = progress.rounds[-1]["feedback"] if progress.rounds else ""
    return replace(
        progress.episode,
        trajectory=tuple(progress.trajectory),
        success=status == "succeeded",
        status=status,
        feedback=feedback or last,
        metadata={
            **{key: value for key, value in progress.episode.metadata.items() if key != OWNER},
            "rounds": progress.rounds,
            "attributions": [attribution.to_dict() for attribution in progress.attributions],
        },
    )
