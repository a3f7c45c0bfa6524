"""What the agent of the case study remembers before its first task."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.graph import EpisodicNode, ProceduralNode

__all__ = ["SeedMemory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMemory:
    """Facts on two tools and on the subject, one lived episode and one coarse skill."""

    facts: Sequence[str] = (
        "For a question on a CSV table of countries and athletes, open the file in the spreadsheet viewer and read the "
        "answer from the rendered grid.",
        "The Python data-analysis API reads files of any size, groups their rows by a column and computes statistics "
        "for each group.",
        "A medal table lists each athlete with country, sport and the number of medals.",
        "An athlete who competes for two countries is listed under the present one.",
        "A country's medals are those of all its athletes, summers and winters alike.",
        "Athletes without a medal stand in the table with a zero.",
        "Team medals count once for each athlete of the team.",
        "Country names are written in the language of the file.",
        "The committee publishes corrected medal counts every spring.",
    )
    episode_task: str = "Which country has won the most medals?"
    episode_steps: Sequence[tuple[str, str]] = (
        ("A small table of medals by country.", "Opened it, sorted it by its column of medals and took the first row."),
    )
    skill: str = (
        "Answering questions on tables: find the column that the question names, add it up for each group, rank the "
        "groups by that total and report the first one."
    )

    def shuffled(self, seed: int, extra_facts: Sequence[str] = ()) -> SeedMemory:
        """Put the facts, with others among them, in another order."""
        facts = [*self.facts, *extra_facts]
        random.Random(seed).shuffle(facts)
        return replace(self, facts=tuple(facts))

    async def store_in(self, agent: FluxMemAgent) -> None:
        """Put everything into a memory, the skill linked to the episode it came from."""
        for number, fact in enumerate(self.facts):
            await agent.add_knowledge(fact, source=f"notes/{number}")
        episode = EpisodicNode(task_description=self.episode_task, trajectory=tuple(self.episode_steps), success=True)
        skill = ProceduralNode(skill_text=self.skill, source_episode_ids=(episode.id,), metadata={"name": "table-qa"})
        await agent.add_knowledge_nodes([episode, skill])
