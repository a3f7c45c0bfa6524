from __future__ import annotations

import numpy as np
import pytest

from fluxmem_local.graph import Edit, EpisodicNode, GroundEdge, SemanticNode
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.retrieval.experience import Experience, learn
from fluxmem_local.types import Scope

from .conftest import Shelf
from .test_retriever import ids

TASK = "which country has the highest average of medals per athlete"
AGAIN = "which country has the highest average of medals per athlete in winter"
FACTS = {
    "viewer": "the spreadsheet viewer opens tables to find the country with the highest medals per athlete",
    "table": "the table of medals lists each athlete with country",
    "python": "pandas can group rows and aggregate them",
    "average": "an average is a sum over a count of medals",
    "yeast": "bread needs yeast",
}


@pytest.fixture
async def repaired(shelf: Shelf) -> Shelf:
    await shelf.facts(**FACTS)
    await shelf.episode("past", TASK)
    shelf.edit("prune", "past", "viewer")
    shelf.edit("expand", "past", "python")
    shelf.outcome("past", helped=["python", "table"], hurt=["viewer"])
    return shelf


async def test_before_any_repair_content_decides(shelf: Shelf) -> None:
    await shelf.facts(**FACTS)
    hits = ids(await shelf.retriever().retrieve(AGAIN, top_k=3))
    assert hits[0] == "viewer"
    assert "python" not in hits


@pytest.mark.parametrize("top_k", [1, 2, 3])
async def test_a_repair_that_worked_once_is_there_at_the_next_similar_task(repaired: Shelf, top_k: int) -> None:
    hits = await repaired.retriever().retrieve(AGAIN, top_k=top_k)
    assert hits[0].node.id == "python"
    assert hits[0].signals["graph"] > 0


async def test_what_misled_sinks_below_all_alternatives(repaired: Shelf) -> None:
    hits = await repaired.retriever().retrieve(AGAIN, top_k=5)
    assert ids(hits)[-1] == "viewer"
    assert len(hits) == 5
    assert hits[-1].signals["graph"] < 0
    assert "viewer" not in ids(await repaired.retriever().retrieve(AGAIN, top_k=5, drop_dispensable=True))


async def test_outcomes_alone_teach_as_well(shelf: Shelf) -> None:
    """A memory without edits, as one that was imported."""
    await shelf.facts(**FACTS)
    await shelf.episode("past", TASK, success=False)
    shelf.outcome("past", hurt=["viewer"])
    assert ids(await shelf.retriever().retrieve(AGAIN, top_k=5))[-1] == "viewer"


async def test_unrelated_tasks_see_no_change(shelf: Shelf) -> None:
    await shelf.facts(**FACTS)
    question = "open the spreadsheet viewer"
    before = [(hit.node.id, hit.score, hit.signals) for hit in await shelf.retriever().retrieve(question)]
    await shelf.episode("past", TASK)
    shelf.edit("prune", "past", "viewer")
    shelf.outcome("past", helped=["python"], hurt=["viewer"])
    assert [(hit.node.id, hit.score, hit.signals) for hit in await shelf.retriever().retrieve(question)] == before


async def test_an_undone_or_rolled_back_repair_teaches_nothing(shelf: Shelf) -> None:
    await shelf.facts(**FACTS)
    before = ids(await shelf.retriever().retrieve(AGAIN))
    await shelf.episode("past", TASK)
    shelf.edit("expand", "past", "python", kept=False)
    shelf.edit("prune", "past", "viewer", kept=None)
    assert ids(await shelf.retriever().retrieve(AGAIN)) == before


async def test_help_outweighs_harm_in_less_similar_tasks(shelf: Shelf) -> None:
    await shelf.facts(**FACTS)
    await shelf.episode("near", AGAIN)
    await shelf.episode("far", "which country has the most of medals for an athlete", success=False)
    shelf.outcome("near", helped=["viewer"])
    shelf.outcome("far", hurt=["viewer"])
    hits = await shelf.retriever().retrieve(AGAIN)
    assert hits[0].node.id == "viewer"
    assert hits[0].signals["graph"] > 0


async def test_grounding_in_similar_successes_lifts_and_in_failures_lowers(shelf: Shelf) -> None:
    await shelf.facts(one="medals by country one", two="medals by country two", three="medals by country three")
    await shelf.episode("won", TASK, success=True)
    await shelf.episode("lost", AGAIN, success=False)
    shelf.link(
        GroundEdge(source_id="two", target_id="won"),
        GroundEdge(source_id="one", target_id="lost"),
    )
    hits = await shelf.retriever(bm25_weight=0).retrieve(TASK, top_k=3)
    values = {hit.node.id: hit.signals["graph"] for hit in hits}
    assert values["two"] == pytest.approx(0.5 / 1.5)
    assert values["three"] == 0.0
    assert values["one"] < 0
    # At hand in a failure is no proof of misleading: it stays within the reach of its content.
    assert hits[-1].score > 0


