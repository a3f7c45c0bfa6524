"""Cases: what the slots of a skill had in each episode, and how that went."""

from __future__ import annotations

from fluxmem_local.graph import Case, EpisodicNode
from fluxmem_local.stages.cases import collect_cases
from fluxmem_local.stages.induction import induce_skill


def lived(id: str, item: str, place: str, *, success: bool = True, wrong: tuple[str, ...] = ()) -> EpisodicNode:
    rounds = [{"result": f"put {item} in {other}", "success": False} for other in wrong]
    return EpisodicNode(
        id=id,
        task_description=f"put the {item} in its usual place",
        trajectory=(("", f"put {item} in {place}"),),
        success=success,
        status="succeeded" if success else "failed",
        created_at=float(len(id)),
        metadata={"rounds": rounds} if rounds else {},
    )


COAT = lived("a", "gray coat", "wardrobe")
CUP = lived("bb", "clean cup", "shelf", wrong=("sink",))
SOCKS = lived("ccc", "black socks", "chest of drawers")
AGAIN = lived("dddd", "gray coat", "wardrobe")
MISPLACED = lived("eeeee", "gray coat", "sofa", success=False)


def test_each_pair_of_values_is_a_case_with_its_episodes_newest_first() -> None:
    successes = [COAT, CUP, SOCKS, AGAIN]
    skill = induce_skill(successes)
    assert skill.use == "put the <1:item> in its usual place"
    assert collect_cases(skill, successes, [MISPLACED]) == (
        Case(values=("gray coat", "wardrobe"), succeeded_ids=("dddd", "a")),
        Case(values=("black socks", "chest of drawers"), succeeded_ids=("ccc",)),
        Case(values=("clean cup", "shelf"), succeeded_ids=("bb",)),
        Case(values=("gray coat", "sofa"), failed_ids=("eeeee",)),
        # The round that failed before the cup found its place.
        Case(values=("clean cup", "sink"), failed_ids=("bb",)),
    )


def test_more_episodes_than_are_aligned_are_all_cases() -> None:
    successes = [lived(f"{number:03}", f"thing{number}", f"place{number % 7}") for number in range(150)]
    assert len(collect_cases(induce_skill(successes), successes, ())) == 150


def test_a_skill_whose_tasks_give_all_there_is_to_know_has_no_cases() -> None:
    episodes = [
        EpisodicNode(
            id=name,
            task_description=f"restart {name}",
            trajectory=(("", f"systemctl restart {name}"),),
            success=True,
            status="succeeded",
        )
        for name in ("web", "mail", "cache")
    ]
    assert collect_cases(induce_skill(episodes), episodes, ()) == ()


def test_a_case_survives_json() -> None:
    case = Case(values=("a", ""), succeeded_ids=("x",), failed_ids=("y", "z"))
    assert Case.from_dict(case.to_dict()) == case
