"""Forgetting by the agent: quotes leave, what lost words is embedded anew, skills are scored anew, caches dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.errors import InvalidInputError
from fluxmem_local.graph import EpisodicNode, ProceduralNode, SemanticNode
from fluxmem_local.memory_store import Outcome
from fluxmem_local.metrics import skill_pems
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer, Origin

GATE = "The north gate opens with the green key."
PLACES = {"gray coat": "wardrobe", "white duvet": "big chest", "black blanket": "big chest", "red sock": "drawer"}


@pytest.fixture
def agent(embedder: HashEmbedder) -> Iterator[FluxMemAgent]:
    with FluxMemAgent(None, embedder) as opened:
        yield opened


def put(item: str, place: str, **fields: Any) -> EpisodicNode:
    fields.setdefault("success", True)
    return EpisodicNode(
        id=f"put {item}",
        task_description=f"put the {item} in its usual place",
        trajectory=(("a bedroom", f"take {item}"), ("", f"put {item} in {place}")),
        **fields,
    )


def skills(agent: FluxMemAgent) -> list[ProceduralNode]:
    return [node for node in agent.store.select(layers=(Layer.PROCEDURAL,)) if isinstance(node, ProceduralNode)]


async def test_a_task_that_lost_words_is_embedded_anew(agent: FluxMemAgent, embedder: HashEmbedder) -> None:
    (gate,) = await agent.add_knowledge(GATE)
    id = await agent.record_episode(f"check that {GATE}", [("", "look")], True)
    receipt = await agent.forget(gate)
    assert receipt.changed == ((id, "quoted it"),)
    node = agent.get(id)
    assert node.content == "check that [forgotten]."
    assert np.allclose(node.embedding, await embedder.embed_text(node.content), atol=1e-6)
    assert agent.stats["num_unembedded"] == 0
    assert agent.verify().ok


async def test_a_skill_that_lost_a_source_has_the_score_of_the_others(agent: FluxMemAgent) -> None:
    await agent.add_knowledge_nodes([put(*pair) for pair in PLACES.items()])
    await agent.consolidate()
    (before,) = skills(agent)
    # One that failed with the skill lowers the score; without it the score is that of the successes.
    failed = await agent.record_episode("put the hat in its usual place", [("", "take hat")], False)
    with agent.store.transaction() as change:
        change.record_outcomes([Outcome(node_id=before.id, episode_id=failed, hurt=1)])
    receipt = await agent.forget("put gray coat")
    assert receipt.changed == ((before.id, "lost a source"),)
    (after,) = skills(agent)
    measured = after.metadata["evidence"]
    assert measured["success_rate"] == pytest.approx(3 / 4)
    expected = skill_pems([3 / 4], [measured["num_tokens"]], [measured["shift"]])[0]
    assert after.pems_score == pytest.approx(float(expected))
    assert after.metadata["sources_forgotten"] == 1
    assert "put gray coat" not in after.source_episode_ids
    assert "put gray coat" not in str(after.metadata)
    assert agent.verify().ok
    assert (await agent.forget(list(after.source_episode_ids))).removed[-1] == before.id
    assert skills(agent) == []
    assert (await agent.consolidate()).induced_skills == ()


async def test_a_skill_of_forgotten_episodes_does_not_come_back(agent: FluxMemAgent) -> None:
    await agent.add_knowledge_nodes([put(*pair) for pair in PLACES.items()])
    await agent.consolidate()
    lines = list(agent.store.export_lines())
    (known,) = skills(agent)
    receipt = await agent.forget([f"put {item}" for item in PLACES])
    assert set(receipt.removed) == {known.id, *(f"put {item}" for item in PLACES)}
    report = agent.store.import_lines(lines)
    assert (report.num_nodes, report.num_forgotten) == (0, 5)
    assert (await agent.consolidate()).induced_skills == ()
    assert agent.store.select() == []
    # Lived anew, it teaches anew.
    await agent.add_knowledge_nodes([put(*pair) for pair in PLACES.items()])
    assert len((await agent.consolidate()).induced_skills) == 1


async def test_reshaped_versions_stay_away_with_their_original(agent: FluxMemAgent) -> None:
    (gate,) = await agent.add_knowledge(GATE)
    version = SemanticNode(content="Green key: gate.", variant_of=gate, added_by=Origin.DERIVED)
    again = SemanticNode(content="Gate.", variant_of=version.id, added_by=Origin.DERIVED)
    await agent.add_knowledge_nodes([version, again])
    lines = list(agent.store.export_lines())
    assert (await agent.forget(gate)).removed == (gate, version.id, again.id)
    assert agent.store.import_lines(lines).num_forgotten == 3
    # A version whose original the memory never held is refused by what it says.
    alone = [line.replace(f'"variant_of":"{gate}"', '"variant_of":null') for line in lines]
    assert agent.store.import_lines(alone).num_forgotten == 3
    assert agent.store.select() == []


async def test_an_export_from_before_brings_no_quote_back(agent: FluxMemAgent) -> None:
    (gate,) = await agent.add_knowledge(GATE)
    id = await agent.record_episode(f"check that {GATE}", [(GATE, "look")], True, feedback=GATE)
    lines = list(agent.store.export_lines())
    await agent.forget(gate)
    after = list(agent.store.export_lines())
    report = agent.store.import_lines(lines)
    assert (report.num_nodes, report.num_known, report.num_forgotten) == (0, 1, 1)
    assert list(agent.store.export_lines()) == after
    assert agent.get(id).content == "check that [forgotten]."


async def test_what_the_embedder_kept_of_texts_is_dropped(embedder: HashEmbedder) -> None:
    class Caching(HashEmbedder):
        kept: dict[str, Any] = {}

        async def embed_batch(self, texts: Sequence[str]) -> Any:
            self.kept.update(dict.fromkeys(texts))
            return await super().embed_batch(texts)

        def clear_cache(self) -> None:
            self.kept.clear()

    async with FluxMemAgent(None, Caching(64)) as agent:
        (id,) = await agent.add_knowledge(GATE)
        assert GATE in Caching.kept
        await agent.forget(id, dry_run=True)
        assert GATE in Caching.kept
        await agent.forget(id)
        assert Caching.kept == {}


async def test_an_age_that_is_none_is_refused_before_anything_is_done(agent: FluxMemAgent) -> None:
    await agent.add_knowledge(GATE)
    with pytest.raises(InvalidInputError, match="before='yesterday' is no time"):
        await agent.forget(before="yesterday")
    with pytest.raises(InvalidInputError, match="purge='yes' must be True or False"):
        await agent.forget(purge="yes")  # type: ignore[arg-type]
    assert (await agent.forget(before=2999)).removed != ()


async def test_the_episode_of_a_running_task_stays_and_is_named(agent: FluxMemAgent) -> None:
    ada = {"user": "ada"}
    (gate,) = await agent.add_knowledge(GATE, scope=ada)
    receipts = []

    async def forgets(context: str) -> tuple[str, str, bool]:
        receipts.append(await agent.forget(scope=ada))
        return f"read {context}", "", True

    result = await agent.run_task("open the north gate", forgets, scope=ada)
    (receipt,) = receipts
    assert (result.success, receipt.removed) == (True, (gate,))
    assert receipt.kept == ((result.episode_id, "its task still runs; forget it when it has ended"),)
    assert agent.verify().ok
    # What it was shown stands in its record, and goes with that.
    assert GATE in str(agent.get(result.episode_id))
    assert (await agent.forget(scope=ada)).removed == (result.episode_id,)


async def test_a_running_task_that_was_shown_it_is_named(agent: FluxMemAgent) -> None:
    (gate,) = await agent.add_knowledge(GATE)
    kept = []

    async def forgets(context: str) -> tuple[str, str, bool]:
        kept.extend((await agent.forget(gate)).kept)
        return "done", "", True

    result = await agent.run_task("open the north gate", forgets)
    assert kept == [(result.episode_id, "its task still runs, and was shown it; forget it when it has ended")]
