"""Nothing is unpickled, by no module of the package: no import, no call and no argument that would."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fluxmem_local

# Modules that run what a file says, and functions of others that may.
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {("torch", "load"), ("np", "load"), ("numpy", "load"), ("yaml", "load"), ("yaml", "unsafe_load")}
BUILTINS = {"eval", "exec", "compile"}


def what_unpickles(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in BUILTINS:
                yield called.id
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                name = (called.value.id, called.attr)
                # PyYAML's own loader makes any object; a named one is looked at by the reader of this test.
                safe = name == ("yaml", "load") and any(each.arg == "Loader" for each in node.keywords)
                if name in CALLS and not safe:
                    yield ".".join(name)
            for given in node.keywords:
                if given.arg in ("allow_pickle", "trust_remote_code") and not (
                    isinstance(given.value, ast.Constant) and given.value.value is False
                ):
                    yield str(given.arg)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import pickle", ["pickle"]),
        ("from joblib import load", ["joblib"]),
        ("import torch\ntorch.load('x')", ["torch.load"]),
        ("np.load('x', allow_pickle=True)", ["np.load", "allow_pickle"]),
        ("model(trust_remote_code=False)", []),
        ("json.load(file)", []),
    ],
)
def test_it_would_be_found(code: str, found: list[str]) -> None:
    assert list(what_unpickles(code)) == found


def test_no_module_unpickles() -> None:
    package = Path(fluxmem_local.__file__).parent
    files = sorted(package.rglob("*.py"))
    assert len(files) > 100
    found = {str(file.relative_to(package)): list(what_unpickles(file.read_text(encoding="utf-8"))) for file in files}
    assert {name: each for name, each in found.items() if each} == {}
