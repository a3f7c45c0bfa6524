from __future__ import annotations

from typing import Any

import pytest

from fluxmem_local.graph import EpisodicNode, Node, ProceduralNode, SemanticNode
from fluxmem_local.stages.proposals import Proposal
from fluxmem_local.stages.reshape import propose_reshape
from fluxmem_local.stages.rewriting import generalise, is_grounded, spell_out
from fluxmem_local.testing import FailingLLM, HashEmbedder, ScriptedLLM
from fluxmem_local.types import NodeState

from .test_attribution import failure
from .worlds import OBJECTION, SKILL, TASK

NODE = ProceduralNode(id="skill", skill_text=SKILL, version=3, source_episode_ids=("episode",))
GOOD = f"{SKILL} Then compute the average of medals per athlete as asked."


async def reshaped(node: Node, granularity: str, answer: Any = None, **options: Any) -> Any:
    llm = ScriptedLLM({"reshape_content": [answer]}) if answer is not None else None
    proposal = Proposal(action="reshape", score=1, reason="why", targets=(node.id,), granularity=granularity)
    failed = failure(OBJECTION, (node,))
    return await propose_reshape(proposal, failed, **({"embedder": HashEmbedder(256), "llm": llm} | options))


async def test_a_version_stands_beside_its_original() -> None:
    change = await reshaped(NODE, "fine")
    (variant,) = change.variants.values()
    assert isinstance(variant, ProceduralNode)
    assert (variant.variant_of, variant.state, variant.version) == ("skill", NodeState.TRIAL, 4)
    assert variant.content == variant.skill_text == spell_out(SKILL, TASK, OBJECTION)
    assert variant.version_history[-1].skill_text == SKILL
    assert "why" in variant.version_history[-1].ended_because
    assert variant.source_episode_ids == ("episode", "run")
    assert dict(variant.metadata) == {"granularity": "fine", "written_by": "composition"}
    assert variant.embedding == pytest.approx(await HashEmbedder(256).embed_text(variant.content))
    assert change.edit.after["variants"] == {"skill": variant.id}
    assert change.edit.before["contents"] == {"skill": SKILL}
    assert change.apply(failure(nodes=(NODE,)).subgraph).ids == (variant.id,)
    assert NODE.content == SKILL


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   ",
        "word " * 58_279,
        "Buy milk.",
        f"{SKILL} It takes 4711 seconds, see /etc/passwd.",
        RuntimeError("gone"),
        17,
    ],
)
async def test_a_models_text_that_is_not_grounded_is_not_used(answer: Any) -> None:
    change = await reshaped(NODE, "fine", answer)
    (variant,) = change.variants.values()
    assert variant.metadata["written_by"] == "composition"
    assert variant.content == spell_out(SKILL, TASK, OBJECTION)


async def test_a_models_text_is_used_if_it_is_nearer_to_what_is_asked() -> None:
    embedder = HashEmbedder(256)
    asked = await embedder.embed_text(f"{TASK}\n{OBJECTION}")
    composed = spell_out(SKILL, TASK, OBJECTION)
    for answer in (GOOD, f"{SKILL} {TASK} {OBJECTION} {OBJECTION}"):
        change = await reshaped(NODE, "fine", answer)
        (variant,) = change.variants.values()
        nearer = float(await embedder.embed_text(answer) @ asked) > float(await embedder.embed_text(composed) @ asked)
        assert variant.metadata["written_by"] == ("llm" if nearer else "composition")


async def test_a_failing_model_leaves_the_composition() -> None:
    change = await reshaped(NODE, "fine", llm=FailingLLM())
    assert next(iter(change.variants.values())).metadata["written_by"] == "composition"


async def test_a_crashing_model_is_named_in_the_edit_and_asked_once() -> None:
    def crash(**_: Any) -> str:
        raise RuntimeError("the backend is gone")

    llm = ScriptedLLM({"reshape_content": crash})
    nodes = tuple(ProceduralNode(id=id, skill_text=f"{SKILL} {id}") for id in ("one", "two"))
    change = await propose_reshape(
        Proposal(action="reshape", score=1.0, reason="r", targets=("one", "two"), granularity="fine"),
        failure(OBJECTION, nodes),
        embedder=HashEmbedder(256),
        llm=llm,
    )
    assert change is not None
    assert change.edit.after["llm_error"] == "RuntimeError: the backend is gone"
    assert sorted(change.variants) == ["one", "two"]
    assert len(llm.calls_of("reshape_content")) == 1


