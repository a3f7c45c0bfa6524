from __future__ import annotations

import pytest

from fluxmem_local.models.embedder import SentenceTransformerEmbedder
from fluxmem_local.types import Layer

from .conftest import Shelf
from .test_retriever import ids

TASK = "Which country has the highest average of medals per athlete?"
REWORDED = "On average, athletes of which nation win the most medals each?"
UNRELATED = "Open the budget of 2019 and tell me what we spent on travel."
FACTS = {
    "viewer": "Tables are looked at with the spreadsheet viewer, which answers questions on countries and medals.",
    "script": "A script that groups rows and divides sums by counts gets through files of any size.",
    "podium": "Each country may send three athletes to the podium.",
    "total": "The total of medals of a country is the sum over its athletes.",
    "host": "The host country names the sports in which medals are won.",
    "travel": "Travel costs are kept in the budget by year.",
    "oven": "Bread is baked at 220 degrees.",
}


@pytest.mark.real_model
async def test_a_repair_carries_over_to_other_words_of_the_same_task_only() -> None:
    shelf = Shelf(SentenceTransformerEmbedder())
    await shelf.facts(**FACTS)
    retriever = shelf.retriever()
    before = [(hit.node.id, hit.score) for hit in await retriever.retrieve(UNRELATED)]
    assert ids(await retriever.retrieve(REWORDED, top_k=3))[0] == "total"
    assert "script" not in ids(await retriever.retrieve(REWORDED, top_k=3))

    await shelf.episode("past", TASK)
    shelf.edit("prune", "past", "total")
    shelf.edit("expand", "past", "script")
    shelf.outcome("past", helped=["script"], hurt=["total"])

    after = ids(await retriever.retrieve(REWORDED, top_k=3))
    assert after[0] == "script"
    assert "total" not in after
    assert [(hit.node.id, hit.score) for hit in await retriever.retrieve(UNRELATED)] == before
    assert ids(await retriever.retrieve(REWORDED, layers=(Layer.EPISODIC,))) == ["past"]
    shelf.store.close()
