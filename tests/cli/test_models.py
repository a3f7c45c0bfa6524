from __future__ import annotations

from pathlib import Path

import pytest

from fluxmem_local.models.registry import list_models

from .conftest import Fluxmem


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLUXMEM_MODELS", str(tmp_path / "model-cache"))


def _tiny(kind: str) -> str:
    return next(
        status.entry.name
        for status in list_models()
        if status.entry.kind == kind and status.path is not None and status.entry.directory is not None
    )


def test_models_are_listed_with_how_to_get_them(fluxmem: Fluxmem) -> None:
    listed = {model["name"]: model for model in fluxmem.data("models", "list")}
    assert {"smollm2-135m-instruct", "all-minilm-l6-v2"} <= set(listed)
    assert listed["smollm2-135m-instruct"]["install"]
    assert "all-minilm-l6-v2\tembedder" in fluxmem("models", "list").stdout


def test_path_and_verify(fluxmem: Fluxmem) -> None:
    name = _tiny("embedder")
    path = Path(fluxmem("models", "path", name).stdout.strip())
    assert path.is_dir()
    (report,) = fluxmem.data("models", "verify", name)
    assert (report["name"], report["ok"]) == (name, True)
    assert f"{name}\tconfig.json\tok" in fluxmem("models", "verify", name).stdout


def test_import_copies_and_a_changed_file_is_noticed(fluxmem: Fluxmem, tmp_path: Path) -> None:
    source = fluxmem("models", "path", _tiny("embedder")).stdout.strip()
    imported = fluxmem.data("models", "import", source, "--name", "mine")
    assert imported["kind"] == "embedder"
    assert fluxmem.data("models", "verify", "mine")[0]["ok"] is True
    config = Path(imported["path"]) / "config.json"
    config.write_text(config.read_text() + " ")
    assert "mine\tconfig.json\tchanged" in fluxmem("models", "verify", "mine", code=1).stdout
    assert "registered already" in fluxmem("models", "import", source, "--name", "mine", code=2).stderr


def test_what_is_no_model_is_named(fluxmem: Fluxmem, tmp_path: Path) -> None:
    assert "nowhere" in fluxmem("models", "path", "nowhere", code=2).stderr
    assert "nowhere" in fluxmem("models", "import", str(tmp_path / "nowhere"), code=2).stderr


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("notes.txt", b"text", "is no model"),
        ("fake.gguf", b"text", "is no GGUF file"),
        ("empty", None, "has no config.json"),
        ("broken/config.json", b"{", "its config.json cannot be read"),
        ("listed/config.json", b"[]", "its config.json cannot be read"),
        ("pickled/config.json", b"{}", "no safetensors weights"),
    ],
)
def test_what_holds_no_model_is_bad_input(
    fluxmem: Fluxmem, tmp_path: Path, name: str, content: bytes | None, problem: str
) -> None:
    path = tmp_path / name
    if content is None:
        path.mkdir()
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    given = path.parent if path.name == "config.json" else path
    if name.startswith(("broken", "listed")):
        (given / "model.safetensors").write_bytes(b"")
    for verb in ("path", "import", "prepare", "verify"):
        assert problem in fluxmem("models", verb, str(given), code=2).stderr, verb


def test_calibration_measures_and_registers_for_an_imported_model_only(fluxmem: Fluxmem, tmp_path: Path) -> None:
    tiny = _tiny("llm")
    data = tmp_path / "own.jsonl"
    data.write_text('{"question": "Where?", "fact": "Here.", "distractors": ["Now.", "Never."]}\n' * 3)
    assert "models import PATH" in fluxmem("models", "calibrate", tiny, "--data", str(data), code=2).stderr
    measured = fluxmem.data("models", "calibrate", tiny, "--data", str(data), "--dry-run")
    assert [report["method"] for report in measured["reports"]] == ["likelihood", "verdict", "json"]
    assert (measured["name"], measured["written"]) == (tiny, False)

    fluxmem("models", "import", fluxmem("models", "path", tiny).stdout.strip(), "--name", "mine")
    assert fluxmem.data("models", "calibrate", "mine", "--data", str(data))["written"] is True
    entry = {status.entry.name: status.entry for status in list_models()}["mine"]
    assert entry.verification == measured["method"]
    assert entry.verification_auc is not None
    assert (
        f"verification {entry.verification}, registered"
        in fluxmem("models", "calibrate", "mine", "--data", str(data)).stdout
    )
    data.write_text("{}\n")
    assert "line 1" in fluxmem("models", "calibrate", "mine", "--data", str(data), code=2).stderr
