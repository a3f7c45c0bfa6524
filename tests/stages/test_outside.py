"""Failures that no memory can mend end the task at once; those that only look like them are still repaired."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import OutsideFailureError
from fluxmem_local.graph import EpisodicNode
from fluxmem_local.models.embedder import SentenceTransformerEmbedder
from fluxmem_local.stages.feedback import mentions, missing_command, outside_sign
from fluxmem_local.testing import HashEmbedder, ScriptedLLM

FACTS = (
    "The web service is deployed with `make deploy`, after the tests passed.",
    "The staging server is called blue-1; production is blue-2.",
    "Deployments are approved by Maria on weekdays.",
    "The database must be migrated before the web service is restarted: run `flask db upgrade`.",
    "The deployment script reads its settings from deploy.toml.",
    "Logs of the web service are in /var/log/web/app.log.",
    "The nightly backup starts at two.",
    "Tea needs water at 80 degrees.",
)


class TestWhatTheTaskFunctionKnows:
    async def test_the_task_ends_without_a_repair_and_without_a_question_to_the_model(self) -> None:
        llm = ScriptedLLM()
        async with FluxMemAgent(llm, HashEmbedder(64), FluxMemConfig(llm_weight=0.0)) as agent:
            for fact in FACTS:
                await agent.add_knowledge(fact)

            def execute(context: str) -> tuple[str, str, bool]:
                raise OutsideFailureError("agent.py was stopped after 60 s\nwithout an end", result="half a page")

            result = await agent.run_task("deploy the web service", execute)
            (attribution,) = result.attributions
            assert (result.rounds, result.edits, result.success) == (1, (), False)
            assert (attribution.type, attribution.action, attribution.confidence) == ("none", "none", 1.0)
            assert attribution.reason == (
                'the step itself tells that it is outside: "agent.py was stopped after 60 s without an end"'
            )
            assert llm.calls_of("attribute_failure") == []
            episode = agent.get(result.episode_id)
            assert isinstance(episode, EpisodicNode)
            assert episode.feedback == "agent.py was stopped after 60 s\nwithout an end"
            assert episode.trajectory == (("", "half a page"),)

    async def test_the_same_words_as_feedback_are_no_such_fact(self) -> None:
        async with FluxMemAgent(None, HashEmbedder(64)) as agent:
            await agent.add_knowledge("The page is rendered fast with the flag --draft.")
            result = await agent.run_task("render the page", lambda context: ("", "the page rendered timed out", False))
            assert result.attributions[0].action != "none"


@pytest.mark.parametrize(
    "text",
    [
        "agent.py was stopped after 60 s without an end",
        "TimeoutExpired: Command 'make' timed out after 30 seconds",
        "rpc error: deadline exceeded",
        "bash: kubectl: command not found",
        "sh: 1: terraform: not found\n(exit status 127)",
        "make: *** [Makefile:4: deploy] Error 127",
        "'terraform' is not recognized as an internal or external command",
        "(exit status 126)",
        "python: killed by signal 9",
        "Killed\n(exit status 137)",
        "MemoryError",
        "mmap: Cannot allocate memory",
        "the pod was OOMKilled",
        "chown: Operation not permitted",
        "certificate verify failed",
    ],
)
def test_more_signs_of_the_outside_world(text: str) -> None:
    assert outside_sign(text) is not None


@pytest.mark.parametrize(
    "text",
    ["rendering timed out", "give a timeout of 30 s", "page 127 not found", "exit status 1", "signal 9 is weak", ""],
)
def test_what_is_none(text: str) -> None:
    assert outside_sign(text) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bash: line 1: kubectl: command not found", "kubectl"),
        ("sh: 1: terraform: not found", "terraform"),
        ("'az' is not recognized as an internal or external command", "az"),
        ('exec: "docker": executable file not found in $PATH', "docker"),
        ("the page was not found", None),
        ("", None),
    ],
)
def test_the_missing_command(text: str, name: str | None) -> None:
    assert missing_command(text) == name


def test_a_name_is_mentioned_as_a_word() -> None:
    assert mentions("Use Python, not perl.", "python")
    assert not mentions("On blue-1 there is python3.", "python")
    assert mentions("call g++ for it", "g++")


@pytest.fixture(scope="module")
def real() -> SentenceTransformerEmbedder:
    return SentenceTransformerEmbedder()


@pytest.fixture
async def agent(real: SentenceTransformerEmbedder) -> AsyncIterator[FluxMemAgent]:
    async with FluxMemAgent(None, real) as opened:
        for fact in FACTS:
            await opened.add_knowledge(fact)
        yield opened


@pytest.mark.real_model
@pytest.mark.parametrize(
    "feedback",
    [
        "agent.py was stopped after 60 s without an end",
        "subprocess.TimeoutExpired: Command '['make', 'deploy']' timed out after 30 seconds",
        "bash: line 1: kubectl: command not found\n(exit status 127)",
        "sh: 1: terraform: not found\n(exit status 127)",
        "make: docker: No such file or directory\nmake: *** [Makefile:4: deploy] Error 127\n(exit status 2)",
        "bash: ./deploy.sh: Permission denied\n(exit status 126)",
        "PermissionError: [Errno 13] Permission denied: '/etc/shadow'\n(exit status 1)",
        "python: killed by signal 9",
        "Killed\n(exit status 137)",
        "MemoryError\n(exit status 1)",
        "ssl.SSLCertVerificationError: certificate verify failed\n(exit status 1)",
    ],
)
async def test_what_memory_cannot_mend_costs_no_round(agent: FluxMemAgent, feedback: str) -> None:
    result = await agent.run_task("deploy the web service to staging", lambda context: ("", feedback, False))
    assert (result.rounds, [each.action for each in result.attributions]) == (1, ["none"])


@pytest.mark.real_model
@pytest.mark.parametrize(
    ("task", "feedback", "remedy"),
    [
        (
            "install the packages of the web service",
            "pip: the mirror at pkg.example timed out\n(exit status 1)",
            "If the mirror at pkg.example times out, use the local wheelhouse in /srv/wheels.",
        ),
        (
            "run the smoke test on blue-1",
            "bash: line 1: python: command not found\n(exit status 127)",
            "On blue-1 python is only there as python3.",
        ),
        (
            "deploy the cluster config",
            "bash: kubectl: command not found\n(exit status 127)",
            "kubectl is not installed on the build host; use k3s kubectl instead.",
        ),
        (
            "run the nightly import",
            "Killed\nimport.py: killed by signal 9",
            "The nightly import runs out of memory and is killed unless IMPORT_CHUNK=500 is set in deploy.toml.",
        ),
        (
            "build the docs",
            "MemoryError: unable to allocate 8 GiB\n(exit status 1)",
            "Building the docs with all workers runs out of memory: pass -j 1.",
        ),
        (
            "restart the service on web-3",
            "sudo: permission denied for user ana on web-3",
            "Permission denied on web-3: log in as deploy, not under your own name.",
        ),
        (
            "publish the dataset",
            "OSError: [Errno 28] No space left on device: '/tmp/pack'",
            "/tmp on this machine is small and has no space for packing; set TMPDIR=/data/tmp before publishing.",
        ),
    ],
)
async def test_what_memory_holds_the_remedy_of_is_repaired(
    agent: FluxMemAgent, task: str, feedback: str, remedy: str
) -> None:
    (id,) = await agent.add_knowledge(remedy)
    shown = [hit.node.id for hit in await agent.retrieve(task, top_k=5) if hit.node.id != id][:4]
    result = await agent.run_task(task, lambda context: ("", feedback, id in context), context_ids=shown)
    assert (result.success, result.rounds, result.attributions[0].action) == (True, 2, "expand")
