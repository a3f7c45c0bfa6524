"""Measure what the memory is worth to an agent in ScienceWorld: one life of 100 steps in 24 families of tasks.

The memory learns from train variations (six gold, one random and one greedy game a family) and is asked in variations
of the test split. The agent is one small fixed policy in all arms (``evaluation/scienceworld_policy.py``), so that only
the memory differs. Needs the extra ``bench`` and Java 17 or newer; one JVM is started, and nothing is downloaded.

    python scripts/bench_scienceworld.py --seed 1 --per-family 3 --json figures.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evaluation.arms import Played, figures, show
from evaluation.remembering import Remembering
from evaluation.scienceworld import Episode, Game, World, collect, open_world, read_episodes, write_episodes
from evaluation.scienceworld_policy import Policy

from fluxmem_local import FluxMemAgent, FluxMemConfig
from fluxmem_local.agent.builder import build_embedder
from fluxmem_local.agent.results import RoundStarted, TaskEvent
from fluxmem_local.errors import OutsideFailureError

# Whole episodes with all that was observed are long, and a shortened one loses its beginning.
_CONFIG = FluxMemConfig(llm_model="none", context_token_budget=16_384, top_k_semantic=12)
RETRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Which memory an arm starts from, how many repairs a game may take, and whether it keeps the games it played."""

    name: str
    memory: str
    retries: int
    online: bool = False


ARMS = (
    Arm(name="none", memory="empty", retries=0),
    Arm(name="none+retry", memory="empty", retries=RETRIES),
    Arm(name="stage1", memory="lived", retries=0),
    Arm(name="stage1+2", memory="lived", retries=RETRIES),
    Arm(name="stage1+3", memory="consolidated", retries=0),
    Arm(name="all", memory="consolidated", retries=RETRIES),
    Arm(name="all, consolidated again", memory="again", retries=RETRIES),
    Arm(name="all, online", memory="consolidated", retries=RETRIES, online=True),
)
# What the parts of consolidation are worth; only with --ablate.
ABLATIONS = (
    Arm(name="all, no failed episodes", memory="successes", retries=RETRIES),
    Arm(name="all, no places", memory="placeless", retries=RETRIES),
    Arm(name="all, no kinds", memory="kindless", retries=RETRIES),
)
COMPARISONS = (
    ("all", "none+retry"),
    ("all", "stage1+2"),
    ("all", "stage1+3"),
    ("stage1+3", "stage1"),
    ("stage1+2", "stage1"),
    ("all, consolidated again", "all"),
    ("all, online", "all"),
    *(("all", arm.name) for arm in ABLATIONS),
)


async def make_memories(folder: Path, episodes: Sequence[Episode], embedder: Remembering) -> None:
    """Write the memories that arms start from: empty, lived, consolidated, and consolidated again after more games."""
    async with FluxMemAgent(None, embedder, _CONFIG, path=folder / "empty"):
        pass
    first = [episode for episode in episodes if episode.kind != "later"]
    await _live(folder / "lived", first, embedder, consolidate=False)
    shutil.copytree(folder / "lived", folder / "consolidated")
    await _live(folder / "consolidated", [], embedder, consolidate=True)
    shutil.copytree(folder / "consolidated", folder / "again")
    later = [episode for episode in episodes if episode.kind == "later"]
    await _live(folder / "again", later, embedder, consolidate=True)


async def make_ablations(folder: Path, episodes: Sequence[Episode], embedder: Remembering) -> None:
    """Write memories that lack a part: no failed episodes, no facts on places, clusters by embedding alone."""
    await _live(folder / "successes", [each for each in episodes if each.kind == "gold"], embedder, consolidate=True)
    shutil.copytree(folder / "consolidated", folder / "placeless")
    async with FluxMemAgent(None, embedder, _CONFIG, path=folder / "placeless") as agent:
        await agent.forget(filters={"learned_from": {"exists": True}})
    shutil.copytree(folder / "lived", folder / "kindless")
    number = len({episode.family for episode in episodes})
    await _live(folder / "kindless", [], embedder, consolidate=True, config=replace(_CONFIG, num_clusters=number))


async def _live(
    path: Path,
    episodes: Sequence[Episode],
    embedder: Remembering,
    *,
    consolidate: bool,
    config: FluxMemConfig = _CONFIG,
) -> None:
    async with FluxMemAgent(None, embedder, config, path=path) as agent:
        for episode in episodes:
            await agent.record_episode(episode.task, episode.trajectory, episode.success, episode.feedback)
        if consolidate:
            await agent.consolidate()


