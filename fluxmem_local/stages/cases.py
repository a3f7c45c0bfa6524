"""Cases: what the slots of a skill had in each episode it was distilled from, and in those that failed."""

from __future__ import annotations

from collections.abc import Sequence

from fluxmem_local.graph import Case, EpisodicNode, Skill, read_values, sought_slots

from .teaching import actions_of

__all__ = ["collect_cases"]

_MOST_CASES = 512
_MOST_IDS = 8


def collect_cases(
    skill: Skill, successes: Sequence[EpisodicNode], failures: Sequence[EpisodicNode]
) -> tuple[Case, ...]:
    """Read the slots' values from all episodes, those with the same values as one case, newest first.

    A round that failed before a task was solved is a case that failed, as is the last action of a task that stayed
    unsolved. A skill whose tasks give all there is to know has no cases.
    """
    sought = sought_slots(skill)
    if not sought:
        return ()
    succeeded: dict[tuple[str, ...], list[str]] = {}
    failed: dict[tuple[str, ...], list[str]] = {}
    newest = sorted([*successes, *failures], key=lambda episode: (-episode.created_at, episode.id))
    won = {episode.id for episode in successes}
    for episode in newest:
        actions = actions_of(episode)
        lost = _failed_rounds(episode)
        if episode.id in won:
            _note(skill, sought, episode, actions, succeeded)
        elif actions and not lost:
            lost = [actions[-1]]
        for action in lost:
            _note(skill, sought, episode, [action], failed)
    rows = list(dict.fromkeys([*succeeded, *failed]))[:_MOST_CASES]
    return tuple(
        Case(
            values=values,
            succeeded_ids=tuple(succeeded.get(values, ())[:_MOST_IDS]),
            failed_ids=tuple(failed.get(values, ())[:_MOST_IDS]),
        )
        for values in rows
    )


def _note(
    skill: Skill,
    sought: frozenset[int],
    episode: EpisodicNode,
    actions: Sequence[str],
    into: dict[tuple[str, ...], list[str]],
) -> None:
    known = read_values(skill, episode.task_description, actions)
    if any(number in known for number in sought):
        into.setdefault(tuple(known.get(slot.number, "") for slot in skill.slots), []).append(episode.id)


def _failed_rounds(episode: EpisodicNode) -> list[str]:
    rounds = episode.metadata.get("rounds")
    if not isinstance(rounds, list):
        return []
    done = [each.get("result") for each in rounds if isinstance(each, dict) and each.get("success") is False]
    return [" ".join(result.split()) for result in done if isinstance(result, str) and result.strip()]