async def test_a_fact_keeps_its_source() -> None:
    node = SemanticNode(id="f", content="Limits: two crates on Monday, three on Friday", source="notes", chunk_index=4)
    change = await reshaped(node, "coarse")
    (variant,) = change.variants.values()
    assert isinstance(variant, SemanticNode)
    assert (variant.source, variant.chunk_index, variant.variant_of) == ("notes", 4, "f")


async def test_an_episode_is_never_rewritten_but_gives_a_rule() -> None:
    node = EpisodicNode(id="e", task_description="Alert on app-3, 11 February: rm /var/log/shop/trace-77121.log")
    assert await reshaped(node, "fine") is None
    change = await reshaped(node, "coarse")
    (variant,) = change.variants.values()
    assert isinstance(variant, ProceduralNode)
    assert variant.variant_of == "e"
    assert variant.content.endswith("Alert on [name], [date]: rm [path]")
    assert variant.source_episode_ids == ("e", "run")


async def test_an_unknown_granularity_is_no_edit() -> None:
    assert await reshaped(NODE, "medium") is None


def test_spelling_out_keeps_the_text_and_adds_what_is_asked() -> None:
    text = spell_out(
        "Season: refresh the look, the offer, the terms; the leftovers", "Do the change", "It is not there."
    )
    assert text.splitlines() == [
        "Season: refresh the look, the offer, the terms; the leftovers",
        "Step by step:",
        "1. refresh the look",
        "2. the offer",
        "3. the terms",
        "4. the leftovers",
        "Do exactly what the task asks: Do the change",
        "Mind: It is not there.",
    ]


def test_generalising_leaves_what_the_task_shares() -> None:
    text = generalise("Refund 184.50 for booking 77-20913 on web-2 by 12 May (2 nights)", "refund on web-2")
    assert text == (
        "As a rule, with the values of the case at hand: Refund [number] for booking [number] on web-2 by [date]"
    )


def test_grounding() -> None:
    assert is_grounded(GOOD, SKILL, "fine", f"{TASK}\n{OBJECTION}")
    assert not is_grounded(SKILL, SKILL, "fine", TASK)
    assert not is_grounded("Rank the countries.", SKILL, "fine", TASK)
    assert not is_grounded(f"{GOOD} Use port 5432.", SKILL, "fine", f"{TASK}\n{OBJECTION}")
    assert is_grounded("Refund the booking by the date.", "Refund booking 77-20913 by the date", "coarse", "")
    assert not is_grounded("Refund booking 77-20913", "Refund booking 77-20913", "coarse", "")


def test_a_name_is_neither_translated_nor_invented() -> None:
    known, asked = "Ask Zoë Müller to restart the Munich server.", "restart the server and check its log"
    assert is_grounded("Ask Zoë Müller to restart the Munich server and check the log.", known, "fine", asked)
    for changed in ("Ask Zoe Miller to restart the Munich", "Ask Zoë Müller to restart the München"):
        assert not is_grounded(f"{changed} server and check the log.", known, "fine", asked)
    assert is_grounded("请张伟重启北京的服务器并检查日志", "请张伟重启北京的服务器", "fine", "检查日志")
    assert not is_grounded("请 Zhang Wei 重启 Beijing 的服务器并检查日志", "请张伟重启北京的服务器", "fine", "检查日志")


def test_what_was_left_undone_becomes_what_to_do() -> None:
    feedback = "It is the total, not an average per athlete as the question asks. It does not derive the average."
    assert spell_out("Rank by total.", "Which?", feedback).splitlines() == [
        "Rank by total.",
        "Above all, derive the average and give an average per athlete.",
        "Mind: It is the total, not an average per athlete as the question asks.",
        "Mind: It does not derive the average.",
    ]