async def test_edge_failures_weaken_what_grounding_says(shelf: Shelf) -> None:
    await shelf.facts(one="medals by country one", two="medals by country two")
    await shelf.episode("won", TASK)
    shelf.link(
        GroundEdge(source_id="one", target_id="won"),
        GroundEdge(source_id="two", target_id="won", failure_count=3),
    )
    values = {hit.node.id: hit.signals["graph"] for hit in await shelf.retriever().retrieve(TASK)}
    assert values["one"] == pytest.approx(0.5 / 1.5)
    assert values["two"] == pytest.approx(0.125 / 1.125)


async def test_a_linked_fact_is_a_candidate_without_any_word_in_common(shelf: Shelf) -> None:
    await shelf.facts(**{f"n{number:03}": f"{TASK} {number}" for number in range(60)})
    await shelf.facts(odd="zwieback")
    await shelf.episode("past", TASK)
    shelf.outcome("past", helped=["odd"])
    hits = await shelf.retriever(graph_weight=5).retrieve(AGAIN, top_k=2)
    assert ids(hits)[0] == "odd"


async def test_another_users_lessons_and_facts_stay_theirs(shelf: Shelf) -> None:
    ada, ben = Scope(user="ada"), Scope(user="ben")
    await shelf.facts(**FACTS)
    await shelf.put(SemanticNode(id="secret", content="pandas on ada's laptop", scope=ada))
    await shelf.episode("past", TASK, scope=ada)
    shelf.edit("expand", "past", "secret")
    shelf.outcome("past", helped=["secret"], hurt=["viewer"])
    assert ids(await shelf.retriever().retrieve(AGAIN, scope=ada))[0] == "secret"
    assert ids(await shelf.retriever().retrieve(AGAIN, scope=ben))[0] == "viewer"
    # A lesson that everyone sees must not bring in what only one may see.
    await shelf.episode("shared", TASK)
    shelf.edit("expand", "shared", "secret")
    assert "secret" not in ids(await shelf.retriever().retrieve(AGAIN, scope=ben))


async def test_of_a_fact_and_its_version_the_proved_one_is_returned(shelf: Shelf) -> None:
    await shelf.facts(total="medals per athlete are a total", yeast="bread needs yeast")
    await shelf.put(
        SemanticNode(id="fine", content="divide the sum of medals by the number of athletes", variant_of="total")
    )
    assert ids(await shelf.retriever().retrieve("medals athletes", top_k=3)) == ["total", "yeast"]
    await shelf.episode("past", TASK)
    shelf.edit("reshape", "past", "total", after={"variants": {"total": "fine"}}, granularity="fine")
    shelf.outcome("past", helped=["fine"])
    found = ids(await shelf.retriever().retrieve(AGAIN, top_k=3))
    assert found[0] == "fine"
    assert "total" not in found
    unrelated = ids(await shelf.retriever().retrieve("a total of medals", top_k=3))
    assert unrelated[0] == "total"
    assert "fine" not in unrelated


async def test_a_related_task_moves_values_and_no_more() -> None:
    """The same need in quite other words: what helped it rises, but nothing is lifted or left out."""
    store = MemoryStore.open(None)
    with store.transaction() as transaction:
        transaction.add_nodes(
            [
                SemanticNode(id="good", content="one"),
                SemanticNode(id="bad", content="two"),
                EpisodicNode(id="past", task_description="a task", success=True),
            ]
        )
        transaction.record_outcomes(
            [Outcome(node_id="good", episode_id="past", helped=1), Outcome(node_id="bad", episode_id="past", hurt=1)]
        )
        transaction.put_edit(Edit(kind="expand", targets=("good",), reason="test", kept=True, episode_id="past"))
    past = store.get("past")
    assert isinstance(past, EpisodicNode)
    related = learn(store, [(past, 0.5)], 0.4, 0.6)
    # Relevance 0.25, evidence of 1 against a prior of 1.
    assert related.values == pytest.approx({"good": 0.2, "bad": -0.2})
    assert (related.repairs, related.misleading, related.dispensable) == ({}, frozenset(), frozenset())
    assert related.proved == {"good": 0.0, "bad": 0.0}
    same = learn(store, [(past, 1.0)], 0.4, 0.6)
    assert same.repairs == {"good": 1.0}
    assert same.misleading == same.dispensable == frozenset({"bad"})


async def test_lessons_work_without_an_embedder(wordy_shelf: Shelf) -> None:
    await wordy_shelf.facts(**FACTS)
    await wordy_shelf.episode("past", TASK)
    wordy_shelf.edit("expand", "past", "python")
    wordy_shelf.outcome("past", helped=["python"], hurt=["viewer"])
    hits = ids(await wordy_shelf.retriever().retrieve(AGAIN, top_k=3))
    assert hits[0] == "python"
    assert "viewer" not in hits


async def test_a_task_of_every_day_remembers_its_one_repair(shelf: Shelf) -> None:
    await shelf.facts(**FACTS)
    await shelf.put(*[EpisodicNode(id=f"day{number:03}", task_description=TASK, success=True) for number in range(200)])
    for number in range(200):
        shelf.outcome(f"day{number:03}", helped=["table", "average"])
    shelf.edit("expand", "day117", "python")
    shelf.outcome("day117", helped=["python"], hurt=["viewer"])
    hits = ids(await shelf.retriever().retrieve(AGAIN, drop_dispensable=True))
    assert hits[0] == "python"
    assert "viewer" not in hits


