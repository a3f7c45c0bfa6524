"""Measure Stage II on labelled failures: attribution, repairs needed, rounds, harm, and what stays of a repair.

Each line of the data file is a case (``evaluation/repair.py`` has the form): a store of items, the ids of the first
context, a task, an observation, feedback, and the key. The case is loaded into a memory of its own and played: the
step succeeds once the context is right by the key. The same feedback comes back each time it is not.

Arms (``--arms``, separated by commas):
    rules        the rules decide alone (the default)
    llm          the language model alone: all rules' scores are made equal, so its word and the tests decide
    both         rules and language model (``--llm``), with the weight of a model of which nothing was measured
    neither      all rules' scores are made equal and no model is asked: what chance and the tests reach
    no-outcomes  the rules, with no memory of what helped or misled in earlier tasks

"again" is the share of the solved cases whose task, in other words, starts with the right context at once (in brackets:
before anything was learned). --together solves all cases in one memory and looks at the first try of each other case
after each of them; --mistakes lets 10 % of the runs call a failure a success and counts the tasks until a start is
right again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from evaluation.remembering import Remembering
from evaluation.repair import LABELS, REWORDINGS, Played, load_cases, load_rewordings, play
from evaluation.repair_lives import live_together, live_with_mistakes

from fluxmem_local.agent.builder import build_embedder, build_llm
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.interfaces import UNMEASURED_ATTRIBUTION, BaseLLM
from fluxmem_local.retrieval.experience import Experience
from fluxmem_local.stages import attribution
from fluxmem_local.stages.proposals import Proposal, rule_proposals

REPAIRS = (1, 2, 3, 5)
ARMS = ("rules", "llm", "both", "neither", "no-outcomes")
MISTAKEN_SHARE = 0.1
EQUAL = 0.5


@contextlib.contextmanager
def _arm(name: str) -> Iterator[None]:
    """Take out of the program what an arm goes without."""
    with contextlib.ExitStack() as stack:
        if name in ("llm", "neither"):
            stack.enter_context(patch.object(attribution, "rule_proposals", _equal_proposals))
        if name == "no-outcomes":
            stack.enter_context(patch("fluxmem_local.retrieval.retriever.learn", lambda *_: Experience()))
        yield


def _equal_proposals(*given: Any, **named: Any) -> list[Proposal]:
    return [replace(proposal, score=EQUAL) for proposal in rule_proposals(*given, **named)]


def report(played: Sequence[Played]) -> dict[str, Any]:
    by_label: dict[str, Any] = {}
    for label in LABELS:
        cases = [each for each in played if each.case.label == label]
        if not cases:
            continue
        solved = [each for each in cases if each.second_time is not None]
        row: dict[str, Any] = {
            "cases": len(cases),
            "recall": sum(each.first_action == label for each in cases) / len(cases),
            "attributed_as": dict(Counter(each.first_action for each in cases)),
            "mean_executions": sum(each.result.rounds for each in cases) / len(cases),
            "collateral": sum(each.collateral for each in cases) / len(cases),
            "harm": sum(bool(each.harmed) for each in cases),
        }
        if label == "none":
            row["recognised"] = sum(each.recognised for each in cases) / len(cases)
            row["recognised_at_once"] = sum(each.first_action == label for each in cases) / len(cases)
        else:
            for limit in REPAIRS:
                row[f"solved_within_{limit}"] = _share(each.result.success and each.repairs <= limit for each in cases)
            row["second_time"] = _share(bool(each.second_time) for each in solved)
            row["without_first_time"] = _share(bool(each.without_first_time) for each in solved)
        by_label[label] = row
    connection = [each for each in played if each.case.label in ("expand", "prune")]
    solved = [each for each in played if each.second_time is not None]
    return {
        "cases": len(played),
        "attribution_accuracy": _share(each.first_action == each.case.label for each in played),
        "connection_solved_within_5": _share(each.result.success and each.repairs <= 5 for each in connection),
        "second_time": _share(bool(each.second_time) for each in solved),
        "without_first_time": _share(bool(each.without_first_time) for each in solved),
        "harm": sum(bool(each.harmed) for each in played),
        "seconds_per_case": sum(each.seconds for each in played) / len(played),
        "by_label": by_label,
        "by_case": [
            {
                "id": each.case.id,
                "label": each.case.label,
                "first_action": each.first_action,
                "solved": each.result.success,
                "executions": each.result.rounds,
                "second_time": each.second_time,
                "harm": list(each.harmed),
                "errors": sorted({attribution.error for attribution in each.result.attributions} - {""}),
            }
            for each in played
        ],
    }


def _share(outcomes: Any) -> float:
    listed = list(outcomes)
    return sum(listed) / max(1, len(listed))


def show(figures: dict[str, Any]) -> None:
    limits = "".join(f"{f'<={limit}':>7}" for limit in REPAIRS)
    print(f"{'label':<9}{'n':>4}{'recall':>8}{limits}{'rounds':>8}{'coll.':>7}{'harm':>6}   again")
    for label, row in figures["by_label"].items():
        if label == "none":
            solved, again = f"recognised {row['recognised']:>17.2f}", ""
        else:
            solved = "".join(f"{row[f'solved_within_{limit}']:>7.2f}" for limit in REPAIRS)
            again = f"{row['second_time']:.2f} ({row['without_first_time']:.2f})"
        print(
            f"{label:<9}{row['cases']:>4}{row['recall']:>8.2f}{solved}"
            f"{row['mean_executions']:>8.2f}{row['collateral']:>7.2f}{row['harm']:>6}   {again}"
        )
    print(
        f"attribution accuracy {figures['attribution_accuracy']:.2f}, expand and prune solved within 5 repairs "
        f"{figures['connection_solved_within_5']:.2f}, again {figures['second_time']:.2f} "
        f"({figures['without_first_time']:.2f}), harm {figures['harm']}, {figures['seconds_per_case']:.2f} s a case"
    )
    if together := figures.get("together"):
        print(
            f"in one memory of {together['items']} items: {together['solved']} solved, again "
            f"{together['second_time_at_once']:.2f} at once and {together['second_time_at_the_end']:.2f} at the end; "
            f"first tries {together['first_try_at_the_start']} before and {together['first_try_at_the_end']} after, "
            f"of others {len(together['others_lost'])} lost {together['others_lost']} "
            f"and {len(together['others_won'])} won"
        )
    for told in figures.get("mistakes", ()):
        taken = told["tasks_to_recover"]
        starts = " ".join(f"{share:.2f}" for share in told["first_try_by_visit"])
        print(
            f"mistakes in {told['share']:.0%} of the runs, seed {told['seed']}: {told['mistaken_runs']} of "
            f"{told['runs']} runs mistaken, right again after {taken['mean']:.1f} tasks (most {taken['most']}, "
            f"{taken['at_the_first']} of {told['recovered']} at the first), {told['not_recovered']} not; "
            f"right starts by visit {starts}"
        )


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="JSON Lines of labelled failures")
    parser.add_argument("--rewordings", type=Path, default=REWORDINGS, help="JSON Lines of {id, task}: tasks reworded")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--llm", default="none", help="a language model's name, or 'none' for the rules alone")
    parser.add_argument("--arms", default="rules", help=f"which of {', '.join(ARMS)}")
    parser.add_argument("--together", action="store_true", help="also solve all cases in one memory")
    parser.add_argument(
        "--mistakes", type=int, default=0, metavar="SEEDS", help="also live with mistakes, so many times"
    )
    arguments = parser.parse_args()
    arms = arguments.arms.split(",")
    if unknown := [arm for arm in arms if arm not in ARMS]:
        parser.error(f"--arms: {unknown[0]!r} is none of {', '.join(ARMS)}")
    config = FluxMemConfig(llm_model=arguments.llm)
    built = build_embedder(config)
    if built is None:
        parser.error("the benchmark needs an embedder; leave FLUXMEM_EMBEDDING_MODEL at its default")
    embedder = Remembering(built)
    model = build_llm(config)
    if model is None and {"llm", "both"} & set(arms):
        parser.error("the arms llm and both need a model; name one with --llm")
    cases, rewordings = load_cases(arguments.data), load_rewordings(arguments.rewordings)
    figures: dict[str, Any] = {}
    for arm in arms:
        llm: BaseLLM | None = model if arm in ("llm", "both") else None
        if llm is not None:
            llm.attributes_failures, llm.attribution_accuracy = True, UNMEASURED_ATTRIBUTION
        with _arm(arm):
            played = []
            for number, case in enumerate(cases, 1):
                played.append(await play(case, rewordings.get(case.id), embedder, llm, config))
                print(f"\r{arm}: {number}/{len(cases)}", end="", file=sys.stderr, flush=True)
            print(file=sys.stderr)
            figures[arm] = report(played)
            if arguments.together:
                figures[arm]["together"] = await live_together(cases, rewordings, embedder, llm, config)
            figures[arm]["mistakes"] = [
                await live_with_mistakes(cases, rewordings, embedder, llm, config, share=MISTAKEN_SHARE, seed=seed)
                for seed in range(arguments.mistakes)
            ]
        print(f"{arm}" if llm is None else f"{arm} ({arguments.llm})")
        show(figures[arm])
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
