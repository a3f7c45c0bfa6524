"""Forgetting takes along what was derived from a node or quotes it; other experience stays as it was lived."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fluxmem_local.errors import InvalidInputError, NotFoundError
from fluxmem_local.graph import DistillEdge, EpisodicNode, GroundEdge, ProceduralNode
from fluxmem_local.memory_store import LEARNED_FROM, MemoryStore
from fluxmem_local.storage.times import period
from fluxmem_local.types import Layer, Origin, Scope

GATE = "The north gate opens with the green key."


@pytest.fixture
def store(make: Any) -> Any:
    with make.open(None) as opened:
        yield opened


def add(store: MemoryStore, *nodes: Any) -> list[str]:
    with store.transaction() as change:
        return change.add_nodes(nodes)


def skill(make: Any, text: str, **fields: Any) -> ProceduralNode:
    fields.setdefault("added_by", Origin.DERIVED)
    return ProceduralNode(skill_text=text, embedding=make.vector(text), **fields)


class TestQuotes:
    def test_an_episode_keeps_its_steps_without_the_quote(self, store: MemoryStore, make: Any) -> None:
        (gate,) = add(store, make.fact(GATE))
        lived = make.episode(
            "enter the house",
            id="lived",
            trajectory=((f"memory says: {GATE}", "use the green key"), ("the gate is open", "walk in")),
            success=True,
            feedback="good: the north gate, opens with the GREEN key",
            metadata={"rounds": [{"result": f"as in {GATE}", "context_ids": [gate, "lived"]}]},
        )
        add(store, lived)
        receipt = store.forget(ids=[gate])
        node = store.get("lived")
        assert isinstance(node, EpisodicNode)
        assert node.trajectory == (
            ("memory says: [forgotten].", "use the green key"),
            ("the gate is open", "walk in"),
        )
        assert node.feedback == "good: [forgotten]"
        assert node.metadata == {"rounds": [{"result": "as in [forgotten].", "context_ids": ["lived"]}]}
        assert node.embedding is not None
        assert (receipt.removed, receipt.changed) == ((gate,), (("lived", "quoted it"),))
        assert store.verify().problems == ()

    def test_a_task_that_quotes_loses_its_vector_with_its_words(self, store: MemoryStore, make: Any) -> None:
        (gate,) = add(store, make.fact(GATE))
        (id,) = add(store, make.episode(f"check whether {GATE}", success=True))
        store.forget(ids=[gate])
        node = store.get(id)
        assert isinstance(node, EpisodicNode)
        assert (node.content, node.task_description) == ("check whether [forgotten].",) * 2
        assert node.embedding is None
        assert store.nearest(Layer.EPISODIC, make.vector(f"check whether {GATE}"), 3) == []
        assert store.lexical(Layer.EPISODIC, "gate", 3) == []
        assert [hit for hit, _ in store.lexical(Layer.EPISODIC, "check whether", 3)] == [id]
        assert store.verify().problems == ()

    @pytest.mark.parametrize("before", ["\n", "\t", "\u001f", "\\", '"', "C:\\", "n"])
    def test_what_stands_before_the_first_word_hides_nothing(self, store: MemoryStore, make: Any, before: str) -> None:
        texts = [f"xylophone{number}q is it" for number in range(30)]
        ids = add(store, *(make.fact(text) for text in texts))
        told = make.episode(
            "listen", feedback=f"{before}{texts[7]}", metadata={"said": f"{before}{texts[8]}"}, success=True
        )
        add(store, told)
        store.forget(ids=ids)
        node = store.get(told.id)
        assert isinstance(node, EpisodicNode)
        # With a letter before it, it is another word.
        left = f"{before}{texts[7]}" if before == "n" else f"{before}[forgotten]"
        assert node.feedback == left
        assert (texts[8] in str(node.metadata)) is (before == "n")

    def test_earlier_contents_and_versions_are_found_in_quotes_too(self, store: MemoryStore, make: Any) -> None:
        (id,) = add(store, make.fact("The old password of the cellar was xylophone."))
        with store.transaction() as change:
            change.replace(replace(store.get(id), content="It is banjo now.", embedding=make.vector("banjo")))
        version = make.fact("Say banjo at the door of the cellar.", variant_of=id)
        said = make.episode(
            "go down",
            trajectory=(
                ("the old password of the cellar was xylophone", "say banjo at the door of the cellar"),
                ("it is banjo now", "go"),
            ),
            success=True,
        )
        add(store, version, said)
        receipt = store.forget(ids=[id])
        assert set(receipt.removed) == {id, version.id}
        node = store.get(said.id)
        assert isinstance(node, EpisodicNode)
        assert node.trajectory == (("[forgotten]", "[forgotten]"), ("[forgotten]", "go"))

    def test_the_history_of_others_is_cleaned(self, store: MemoryStore, make: Any) -> None:
        gate, other = add(store, make.fact(GATE), make.fact(f"Tom says: {GATE} He is sure."))
        with store.transaction() as change:
            change.replace(replace(store.get(other), content="Tom is quiet.", embedding=make.vector("quiet")))
        store.forget(ids=[gate])
        assert [entry.content for entry in store.history(other)] == [
            "Tom says: [forgotten]. He is sure.",
            "Tom is quiet.",
        ]

    def test_a_fact_that_quotes_was_stated_on_its_own(self, store: MemoryStore, make: Any) -> None:
        gate, other = add(store, make.fact(GATE), make.fact(f"Tom says: {GATE}"))
        receipt = store.forget(ids=[gate])
        assert receipt.kept == ((other, "quotes it, and was stated on its own"),)
        assert store.get(other).content == f"Tom says: {GATE}"

    def test_what_is_outdated_only_may_stay_quoted(self, store: MemoryStore, make: Any) -> None:
        gate, lived = add(store, make.fact(GATE), make.episode("enter", feedback=GATE, success=True))
        assert store.forget(ids=[gate], quotes_too=False).changed == ()
        node = store.get(lived)
        assert isinstance(node, EpisodicNode)
        assert node.feedback == GATE

    def test_a_skill_that_quotes_is_marked(self, store: MemoryStore, make: Any) -> None:
        (gate,) = add(store, make.fact(GATE))
        known = skill(
            make,
            f"1. {GATE}\n2. go in",
            metadata={"structure": {"steps": [{"template": GATE.lower(), "words": ["gate"]}]}},
        )
        add(store, known)
        assert store.forget(ids=[gate]).changed == ((known.id, "quoted it"),)
        node = store.get(known.id)
        assert isinstance(node, ProceduralNode)
        assert (node.content, node.skill_text) == ("1. [forgotten].\n2. go in",) * 2
        assert node.metadata == {"structure": {"steps": [{"template": "[forgotten].", "words": ["gate"]}]}}
        assert store.verify().problems == ()

    def test_other_episodes_of_the_same_action_are_as_they_were(self, store: MemoryStore, make: Any) -> None:
        first, second = (
            make.episode(
                f"restart number {number}", trajectory=(("down", "systemctl restart nginx now"),), success=True
            )
            for number in (1, 2)
        )
        add(store, first, second)
        assert store.forget(ids=[first.id]).changed == ()
        assert store.get(second.id) == replace(second, embedding=None)


class TestSkills:
    def test_one_of_forgotten_episodes_alone_goes_too(self, store: MemoryStore, make: Any) -> None:
        episodes = [make.episode(f"task {number}", success=True) for number in range(3)]
        both = skill(make, "both", source_episode_ids=(episodes[0].id, episodes[1].id))
        version = skill(make, "both, shorter", variant_of=both.id)
        more = skill(make, "more", source_episode_ids=tuple(each.id for each in episodes), pems_score=0.25)
        mine = skill(make, "mine", source_episode_ids=(episodes[0].id,), added_by=Origin.USER)
        add(store, *episodes, both, version, more, mine)
        with store.transaction() as change:
            change.add_edges([DistillEdge(source_id=episodes[0].id, target_id=each.id) for each in (both, more)])
        planned = store.forget(ids=[episodes[0].id, episodes[1].id], dry_run=True)
        assert store.count() == 7
        receipt = store.forget(ids=[episodes[0].id, episodes[1].id])
        assert receipt == planned
        assert receipt.removed == (episodes[0].id, episodes[1].id, both.id, version.id)
        assert receipt.kept == ((mine.id, "was written, not distilled from the forgotten episodes"),)
        assert receipt.changed == ((more.id, "lost a source"), (mine.id, "lost a source"))
        assert receipt.num_edges == 2
        left = store.get(more.id)
        assert isinstance(left, ProceduralNode)
        assert (left.source_episode_ids, left.pems_score) == ((episodes[2].id,), None)
        assert left.metadata == {"sources_forgotten": 2}
        store.forget(ids=[episodes[2].id])
        assert [node.id for node in store.select(layers=(Layer.PROCEDURAL,))] == [mine.id]
        assert store.verify().problems == ()

    def test_what_only_the_forgotten_episode_said_leaves_the_skill(self, store: MemoryStore, make: Any) -> None:
        gone, stays = (
            make.episode(
                "lift the lid", trajectory=(("", "press the round button on the side"),), success=ok, feedback=said
            )
            for ok, said in ((False, "Ada's secret diary was seen"), (True, ""))
        )
        told = {
            "pitfalls": [
                {"action": "lift", "feedback": "Ada's secret diary was seen", "episode_ids": [gone.id]},
                {"action": "press", "feedback": "no", "episode_ids": [gone.id, stays.id]},
            ],
            "steps": [{"template": "press the round button on the side", "succeeded_ids": [stays.id]}],
        }
        text = "1. press the round button on the side\nAvoid: lift (Ada's secret diary was seen)"
        known = skill(make, text, source_episode_ids=(gone.id, stays.id), metadata={"structure": told})
        add(store, gone, stays, known)
        store.forget(ids=[gone.id])
        node = store.get(known.id)
        assert node.content == "1. press the round button on the side\nAvoid: lift ([forgotten])"
        assert node.metadata["structure"] == {
            "pitfalls": [{"action": "press", "feedback": "no", "episode_ids": [stays.id]}],
            "steps": [{"template": "press the round button on the side", "succeeded_ids": [stays.id]}],
        }

    def test_a_fact_that_was_derived_from_episodes_goes_with_the_last_of_them(
        self, store: MemoryStore, make: Any
    ) -> None:
        first, second = (make.episode(f"walk {number}", success=True) for number in (1, 2))
        lesson = make.fact("after x, y", added_by=Origin.DERIVED, metadata={LEARNED_FROM: [first.id, second.id]})
        add(store, first, second, lesson)
        assert store.forget(ids=[first.id]).changed == ((lesson.id, "lost a source"),)
        assert store.get(lesson.id).metadata == {LEARNED_FROM: [second.id], "sources_forgotten": 1}
        assert store.forget(ids=[second.id]).removed == (second.id, lesson.id)


class TestAge:
    @pytest.fixture
    def ids(self, store: MemoryStore, make: Any) -> list[str]:
        days = [period(f"2026-01-0{day}", "day")[0] for day in range(1, 5)]
        return add(
            store,
            make.fact("one", created_at=days[0], source="a.md"),
            make.fact("two", created_at=days[1], source="a.md", scope=Scope("ada")),
            make.fact("three", created_at=days[2], source="b.md", metadata={"team": "ops"}),
            make.episode("four", created_at=days[3], success=True),
        )

    @pytest.mark.parametrize(
        ("options", "gone"),
        [
            ({"before": "2026-01-03"}, [0, 1]),
            ({"before": "2026-01"}, None),
            ({"before": "2026-01-03", "scope": Scope("ada")}, [1]),
            ({"before": "2026-01-02", "scope": Scope("ada")}, None),
            ({"before": "2026-01-04", "filters": {"team": "ops"}}, [2]),
            ({"before": "2026-01-02", "source": "a.md"}, [0]),
            ({"before": 2027}, [0, 1, 2, 3]),
        ],
        ids=str,
    )
    def test_what_is_older_goes(
        self, store: MemoryStore, ids: list[str], options: dict[str, Any], gone: list[int] | None
    ) -> None:
        if gone is None:
            with pytest.raises(NotFoundError, match="is older than"):
                store.forget(**options)
            assert store.count() == 4
        else:
            assert store.forget(**options).removed == tuple(ids[place] for place in gone)
            assert store.count() == 4 - len(gone)

    def test_ids_have_no_age(self, store: MemoryStore, ids: list[str]) -> None:
        with pytest.raises(InvalidInputError, match="give ids alone"):
            store.forget(ids=ids[:1], before="2027")
        with pytest.raises(InvalidInputError, match="before='soon' is no time"):
            store.forget(before="soon")
        assert store.count() == 4


def test_edges_that_name_it_go_and_their_words_too(store: MemoryStore, make: Any) -> None:
    gate, other, lived = add(store, make.fact(GATE), make.fact("else"), make.episode("enter", success=True))
    with store.transaction() as change:
        change.add_edges(
            [
                GroundEdge(source_id=gate, target_id=lived),
                GroundEdge(source_id=other, target_id=lived, metadata={"why": f"near {GATE}"}),
            ]
        )
    assert store.forget(ids=[gate]).num_edges == 1
    (edge,) = store.edges()
    assert edge.metadata == {"why": "near [forgotten]."}