async def test_what_was_there_at_the_success_did_not_mislead(shelf: Shelf) -> None:
    """Active in two failed rounds and in the one that succeeded."""
    await shelf.facts(**FACTS)
    await shelf.episode("past", TASK)
    shelf.outcome("past", helped=["viewer"], hurt=["viewer"])
    shelf.outcome("past", hurt=["viewer"])
    hits = await shelf.retriever().retrieve(AGAIN, top_k=5, drop_dispensable=True)
    assert hits[0].node.id == "viewer"


async def test_a_failure_that_nothing_mended_hides_nothing(shelf: Shelf) -> None:
    await shelf.facts(**FACTS)
    await shelf.episode("past", TASK, success=False)
    shelf.outcome("past", hurt=["viewer"])
    assert ids(await shelf.retriever().retrieve(AGAIN, top_k=5, drop_dispensable=True))[-1] == "viewer"


@pytest.mark.parametrize("settings", [{}, {"graph_weight": 50}, {"graph_weight": 0}, {"candidate_factor": 1}])
async def test_no_weight_keeps_a_repair_out(shelf: Shelf, settings: dict[str, float]) -> None:
    await shelf.facts(**{f"n{number:03}": f"{AGAIN} {number}" for number in range(30)}, odd="zwieback")
    await shelf.episode("past", TASK)
    await shelf.episode("other", AGAIN)
    shelf.outcome("past", helped=["odd"])
    shelf.edit("expand", "past", "odd")
    for _ in range(9):
        shelf.outcome("other", helped=[f"n{number:03}" for number in range(30)])
    assert ids(await shelf.retriever(**settings).retrieve(AGAIN, top_k=3))[0] == "odd"


async def test_one_place_stays_free_for_what_content_says(shelf: Shelf) -> None:
    await shelf.facts(**{f"old{number}": f"old note {number}" for number in range(6)})
    await shelf.episode("past", TASK)
    shelf.edit("expand", "past", *[f"old{number}" for number in range(6)])
    await shelf.facts(newest=AGAIN)
    found = ids(await shelf.retriever().retrieve(AGAIN, top_k=5))
    assert found[:4] == [id for id in found if id != "newest"]
    assert found[4] == "newest"


def test_of_what_merely_related_tasks_speak_for_the_best_fitting_rise() -> None:
    experience = Experience(values={"a": 0.3, "b": 0.3, "c": 0.3, "d": 0.5, "e": -0.2}, proved={"d": 0.5, "e": -0.2})
    content = np.array([0.1, 0.4, 0.3, 0.0, 0.0], np.float32)
    risen = experience.signal(["a", "b", "c", "d", "e"], content, 2)
    # The task like the asked one has its say whatever the place.
    assert risen.tolist() == pytest.approx([0.0, 0.3, 0.3, 0.5, -0.2])
    assert experience.signal(["a", "b"], content[:2], 0).tolist() == [0.0, 0.0]


async def test_what_served_in_place_of_a_cut_is_there_at_the_next_similar_task(shelf: Shelf) -> None:
    await shelf.facts(**{f"n{number:03}": f"{AGAIN} {number}" for number in range(30)}, viewer="x", odd="zwieback")
    await shelf.episode("past", TASK)
    shelf.edit("prune", "past", "viewer", after={"instead": ["odd"]})
    shelf.outcome("past", helped=["odd"], hurt=["viewer"])
    assert ids(await shelf.retriever().retrieve(AGAIN, top_k=3))[0] == "odd"


@pytest.mark.parametrize(
    ("failures", "first", "value"),
    # Helped 1 in one task of relevance 1 and prior 1: 1 / 2; each failure halves, thirds ... what helped.
    [(0, True, 1 / 2), (1, True, 0.5 / 1.5), (2, False, (1 / 3) / (4 / 3))],
)
async def test_each_later_failure_weakens_a_repair(shelf: Shelf, failures: int, first: bool, value: float) -> None:
    await shelf.facts(**{f"n{number:03}": f"{TASK} {number}" for number in range(9)}, odd="zwieback")
    await shelf.episode("past", TASK)
    link = GroundEdge(source_id="odd", target_id="past")
    shelf.link(link)
    shelf.edit("expand", "past", "odd")
    shelf.outcome("past", helped=["odd"])
    with shelf.store.transaction() as transaction:
        for _ in range(failures):
            transaction.count_activations([link.id], success=False)
    (task,) = shelf.store.get_many(["past"])
    assert isinstance(task, EpisodicNode)
    learned = learn(shelf.store, [(task, 1.0)], 0.35, 0.6)
    assert learned.values["odd"] == pytest.approx(value)
    assert (ids(await shelf.retriever().retrieve(TASK, top_k=3))[0] == "odd") is first
