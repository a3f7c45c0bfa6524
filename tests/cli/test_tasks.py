from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fluxmem_local.testing import FailingLLM

from .conftest import Fluxmem

Write = Callable[[str, str | bytes], Path]

# Succeeds when its context names the tool that works.
AGENT = """
import os, sys
context = sys.stdin.read()
assert open(os.environ["FLUXMEM_CONTEXT_FILE"], encoding="utf-8").read() == context
if "aggregate script" in context:
    print("done with the script")
else:
    sys.exit("error: no way to aggregate medals by country was found")
"""


def _program(write: Write, text: str) -> list[str]:
    return [sys.executable, str(write("agent.py", text))]


def test_a_program_that_succeeds_runs_once(fluxmem: Fluxmem, write: Write) -> None:
    fluxmem("add", "-", stdin="The aggregate script sums medals by country.")
    result = fluxmem("run", "sum medals by country", "--", *_program(write, AGENT))
    assert result.stdout == "done with the script\n"
    assert "round 1: 1 memory" in result.stderr
    assert "succeeded after 1 round," in result.stderr


def test_a_failure_repairs_the_memory_and_starts_again(
    fluxmem: Fluxmem, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUXMEM_TOP_K_SEMANTIC", "1")
    fluxmem("add", "-", stdin="To sum up: medals are round and shiny for the country.")
    fluxmem("add", "-", stdin="To aggregate medals by country, start the aggregate script.")
    outcome = fluxmem.data("run", "sum up medals", "--", *_program(write, AGENT))
    assert (outcome["success"], outcome["result"]) == (True, "done with the script")
    assert 2 <= outcome["rounds"] <= 6
    edit = next(edit for edit in outcome["edits"] if edit["kind"] == "expand" and edit["kept"])
    assert fluxmem.data("run", "sum up medals", "--", *_program(write, AGENT))["rounds"] == 1
    undone = fluxmem.data("undo", edit["id"])
    assert undone["kept"] is False
    assert "undone already" in fluxmem("undo", edit["id"], code=2).stderr


def test_never_succeeding_ends_with_one(fluxmem: Fluxmem, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXMEM_MAX_REFINEMENT_ROUNDS", "2")
    fluxmem("add", "-", stdin="Pigeons eat bread.")
    log = write("log", "")
    program = _program(write, f"import sys; open({str(log)!r}, 'a').write('x'); sys.exit('error: no')")
    outcome = fluxmem.data("run", "sum medals", "--", *program, code=1)
    assert outcome["success"] is False
    assert outcome["feedback"] == "error: no\n(exit status 1)"
    assert 1 <= len(log.read_text()) == outcome["rounds"] <= 3
    assert fluxmem.data("verify")["ok"] is True


def test_a_program_that_hangs_is_stopped_and_not_started_again(fluxmem: Fluxmem, write: Write) -> None:
    fluxmem("add", "-", stdin="Who waits takes a book along.")
    program = _program(write, "import time; time.sleep(60)")
    outcome = fluxmem.data("run", "wait", "--timeout", "0.5", "--", *program, code=1)
    assert outcome["feedback"] == f"{program[0]} was stopped after 0.5 s without an end"
    assert (outcome["rounds"], [each["action"] for each in outcome["attributions"]]) == (1, ["none"])


def test_a_program_that_does_not_read_its_context(fluxmem: Fluxmem, write: Write) -> None:
    fluxmem("add", "-", stdin="word " * 50_000)
    result = fluxmem("run", "word", "--", *_program(write, "import sys; sys.stdin.close(); print('ok')"))
    assert result.stdout == "ok\n"


def test_no_such_program_records_nothing(fluxmem: Fluxmem) -> None:
    fluxmem("init")
    assert "no program that can be started" in fluxmem("run", "task", "--", "no-such-program", code=2).stderr
    assert "Missing argument" in fluxmem("run", "task", code=2).stderr
    assert "blank" in fluxmem("run", " ", "--", "true", code=2).stderr
    assert fluxmem.data("stats")["num_episodic_nodes"] == 0


def test_record_takes_an_episode(fluxmem: Fluxmem, write: Write) -> None:
    episode = {
        "task": "restart nginx",
        "success": False,
        "trajectory": [["down", "restart"], {"observation": "still down", "action": "reload"}],
        "feedback": "timed out",
        "scope": {"user": "ada"},
    }
    id = fluxmem.data("record", str(write("episode.json", json.dumps(episode))))["id"]
    stored = fluxmem.data("show", id)
    assert (stored["task_description"], stored["success"], stored["feedback"]) == ("restart nginx", False, "timed out")
    assert stored["trajectory"] == [["down", "restart"], ["still down", "reload"]]
    assert stored["scope"]["user"] == "ada"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[]", "JSON object is needed"),
        ('{"success": true}', "'task' is missing"),
        ('{"task": "x"}', "'success' is missing"),
        ('{"task": "x", "success": "yes"}', "'success' must be bool"),
        ('{"task": "x", "success": true, "steps": 1}', "unknown key 'steps'"),
        ('{"task": "x", "success": true, "trajectory": ["ab"]}', "must be [observation, action]"),
        ('{"task": " ", "success": true}', "blank"),
        ('{"task": "x", "success": true, "used_ids": ["nobody"]}', "nobody"),
        ('{"task": "x", "success": true, "scope": {"team": "a"}}', "unknown scope part"),
    ],
)
def test_record_refuses_what_is_no_episode(fluxmem: Fluxmem, text: str, message: str) -> None:
    assert message in fluxmem("record", "-", stdin=text, code=2).stderr
    fluxmem("init")
    assert fluxmem.data("stats")["num_episodic_nodes"] == 0


