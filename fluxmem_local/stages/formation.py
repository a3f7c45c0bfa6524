"""Stage I: the first connections of a step (spec section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import ProceduralNode, StepLinkEdge, Subgraph
from fluxmem_local.retrieval import AsOf, Hit, Retriever, case_episodes
from fluxmem_local.types import Layer, Scope

__all__ = ["Formation", "StageI", "step_links"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Formation:
    """G_t(q) of one step, and the hits it was made of in the order of its nodes (score 0 for nodes that were given)."""

    subgraph: Subgraph
    hits: tuple[Hit, ...] = ()


class StageI:
    """Chooses what a step activates: facts, episodes, and the skills inherited from those episodes."""

    def __init__(self, retriever: Retriever, config: FluxMemConfig) -> None:
        self.retriever = retriever
        self.config = config

    async def form(
        self,
        task: str,
        observation: str = "",
        *,
        scope: Scope | None = None,
        episode_id: str | None = None,
        context_ids: Sequence[str] | None = None,
        filters: Mapping[str, Any] | None = None,
        as_of: AsOf = None,
    ) -> Formation:
        """Form G_t(q).

        What similar tasks did better without is left out altogether: an agent follows whatever stands in its context. A
        mature skill stands in for the episodes that it was distilled from, and for failed ones that its cases tell of.

        Args:
            task: the task.
            observation: what the agent sees at this step.
            scope: who asks; None sees everything.
            episode_id: the running episode, which is not part of its own context.
            context_ids: exactly these nodes, in their order within each layer, in place of a choice; an id that is
                named twice counts once.
            filters: conditions on the facts' metadata; episodes and skills are the agent's own and come without them.
            as_of: the moment the step is about; None: now, and "any": whenever.

        Raises:
            BlankTextError: task and observation have no visible character.
            NotFoundError: a context id that the memory does not hold.
        """
        empty = Subgraph(task=task, observation=observation)
        if context_ids is not None:
            given = empty.with_nodes(self.retriever.get_many(list(dict.fromkeys(context_ids))))
            return Formation(subgraph=given, hits=tuple(Hit(node, 0.0) for node in given.nodes))
        retriever = await self.retriever.then(as_of)
        query = await retriever.prepare(
            empty.query,
            task=task,
            scope=scope,
            filters=filters,
            as_of=as_of,
            trial_of=episode_id,
            exclude=() if episode_id is None else (episode_id,),
        )
        facts = await retriever.search_layer(
            Layer.SEMANTIC, query, top_k=self.config.top_k_semantic, drop_dispensable=True
        )
        query = replace(query, view=replace(query.view, filters=None))
        episodes = (
            await retriever.search_layer(Layer.EPISODIC, query, top_k=self.config.top_k_episodic, drop_dispensable=True)
            if self.config.top_k_episodic
            else []
        )
        skills = await retriever.inherit_skills(query, episodes)
        hits = (*facts, *_not_stood_for(episodes, skills), *skills)
        return Formation(subgraph=empty.with_nodes([hit.node for hit in hits]), hits=hits)


def _not_stood_for(episodes: Sequence[Hit], skills: Sequence[Hit]) -> list[Hit]:
    mature = [hit.node for hit in skills if isinstance(hit.node, ProceduralNode) and hit.node.metadata.get("converged")]
    told = {id for skill in mature for id in (*skill.source_episode_ids, *case_episodes(skill))}
    return [hit for hit in episodes if hit.node.id not in told]


def step_links(episode_id: str, subgraph: Subgraph, step_index: int) -> list[StepLinkEdge]:
    """Make one edge from the running episode to each node that its step ``step_index`` activated."""
    return [StepLinkEdge(source_id=episode_id, target_id=id, step_index=step_index) for id in subgraph.ids]
