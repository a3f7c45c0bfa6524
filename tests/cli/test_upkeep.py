from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fluxmem_local.agent import agent as agent_module
from fluxmem_local.models.imported import import_model, set_verification
from fluxmem_local.models.registry import model_path
from fluxmem_local.testing import HashEmbedder

from .conftest import Fluxmem


def test_stats_and_verify(fluxmem: Fluxmem) -> None:
    fluxmem("add", "-", stdin="One.")
    assert fluxmem.data("stats")["num_semantic_nodes"] == 1
    shown = fluxmem("stats").stdout.splitlines()
    assert shown[:3] == ["facts\t1", "episodes\t0", "skills\t0"]
    assert "embedder\thash-embedder-1/64" in shown
    # Nothing in it is a name from the code.
    assert not [line for line in shown if "_" in line.split("\t")[0]]
    assert len(shown) == len(fluxmem.data("stats"))
    assert fluxmem.data("verify")["ok"] is True
    assert fluxmem("verify").stdout.splitlines()[-1] == "nothing is wrong"


def test_verify_finds_and_fixes(fluxmem: Fluxmem) -> None:
    fluxmem("add", "-", stdin="One.")
    with sqlite3.connect(fluxmem.memory / "memory.sqlite3") as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(
            "INSERT INTO edges (id, kind, source_id, target_id, weight, created_at, metadata, success_count, "
            "failure_count, step_index) VALUES ('e', 'ground', 'gone', 'gone too', 1, 0, '{}', 0, 0, 0)"
        )
    connection.close()
    result = fluxmem("verify", code=1)
    assert "problem: " in result.stderr
    assert fluxmem.data("verify", "--fix")["fixed"] != []
    assert fluxmem.data("verify")["problems"] == []


def test_another_embedder_needs_a_reindex(fluxmem: Fluxmem, monkeypatch: pytest.MonkeyPatch) -> None:
    fluxmem("add", "-", stdin="The lease ends in May.")
    monkeypatch.setattr(agent_module, "build_embedder", lambda config: HashEmbedder(32))
    result = fluxmem("search", "lease", code=2)
    assert "hash-embedder-1/64" in result.stderr
    assert "hash-embedder-1/32" in result.stderr
    assert "fluxmem reindex" in result.stderr
    report = fluxmem.data("reindex")
    assert (report["num_embedded"], report["fingerprint"]) == (1, "hash-embedder-1/32")
    assert fluxmem.data("stats")["num_unembedded"] == 0
    assert len(fluxmem.data("search", "lease")) == 1


def test_doctor_counts_what_has_no_vector(fluxmem: Fluxmem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(agent_module, "build_embedder", lambda config: None)
    fluxmem("add", "-", stdin="The lease ends in May.")
    assert len(fluxmem.data("search", "lease")) == 1
    monkeypatch.setenv("FLUXMEM_LLM_MODEL", "none")
    monkeypatch.setenv("FLUXMEM_EMBEDDING_MODEL", str(tmp_path / "absent"))
    report = fluxmem.data("doctor", code=1)
    checks = {check["what"]: check for check in report["checks"]}
    assert checks["embeddings"]["ok"] is False
    assert checks["embeddings"]["found"].startswith("1 memory has no vector")
    assert str(tmp_path / "absent") in checks["embedding model"]["found"]
    assert checks["language model"] == {"what": "language model", "ok": True, "found": "switched off"}
    monkeypatch.setattr(agent_module, "build_embedder", lambda config: HashEmbedder(64))
    fluxmem("reindex")
    monkeypatch.setenv("FLUXMEM_EMBEDDING_MODEL", "none")
    assert fluxmem.data("doctor")["ok"] is True
    assert "telemetry\tnone" in fluxmem("doctor").stdout


def test_doctor_names_a_bad_setting(fluxmem: Fluxmem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXMEM_TOP_K", "3")
    checks = {check["what"]: check for check in fluxmem.data("doctor", code=1)["checks"]}
    assert "FLUXMEM_TOP_K" in checks["settings"]["found"]
    assert "FLUXMEM_TOP_K" in fluxmem("stats", code=2).stderr


@pytest.mark.parametrize(
    ("method", "auc", "found"),
    [
        ("likelihood", None, "by likelihood, not measured yet; run: fluxmem models calibrate mine"),
        ("verdict", 0.81, "by verdict (AUC 0.81, 0.5 is chance)"),
        ("none", 0.5, "off: mine was measured to have no signal (AUC 0.50, 0.5 is chance)"),
    ],
)
def test_doctor_says_by_what_the_model_verifies_and_when_it_is_off(
    fluxmem: Fluxmem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str, auc: float | None, found: str
) -> None:
    monkeypatch.setenv("FLUXMEM_MODELS", str(tmp_path / "model-cache"))
    monkeypatch.setenv("FLUXMEM_EMBEDDING_MODEL", "none")
    monkeypatch.setenv("FLUXMEM_LLM_MODEL", "mine")
    import_model(model_path("tiny-llm"), "mine")
    if auc is not None:
        set_verification("mine", method=method, auc=auc, neutral=None, spread=None)
    checks = {check["what"]: check for check in fluxmem.data("doctor")["checks"]}
    assert checks["verification"]["ok"] is True
    assert checks["verification"]["found"].startswith(found)
    monkeypatch.setenv("FLUXMEM_LLM_MODEL", "none")
    assert "verification" not in {check["what"] for check in fluxmem.data("doctor")["checks"]}
