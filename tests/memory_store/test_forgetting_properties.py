"""Whatever is forgotten of whatever memory: no text of it stays in what is left, and the graph is sound."""

from __future__ import annotations

import json
import string
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluxmem_local.graph import DistillEdge, Edit, GroundEdge, ProceduralNode
from fluxmem_local.memory_store import MemoryStore
from fluxmem_local.types import Origin

from .conftest import Maker

WORDS = ["gate", "key", "lamp", "well", "roof", "barn", "path", "moss", "fern", "clay", "reed", "dune"]
NUMBER = 6
# For each fact the words that only it has.
FACTS = [" ".join(f"{WORDS[place]}{letter}" for place in range(5)) for letter in string.ascii_lowercase[:NUMBER]]
places = st.integers(0, NUMBER - 1)
quotes = st.lists(st.tuples(places, st.sampled_from(["{}", "so {} now", "{}!", "'{}'", "a {}"])), max_size=3)


def said(chosen: list[tuple[int, str]], *, upper: bool) -> str:
    text = " and then ".join(form.format(FACTS[place]) for place, form in chosen) or "nothing"
    return text.upper() if upper else text


@given(
    episodes=st.lists(st.tuples(quotes, quotes, st.booleans()), min_size=1, max_size=4),
    skill=quotes,
    reason=quotes,
    gone=st.sets(places, min_size=1, max_size=3),
    lost=st.sets(st.integers(0, 3)),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_text_of_it_stays(
    episodes: list[tuple[Any, Any, bool]], skill: Any, reason: Any, gone: set[int], lost: set[int]
) -> None:
    make = Maker()
    facts = [make.fact(text, id=f"fact {place}") for place, text in enumerate(FACTS)]
    lived = [
        make.episode(
            f"task {number}",
            id=f"lived {number}",
            trajectory=((said(seen, upper=upper), said(done, upper=not upper)),),
            feedback=said(done, upper=upper),
            metadata={"rounds": [{"result": said(seen, upper=False)}]},
            success=True,
        )
        for number, (seen, done, upper) in enumerate(episodes)
    ]
    text = f"1. {said(skill, upper=False)}"
    known = ProceduralNode(
        id="skill",
        skill_text=text,
        embedding=make.vector(text),
        source_episode_ids=tuple(each.id for each in lived),
        added_by=Origin.DERIVED,
    )
    with MemoryStore.open(None, fingerprint=make.embedder.fingerprint, dimension=32) as store:
        with store.transaction() as change:
            change.add_nodes([*facts, *lived, known])
            change.add_edges([GroundEdge(source_id=each.id, target_id=lived[0].id) for each in facts])
            change.add_edges([DistillEdge(source_id=each.id, target_id="skill") for each in lived])
            change.put_edit(Edit(kind="expand", targets=("fact 0", "fact 1"), reason=said(reason, upper=False)))
        ids = [f"fact {place}" for place in sorted(gone)]
        ids += [f"lived {number}" for number in sorted(lost) if number < len(lived)]
        planned = store.forget(ids=ids, dry_run=True)
        receipt = store.forget(ids=ids)
        assert receipt == planned
        left = "\n".join(store.export_lines()).casefold()
        for place in gone:
            assert FACTS[place] not in left
        for place in set(range(NUMBER)) - gone:
            assert FACTS[place] in left
        assert ("skill" in receipt.removed) is (len([id for id in ids if id.startswith("lived")]) == len(lived))
        kept = {node.id for node in store.select()}
        assert kept == {*(each.id for each in (*facts, *lived, known))} - set(receipt.removed)
        assert store.verify().problems == ()
        for id, _ in receipt.changed:
            assert id in kept
        records = [json.loads(line) for line in store.export_lines()]
        assert {record["key"] for record in records if record.get("kind") == "id"} == set(receipt.removed)
