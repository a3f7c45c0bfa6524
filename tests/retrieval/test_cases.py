"""Which cases a skill shows for a task, by values worked out on vectors made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fluxmem_local.graph import Case, ProceduralNode, Skill, Slot, Step
from fluxmem_local.retrieval import CaseIndex, refute_values
from fluxmem_local.retrieval.cases import case_episodes
from fluxmem_local.types import FloatArray

SKILL = Skill(
    name="put",
    use="put the <1:item> away",
    steps=(Step(template="put <1:item> in <2:item>", words=("put", "in"), succeeded_ids=("a",)),),
    slots=(Slot(number=1, kind="item"), Slot(number=2, kind="item")),
)


def vector(*values: float) -> FloatArray:
    row = np.array(values, np.float32)
    return row / np.linalg.norm(row)


def skill_of(*cases: Case) -> ProceduralNode:
    return ProceduralNode(
        id="skill",
        skill_text=SKILL.render() + "\nSeen: <1> = old",
        metadata={"structure": SKILL.to_dict(), "cases": [case.to_dict() for case in cases]},
    )


# The first axis is what cups and coats differ in; the second is cleanness, which tells the places of cups apart; the
# third is colour, in which all differ and which says nothing.
CASES = (
    Case(values=("clean cup", "shelf"), succeeded_ids=("clean cup",)),
    Case(values=("clean mug", "shelf"), succeeded_ids=("clean mug",)),
    Case(values=("dirty cup", "sink"), succeeded_ids=("dirty cup",)),
    Case(values=("dirty bowl", "sink"), succeeded_ids=("dirty bowl",)),
    Case(values=("gray coat", "wardrobe"), succeeded_ids=("gray coat",)),
    Case(values=("red coat", "wardrobe"), succeeded_ids=("red coat",)),
)
VECTORS = {
    "clean cup": vector(1, 0.4, 1),
    "clean mug": vector(1, 0.4, -1),
    "dirty cup": vector(1, -0.4, 2),
    "dirty bowl": vector(1, -0.4, -2),
    "gray coat": vector(-1, 0, 1),
    "red coat": vector(-1, 0, -1),
}


def shown(node: ProceduralNode) -> list[tuple[str, ...]]:
    return list(Skill.from_dict(node.metadata["structure"]).examples)


def present(
    node: ProceduralNode, item: str, of: FloatArray | None, *, seen: str = "", leave_out: str = ""
) -> ProceduralNode:
    task = f"put the {item} away"
    index = CaseIndex(node, VECTORS)
    return index.present(node, task=task, seen=f"{task}\n{seen}", vector=of, leave_out=leave_out)


def test_what_varies_within_a_place_does_not_count() -> None:
    glass = vector(1, 0.3, 2)
    # By cosine alone, the dirty cup of the same colour is nearest.
    assert max(VECTORS, key=lambda name: float(VECTORS[name] @ glass)) == "dirty cup"
    assert shown(present(skill_of(*CASES), "glass", glass))[0] == ("clean cup", "shelf")


def test_words_count_beside_meaning_and_alone_where_there_is_no_vector() -> None:
    assert shown(present(skill_of(*CASES), "dirty plate", None))[0][1] == "sink"
    assert shown(present(skill_of(*CASES), "dirty plate", vector(1, 0, 0)))[0][1] == "sink"


def test_the_text_shows_the_chosen_cases_in_place_of_others() -> None:
    node = present(skill_of(*CASES), "blue coat", vector(-1, 0, 0.2))
    assert node.skill_text == (
        "When to use: put the <1:item> away\n1. put <1:item> in <2:item>\n"
        "Seen: <1> = gray coat, <2> = wardrobe\nSeen: <1> = red coat, <2> = wardrobe"
    )
    assert node.content == node.skill_text


def test_what_the_observation_names_comes_alone() -> None:
    node = present(
        skill_of(*CASES), "dirty plate", vector(1, -0.4, 0), seen="You see a shelf and a wardrobe-like thing."
    )
    assert {values[1] for values in shown(node)} <= {"shelf", "wardrobe"}
    # Part of another word is no name of it.
    node = present(skill_of(*CASES), "dirty plate", vector(1, -0.4, 0), seen="a bookshelf")
    assert shown(node)[0][1] == "sink"


def test_what_failed_with_something_alike_counts_against_and_is_told() -> None:
    before = present(skill_of(*CASES), "blue coat", vector(-1, 0, 0))
    assert [values[1] for values in shown(before)] == ["wardrobe", "wardrobe"]
    vectors = {**VECTORS, "failed": vector(-1, 0, 0)}
    node = skill_of(*CASES, Case(values=("blue coat", "wardrobe"), failed_ids=("failed",)))
    after = CaseIndex(node, vectors).present(
        node, task="put the blue coat away", seen="put the blue coat away", vector=vector(-1, 0, 0)
    )
    structure = Skill.from_dict(after.metadata["structure"])
    assert [pitfall.action for pitfall in structure.pitfalls] == ["put blue coat in wardrobe"]
    assert "Avoid: put blue coat in wardrobe" in after.skill_text


def test_an_episode_that_is_left_out_or_gone_tells_nothing() -> None:
    node = present(skill_of(*CASES), "gray coat", VECTORS["gray coat"], leave_out="gray coat")
    assert ("gray coat", "wardrobe") not in shown(node)
    node = skill_of(*CASES)
    gone = CaseIndex(node, {"red coat": VECTORS["red coat"]})
    task = "put the gray coat away"
    left = gone.present(node, task=task, seen=task, vector=VECTORS["gray coat"])
    assert [Case.from_dict(each).values for each in left.metadata["shown"]] == [("red coat", "wardrobe")]
    assert CaseIndex(node, {}).present(node, task=task, seen=task, vector=None) is node


def test_a_refuted_value_makes_way_for_the_next_and_stands_as_a_pitfall() -> None:
    first = present(skill_of(*CASES), "dirty plate", vector(1, -0.4, 0))
    assert shown(first)[0][1] == "sink"
    refuted = refute_values(first, "put the dirty plate away", "put dirty plate in sink")
    assert refuted is not None
    values, view = refuted
    assert values == ("dirty plate", "sink")
    assert "sink" not in {values[1] for values in shown(view)}
    assert "Avoid: put dirty plate in sink" in view.skill_text
    again = refute_values(view, "put the dirty plate away", "put dirty plate in shelf")
    assert again is not None
    assert {values[1] for values in shown(again[1])} <= {"wardrobe"}
    structure = Skill.from_dict(again[1].metadata["structure"])
    assert {pitfall.action for pitfall in structure.pitfalls} == {
        "put dirty plate in sink",
        "put dirty plate in shelf",
    }


@pytest.mark.parametrize("done", ["take dirty plate", "put clean cup in sink", ""])
def test_a_step_that_did_not_follow_the_skill_refutes_nothing(done: str) -> None:
    node = present(skill_of(*CASES), "dirty plate", vector(1, -0.4, 0))
    assert refute_values(node, "put the dirty plate away", done) is None


def test_a_skill_that_shows_no_cases_refutes_nothing() -> None:
    assert refute_values(skill_of(*CASES), "put the cup away", "put cup in sink") is None
    assert case_episodes(ProceduralNode(skill_text="by hand")) == []


def test_what_was_sought_speaks_for_itself() -> None:
    index = CaseIndex(skill_of(*CASES), VECTORS)
    assert index.sought_texts == ["shelf", "sink", "wardrobe"]
    assert index.given_in("put the key away") == "key"
    assert index.given_in("find the key") == ""
    task = "put the soap dish away"
    # Between clean and dirty, the likeness of soap dish and sink decides.
    undecided = vector(1, 0, 0)
    index.learn_meanings({"shelf": vector(1, 0, 0), "sink": vector(0, 1, 0), "wardrobe": vector(0, 0, 1)})
    for like, place in ((vector(0, 1, 0), "sink"), (vector(1, 0, 0), "shelf")):
        node = index.present(skill_of(*CASES), task=task, seen=task, vector=undecided, given_vector=like)
        assert {values[1] for values in shown(node)} == {place}


def test_what_is_like_no_case_is_shown_none_until_a_step_has_failed() -> None:
    more = [Case(values=(f"thing {number}", f"place {number}"), succeeded_ids=(f"{number}",)) for number in range(20)]
    rows = np.eye(21, dtype=np.float32)
    node = skill_of(*more)
    index = CaseIndex(node, {f"{number}": rows[number] for number in range(20)})
    task = "put the key away"
    asked = 0.15 * rows[3] + rows[20]
    first = index.present(node, task=task, seen=task, vector=asked / np.linalg.norm(asked))
    assert shown(first) == []
    assert [line for line in first.skill_text.splitlines() if line.startswith("Seen: ")] == []
    refuted = refute_values(first, task, "put key in place 7")
    assert refuted is not None
    assert shown(refuted[1]) == [("thing 3", "place 3")]
