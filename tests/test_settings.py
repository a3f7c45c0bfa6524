from __future__ import annotations

from pathlib import Path

import pytest

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import ConfigError
from fluxmem_local.settings import default_memory_directory, load_config


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def test_nothing_given_is_the_defaults() -> None:
    assert load_config() == FluxMemConfig()


def test_argument_beats_environment_beats_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fluxmem.toml").write_text("top_k_semantic = 2\ntop_k_episodic = 2\nseed = 2\n")
    monkeypatch.setenv("FLUXMEM_TOP_K_SEMANTIC", "3")
    monkeypatch.setenv("FLUXMEM_TOP_K_EPISODIC", "3")
    config = load_config({"top_k_semantic": 4}, directory=tmp_path)
    assert (config.top_k_semantic, config.top_k_episodic, config.seed) == (4, 3, 2)


def test_memory_directory_file_beats_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "here" / "fluxmem.toml").write_text("seed = 1\n")
    assert load_config(directory=tmp_path).seed == 1
    (tmp_path / "fluxmem.toml").write_text("seed = 9\n")
    assert load_config(directory=tmp_path).seed == 9


def test_environment_is_read_when_called_and_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXMEM_NUM_CLUSTERS", "4")
    monkeypatch.setenv("FLUXMEM_DENSE_WEIGHT", "0.25")
    monkeypatch.setenv("FLUXMEM_DEVICE", "cpu")
    config = load_config()
    assert (config.num_clusters, config.dense_weight, config.device) == (4, 0.25, "cpu")
    monkeypatch.setenv("FLUXMEM_NUM_CLUSTERS", "none")
    assert load_config().num_clusters is None
    monkeypatch.setenv("FLUXMEM_NUM_CLUSTERS", "")
    assert load_config().num_clusters is None


def test_other_variables_of_ours_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "MODELS", "LOG_LEVEL", "TORCH", "CONTEXT_FILE"):
        monkeypatch.setenv(f"FLUXMEM_{name}", "x")
    assert load_config() == FluxMemConfig()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("FLUXMEM_TOP_K", "3", "unknown setting 'top_k'"),
        ("FLUXMEM_TOP_K_SEMANTIC", "many", "top_k_semantic='many' must be a whole number"),
        ("FLUXMEM_TOP_K_SEMANTIC", "0", "top_k_semantic=0 is out of range"),
        ("FLUXMEM_TEMPERATURE", "nan", "temperature=nan is out of range"),
        ("FLUXMEM_DTYPE", "int3", "dtype='int3' is not one of"),
    ],
)
def test_bad_environment_names_the_variable(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        load_config()
    assert message in str(caught.value)
    assert variable in str(caught.value)


def test_bad_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "fluxmem.toml"
    file.write_text("top_k_semantc = 3\n")
    with pytest.raises(ConfigError, match="did you mean 'top_k_semantic'") as caught:
        load_config(directory=tmp_path)
    assert str(file) in str(caught.value)
    file.write_text("top_k_semantic = \n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(directory=tmp_path)
    file.write_bytes(b"device = '\xff'\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(directory=tmp_path)
    file.write_text("seed = true\n")
    with pytest.raises(ConfigError, match="seed=True must be a whole number"):
        load_config(directory=tmp_path)


def test_bad_argument_says_so() -> None:
    with pytest.raises(ConfigError, match="given as an argument"):
        load_config({"seed": -1})


def test_default_memory_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert default_memory_directory() == tmp_path / ".local/share/fluxmem/memory"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_memory_directory() == tmp_path / "data/fluxmem/memory"
    monkeypatch.setenv("FLUXMEM_HOME", str(tmp_path / "mine"))
    assert default_memory_directory() == tmp_path / "mine"