def _record(fluxmem: Fluxmem, number: int) -> None:
    episode = {
        "task": f"sum the medals of country {number}",
        "success": True,
        "trajectory": [["a table", "open the table"], ["rows", "run the aggregate script"]],
    }
    fluxmem("record", "-", stdin=json.dumps(episode))


def test_consolidate_reports_and_is_idempotent(fluxmem: Fluxmem) -> None:
    fluxmem.llm = None
    _record(fluxmem, 0)
    assert fluxmem.data("consolidate")["induced_skills"] == []
    assert "no skills yet" in fluxmem("skills", "list").stderr
    early = fluxmem("consolidate")
    assert "one takes 3 similar episodes" in early.stderr
    assert early.stdout == "groups of similar episodes\t1\nnew skills\tnone\nresult\tdone\n"
    for number in range(1, 4):
        _record(fluxmem, number)
    assert len(fluxmem.data("consolidate", "--dry-run")["induced_skills"]) == 1
    assert fluxmem.data("skills", "list") == []
    report = fluxmem.data("consolidate")
    assert len(report["induced_skills"]) == 1
    told = dict(line.split("\t") for line in fluxmem("consolidate").stdout.splitlines())
    assert told.pop("context tokens saved by a settled skill").endswith(", in place of its episodes")
    assert told == {
        "groups of similar episodes": "1",
        "new skills": "none",
        "kept": f"{report['induced_skills'][0]}: nothing new in its episodes",
        "mean score of the skills (PEMS)": f"{report['graph_pems']:.2f}",
        "all skills settled": "yes",
        "result": "done",
    }
    assert fluxmem.data("consolidate")["induced_skills"] == []
    (skill,) = fluxmem.data("skills", "list")
    assert skill["id"] == report["induced_skills"][0]
    assert len(skill["source_episode_ids"]) == 4
    shown = fluxmem("skills", "show", skill["id"]).stdout
    assert shown.startswith(skill["skill_text"].splitlines()[0])
    assert "present" in shown
    assert skill["id"] in fluxmem("skills", "list").stdout
    later = fluxmem("consolidate")
    assert "new skills\tnone\n" in later.stdout
    assert f"kept\t{skill['id']}: nothing new in its episodes\n" in later.stdout
    assert later.stderr == ""


def test_a_model_that_talks_nonsense_ends_consolidation_with_one_and_costs_no_episode(fluxmem: Fluxmem) -> None:
    for number in range(4):
        _record(fluxmem, number)
    report = fluxmem.data("consolidate", code=1)
    assert report["status"] == "failed"
    assert report["llm_failures"] == report["llm_calls"] > 0
    assert fluxmem.data("stats")["num_episodic_nodes"] == 4
    assert fluxmem.data("verify")["ok"] is True


def test_a_consolidation_without_a_usable_answer_says_that_it_failed(fluxmem: Fluxmem) -> None:
    for number in range(3):
        _record(fluxmem, number)
    fluxmem.llm = FailingLLM()  # type: ignore[assignment]
    told = fluxmem("consolidate", code=1).stdout
    assert "language model asked\t2 times, 2 without a usable answer\n" in told
    assert told.endswith("result\tfailed: no answer of the language model could be used, so nothing was changed\n")
