"""Four processes of four threads each, and a reader beside a consolidation: nothing lost, nothing twice."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from fluxmem_local import FluxMem
from fluxmem_local.graph import EpisodicNode
from fluxmem_local.testing import HashEmbedder
from fluxmem_local.types import Layer, NodeState

from .test_lock import start

NUM_PROCESSES, NUM_THREADS, NUM_CALLS = 4, 4, 200
SHARED = "the fact that all of them state"
MIXED = """
import json, random, sys, threading, traceback
from fluxmem_local import FluxMem
from fluxmem_local.graph import SemanticNode
from fluxmem_local.testing import HashEmbedder
path, name, num_threads, num_calls, shared = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
memory = FluxMem(None, HashEmbedder(32), path=path)
told, failures = [], []

def work(thread):
    chance, own, gone, tasks, stated = random.Random(f"{name}{thread}"), {}, [], {}, 0
    try:
        for number in range(num_calls):
            call, mine = chance.random(), f"{name}{thread}n{number}"
            if call < 0.35 or not own:
                text = f"fact {mine} of {name}{thread}"
                (id,) = memory.add_knowledge(text, source=f"{name}{thread}")
                own[id] = text
            elif call < 0.45:
                memory.add_knowledge(shared, source=mine)
                stated += 1
            elif call < 0.6:
                id = chance.choice(list(own))
                own[id] = f"fact {mine} as it is now"
                assert memory.update(id, own[id]).content == own[id]
            elif call < 0.68:
                id = chance.choice(list(own))
                del own[id]
                assert id in memory.forget([id]).removed
                gone.append(id)
            elif call < 0.92:
                id = chance.choice(list(own))
                found = {hit.node.id: hit.signals["dense"] for hit in memory.retrieve(own[id], top_k=20)}
                assert round(found[id], 4) == 1, (own[id], found)
                assert memory.get(id).content == own[id]
            elif call < 0.97:
                id = chance.choice(list(own))
                tasks[memory.record_episode(f"task {mine}", [("seen", "done")], True, used_ids=[id])] = "succeeded"
            else:
                rounds = []
                def execute(context):
                    rounds.append(context)
                    return ("", "something is missing", False) if len(rounds) == 1 else ("done", "", True)
                result = memory.run_task(f"task {mine}", execute)
                tasks[result.episode_id] = "succeeded" if result.success else "failed"
    except BaseException:
        failures.append(traceback.format_exc())
    told.append({"own": own, "gone": gone, "tasks": tasks, "stated": stated})

