from __future__ import annotations

from fluxmem_local.graph import SemanticNode
from fluxmem_local.retrieval.verification import evidence_of
from fluxmem_local.testing import ScriptedLLM

from .conftest import Shelf


def test_a_short_text_is_read_with_what_stands_before_it() -> None:
    question, answer = SemanticNode(content="What did he build?"), SemanticNode(content="A cello.")
    assert evidence_of(answer, question) == "What did he build?\nA cello."
    assert evidence_of(answer, None) == "A cello."
    assert evidence_of(SemanticNode(content="x" * 630), question) == "x" * 630


def test_headings_are_read_too() -> None:
    node = SemanticNode(content="Run the script.", metadata={"headings": "Install > Linux"})
    assert evidence_of(node, None) == "Install > Linux\nRun the script."


async def test_the_model_reads_each_candidate_with_the_turn_before_it(wordy_shelf: Shelf) -> None:
    turns = ["Ben: hello there", "Ben: what did he build?", "Ana: a cello"]
    await wordy_shelf.put(
        *[SemanticNode(id=f"t{n}", source="chat", chunk_index=n, content=text) for n, text in enumerate(turns)]
    )
    llm = ScriptedLLM({"verify": lambda claim, evidence: 0.5})
    await wordy_shelf.retriever(llm).retrieve("which cello did he build", top_k=2)
    read = llm.calls_of("verify_batch")[0].arguments["evidences"]
    assert "Ben: what did he build?\nAna: a cello" in read
    assert "Ben: hello there\nBen: what did he build?" in read
