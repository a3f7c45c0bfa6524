"""The process that gets killed: for each line of stdin, a fork works on a memory and tells what it begins and has done.

It is a program of its own, so that the forks come from a small process with one thread.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import traceback
from typing import Any

import hnswlib  # noqa: F401  loaded once, for all forks

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.graph import SemanticNode
from fluxmem_local.index import HNSWVectorStore
from fluxmem_local.memory_store import layer_index
from fluxmem_local.stages import consolidation  # noqa: F401
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer

PLACES = ("gate", "door", "well", "chest", "tower", "bridge", "cellar", "harbour")
COLOURS = ("green", "red", "blue", "black", "white", "golden")
# Small memories shall have graphs and files of them too.
layer_index._WORTH_SAVING = 8
layer_index._CHANGED_SHARE = 0.0
HNSWVectorStore.__init__.__kwdefaults__["exact_below"] = 12


def tell(**what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


class Worker:
    def __init__(self, path: str, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.name = f"{seed}"
        self.number = 0
        self.agent = self.opened()

    def opened(self) -> FluxMemAgent:
        return FluxMemAgent(None, HashEmbedder(32), path=self.path)

    def text(self) -> str:
        pick = self.random.choice
        return f"the {pick(PLACES)} {self.name}-{self.number} opens with the {pick(COLOURS)} key {self.number}"

    def some_fact(self) -> str | None:
        facts = [node.id for node in self.agent.store.select(layers=(Layer.SEMANTIC,)) if node.variant_of is None]
        return self.random.choice(facts) if facts else None

    async def run(self) -> None:
        calls = (
            *(self.add, self.add, self.update, self.forget),
            *(self.repair, self.repair, self.record, self.consolidate, self.reopen),
        )
        while True:
            self.number += 1
            await self.random.choice(calls)()

    async def add(self) -> None:
        nodes = []
        for place in range(3):
            nodes.append(SemanticNode(id=f"{self.name}-{self.number}-{place}", content=f"{self.text()} at {place}"))
        tell(begin="add", facts={node.id: node.content for node in nodes})
        await self.agent.add_knowledge_nodes(nodes)
        tell(done="add")

    async def update(self) -> None:
        if (id := self.some_fact()) is not None:
            content = f"{self.text()} by now"
            tell(begin="update", id=id, content=content)
            await self.agent.update(id, content)
            tell(done="update")

    async def forget(self) -> None:
        ids = list({id for id in (self.some_fact(), self.some_fact()) if id is not None})
        if ids:
            tell(begin="forget", ids=ids)
            await self.agent.forget(ids)
            tell(done="forget")

    async def record(self) -> None:
        if (id := self.some_fact()) is not None:
            place = self.random.choice(PLACES)
            task = f"open the {place} {self.name}-{self.number}"
            tell(begin="record", task=task, fact=id)
            steps = [("it is locked", "take the key"), ("the key fits", "turn it"), ("it moves", "push")]
            episode = await self.agent.record_episode(task, steps, True, used_ids=[id])
            tell(done="record", episode=episode)

    async def repair(self) -> None:
        task = f"open the {self.random.choice(PLACES)} with the right key {self.name}-{self.number}"
        rounds = self.random.randint(1, 3)
        called = 0

        def execute(_context: str) -> tuple[str, str, bool]:
            nonlocal called
            called += 1
            feedback = ("too general: which key, step by step", "something is missing: where is the key")[called % 2]
            return ("opened", "", True) if called > rounds else ("", feedback, False)

        tell(begin="repair", task=task)
        result = await self.agent.run_task(task, execute)
        kept = [edit.id for edit in result.edits if edit.kept]
        tell(done="repair", episode=result.episode_id, success=result.success, kept=kept)

    async def consolidate(self) -> None:
        tell(begin="consolidate")
        report = await self.agent.consolidate()
        tell(done="consolidate", skills=list(report.induced_skills))

    async def reopen(self) -> None:
        tell(begin="reopen")
        self.agent.close()
        self.agent = self.opened()
        tell(done="reopen")


def main() -> None:
    for line in sys.stdin:
        path, seed = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                tell(pid=os.getpid())
                asyncio.run(Worker(path, seed).run())
            except BaseException:
                tell(error=traceback.format_exc())
            os._exit(1)
        _, status = os.waitpid(pid, 0)
        tell(dead=status)


if __name__ == "__main__":
    main()