threads = [threading.Thread(target=work, args=(number,)) for number in range(num_threads)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
memory.close()
print(json.dumps([told, failures]))
"""


def test_four_processes_of_four_threads_with_200_mixed_calls_each(folder_in_ram: Path) -> None:
    FluxMem(None, HashEmbedder(32), path=folder_in_ram).close()
    children = [
        start(MIXED, folder_in_ram, name, NUM_THREADS, NUM_CALLS, SHARED) for name in ("left", "right", "up", "down")
    ]
    answers = [json.loads(child.communicate(timeout=280)[0]) for child in children]
    assert [failures for _, failures in answers] == [[]] * NUM_PROCESSES
    told = [each for threads, _ in answers for each in threads]
    assert len(told) == NUM_PROCESSES * NUM_THREADS
    with FluxMem(None, HashEmbedder(32), path=folder_in_ram) as memory:
        every = memory.store.select(states=tuple(NodeState))
        facts = {node.id: node for node in every if node.layer is Layer.SEMANTIC and node.variant_of is None}
        shared = [node for node in facts.values() if node.content == SHARED]
        assert [node.count for node in shared] == [sum(each["stated"] for each in told)]
        own = {id: text for each in told for id, text in each["own"].items()}
        assert {id: node.content for id, node in facts.items() if node.content != SHARED} == own
        assert max(Counter(node.content for node in facts.values()).values()) == 1
        assert memory.store.present([id for each in told for id in each["gone"]]) == set()
        tasks = {node.id: node.status for node in every if isinstance(node, EpisodicNode)}
        assert tasks == {id: status for each in told for id, status in each["tasks"].items()}
        assert memory.verify().problems == ()
        assert memory.verify().notes == ()
        assert (memory.stats["num_step_edges"], memory.stats["num_trial_nodes"]) == (0, 0)
    assert not [each.name for each in folder_in_ram.iterdir() if each.name.startswith("write.turn.")]


CONSOLIDATING = """
import sys, threading
from fluxmem_local import FluxMem
from fluxmem_local.testing import HashEmbedder
memory = FluxMem(None, HashEmbedder(64), path=sys.argv[1])
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
done = number = 0
while not ended.is_set():
    for place in ("harbour", "cellar"):
        number += 1
        steps = [("it is locked", "take the key"), (f"key {number} fits", "turn it"), ("it moves", "push")]
        memory.record_episode(f"open the {place} gate {number}", steps, True)
    memory.consolidate()
    done += 1
    if done == 1:
        print("begun", flush=True)
memory.close()
print(done, flush=True)
"""


def test_a_reader_beside_a_consolidation_finds_the_same_a_hundred_times(folder_in_ram: Path) -> None:
    subjects = ("rent", "lease", "heating", "garden", "roof")
    with FluxMem(None, HashEmbedder(64), path=folder_in_ram) as memory:
        for number, subject in enumerate(subjects * 8):
            memory.add_knowledge(f"clause {number} of the {subject} says {number * 13}")

        def found(turn: int) -> Any:
            subject = subjects[turn % len(subjects)]
            hits = memory.retrieve(f"clause {turn % 5} of the {subject}", top_k=4)
            return [(hit.node.id, hit.node.content) for hit in hits], hits[0].signals["dense"]

        before = [found(turn) for turn in range(25)]
        child = start(CONSOLIDATING, folder_in_ram, stdin=subprocess.PIPE)
        assert child.stdout.readline() == "begun\n"
        generations = set()
        for turn in range(100):
            assert found(turn) == before[turn % 25]
            generations.add(memory.stats["generation"])
        assert child.poll() is None
        assert int(child.communicate(timeout=120)[0]) >= 1
        # What the other process committed was seen by this one, which was open all the time.
        assert len(generations) > 1
        assert memory.stats["num_episodic_nodes"] >= 4
        assert memory.verify().problems == ()


def test_what_another_process_does_is_seen_without_opening_again(folder_in_ram: Path) -> None:
    code = """
import sys
from fluxmem_local import FluxMem
from fluxmem_local.testing import HashEmbedder
with FluxMem(None, HashEmbedder(64), path=sys.argv[1]) as memory:
    (hit,) = memory.retrieve("the lease", top_k=1)
    memory.update(hit.node.id, "the lease ends in June")
    memory.add_knowledge("the boiler is new")
    (rent,) = memory.retrieve("rent is", top_k=1)
    memory.forget([rent.node.id])
"""
    with FluxMem(None, HashEmbedder(64), path=folder_in_ram) as memory:
        memory.add_knowledge("the lease ends in May")
        memory.add_knowledge("rent is 900")
        assert [hit.node.content for hit in memory.retrieve("rent", top_k=1)] == ["rent is 900"]
        child = start(code, folder_in_ram)
        child.communicate(timeout=60)
        assert child.returncode == 0
        assert [hit.node.content for hit in memory.retrieve("lease", top_k=1)] == ["the lease ends in June"]
        assert [hit.node.content for hit in memory.retrieve("boiler", top_k=1)] == ["the boiler is new"]
        assert {node.content for node in memory.store.select()} == {"the lease ends in June", "the boiler is new"}
        assert "rent is 900" not in [hit.node.content for hit in memory.retrieve("rent is 900", top_k=5)]
