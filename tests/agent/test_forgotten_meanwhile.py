"""What a running task reshaped is forgotten before it ends: the task still ends, and nothing comes back."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.graph import EpisodicNode
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import FloatArray

FEEDBACK = "too general: which key opens the gate, step by step"


@pytest.mark.parametrize("success", [True, False])
async def test_the_original_of_a_version_is_forgotten_in_the_round_that_tests_it(success: bool) -> None:
    async with FluxMemAgent(None, HashEmbedder(64)) as agent:
        (id,) = await agent.add_knowledge("the gate opens with the green key and the door with the red key")
        versions: list[str] = []

        async def execute(_context: str) -> tuple[str, str, bool]:
            versions.extend(node["id"] for node in agent.store._rows("SELECT id FROM nodes WHERE state = 'trial'", []))
            if not versions:
                return "", FEEDBACK, False
            if agent.store.present([id]):
                receipt = await agent.forget([id])
                assert set(receipt.removed) == {id, *versions}
            return "opened", "" if success else "the gate is locked", success

        result = await agent.run_task("open the gate with the right key", execute)
        assert len(versions) >= 1
        assert result.success is success
        episode = agent.get(result.episode_id)
        assert isinstance(episode, EpisodicNode)
        assert episode.status == ("succeeded" if success else "failed")
        assert agent.store.present([id, *versions]) == set()
        assert (agent.stats["num_step_edges"], agent.stats["num_trial_nodes"], agent.verify().problems) == (0, 0, ())


async def test_a_fact_is_forgotten_while_the_failure_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "the gate opens with the green key and the door with the red key"
    async with FluxMemAgent(None, HashEmbedder(64)) as agent:
        (id,) = await agent.add_knowledge(secret)
        await agent.add_knowledge("the well is deep")
        look_up, forgotten = agent.store.present_embeddings, []

        def forgetful(ids: Collection[str]) -> dict[str, FloatArray | None]:
            if id in ids and not forgotten:
                forgotten.extend(agent.store.forget(ids=[id]).removed)
            return look_up(ids)

        monkeypatch.setattr(agent.store, "present_embeddings", forgetful)
        result = await agent.run_task("open the gate with the right key", lambda _context: ("", FEEDBACK, False))
        assert (forgotten, result.success) == ([id], False)
        assert secret not in "\n".join(agent.store.export_lines())
        assert (agent.stats["num_step_edges"], agent.stats["num_trial_nodes"], agent.verify().problems) == (0, 0, ())