async def play(game: Game, agent: FluxMemAgent, embedder: Remembering) -> Played:
    """Play one game with a memory: each segment of actions along one guide is one execution of the task."""
    policy = Policy(embedder.embed_batch)
    tokens = 0

    def listen(event: TaskEvent) -> None:
        nonlocal tokens
        if isinstance(event, RoundStarted):
            tokens += event.num_tokens

    def act(action: str) -> str | None:
        said = game.step(action)
        return None if game.over else said

    async def execute(context: str) -> tuple[str, str, bool]:
        begun = game.steps
        trouble = await policy.run(context, game.task, game.observation, act, game.admissible)
        done = "\n".join(action for _, action in game.trajectory[begun:])
        feedback = f"{game.verdict()} {trouble}".strip()
        if game.over and not game.success:
            # One life: there is nothing left to try a repaired memory on.
            raise OutsideFailureError(feedback, result=done)
        return done, feedback, game.success

    # The view of a whole room would drown the task in what is searched for.
    place = game.observation.partition(".")[0]
    result = await agent.run_task(game.task, execute, [place], on_event=listen)
    return Played(
        success=game.success,
        score=float(max(0, game.score)),
        steps=game.steps,
        calls=result.rounds,
        context_tokens=tokens,
        died=game.died,
    )


async def play_arm(
    arm: Arm, memories: Path, world: World, games: Sequence[tuple[str, int]], embedder: Remembering
) -> list[Played]:
    """Play games frozen, each from the same memory that keeps nothing of the games before, or online, keeping them."""
    config = replace(_CONFIG, max_refinement_rounds=arm.retries)
    played = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory"
        for family, variation in games:
            if not path.exists():
                shutil.copytree(memories / arm.memory, path)
            game = world.game(family, variation)
            async with FluxMemAgent(None, embedder, config, path=path) as agent:
                played.append(await play(game, agent, embedder))
                if arm.online and game.trajectory:
                    # What the task's own record holds as one step, in the steps that teach.
                    await agent.record_episode(game.task, game.trajectory, game.success, game.verdict())
            if not arm.online:
                shutil.rmtree(path)
    return played


async def walk_alone(game: Game, embedder: Remembering) -> None:
    """Play a game with an empty memory until it is over, as the greedy training episodes are made."""
    async with FluxMemAgent(None, embedder, replace(_CONFIG, max_refinement_rounds=0)) as agent:
        await play(game, agent, embedder)


def choose_games(world: World, split: str, per_family: int, seed: int) -> list[tuple[str, int]]:
    """Choose variations of each family by chance."""
    chosen = []
    for family in world.families:
        variations = world.variations(family, split)
        chance = random.Random(f"{seed} {family}")
        chosen += [(family, each) for each in chance.sample(variations, min(per_family, len(variations)))]
    return chosen


def _by_family(games: Sequence[tuple[str, int]], played: Sequence[Played]) -> dict[str, float]:
    """Mean score of each family's games."""
    scores: dict[str, list[float]] = {}
    for (family, _), each in zip(games, played, strict=True):
        scores.setdefault(family, []).append(each.score)
    return {family: sum(those) / len(those) for family, those in scores.items()}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="which variations are played (default 1)")
    parser.add_argument("--per-family", type=int, default=3, metavar="K", help="games a family (default 3)")
    parser.add_argument("--split", choices=("dev", "test"), default="test", help="tune on dev only (default test)")
    parser.add_argument("--arms", nargs="+", metavar="ARM", choices=[arm.name for arm in ARMS], help="default: all")
    parser.add_argument("--ablate", action="store_true", help="also play with memories that lack a part")
    parser.add_argument("--families", nargs="+", metavar="NAME", help="default: all 24")
    parser.add_argument(
        "--episodes",
        type=Path,
        default=Path("build/scienceworld-episodes.jsonl"),
        help="training episodes; lived and written there once (default build/scienceworld-episodes.jsonl)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    embedder = Remembering(build_embedder(_CONFIG))
    with open_world() as world, tempfile.TemporaryDirectory() as folder:
        if not options.episodes.exists():
            print("living the training episodes, which takes some minutes", flush=True)
            lived = await collect(world, lambda game: walk_alone(game, embedder))
            write_episodes(options.episodes, lived)
        memories = Path(folder)
        episodes = read_episodes(options.episodes)
        await make_memories(memories, episodes, embedder)
        if options.ablate:
            await make_ablations(memories, episodes, embedder)
        games = choose_games(world, options.split, options.per_family, options.seed)
        if options.families:
            games = [game for game in games if game[0] in options.families]
        arms: dict[str, list[Played]] = {}
        chosen = [arm for arm in ARMS if options.arms is None or arm.name in options.arms]
        for arm in (*chosen, *(ABLATIONS if options.ablate else ())):
            started = time.perf_counter()
            arms[arm.name] = await play_arm(arm, memories, world, games, embedder)
            print(f"{arm.name}: {time.perf_counter() - started:.0f} s", flush=True)
    compared = [pair for pair in COMPARISONS if set(pair) <= set(arms)]
    measured = figures(arms, compared)
    measured["differences"] += figures(arms, compared, measure="score")["differences"]
    measured["families"] = {arm: _by_family(games, played) for arm, played in arms.items()}
    show(measured)
    if options.json is not None:
        options.json.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
