"""What every test gets: a clean environment, its own working folder, no way out of the machine, fixed seeds."""

from __future__ import annotations

import ipaddress
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluxmem_local.models.cache import cache_directory
from fluxmem_local.testing import HashEmbedder, ScriptedLLM


def _leaves_the_machine(family: int, address: Any) -> bool:
    if family == getattr(socket, "AF_UNIX", None):
        return False
    if family not in (socket.AF_INET, socket.AF_INET6):
        return True
    host = address[0]
    if host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return True


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Refuse and list each address outside this machine that a socket is asked for; the test then fails."""
    refused: list[Any] = []

    def guarded(name: str) -> Any:
        original = getattr(socket.socket, name)

        def call(self: socket.socket, *arguments: Any) -> Any:
            # sendto puts the address last, connect has nothing else.
            if _leaves_the_machine(self.family, arguments[-1]):
                refused.append(arguments[-1])
                raise PermissionError(f"a test asked for {arguments[-1]!r}, which is not this machine")
            return original(self, *arguments)

        return call

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, guarded(name))
    look_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name and _leaves_the_machine(socket.AF_INET, (name,)):
            refused.append(host)
            raise socket.gaierror(f"a test asked for the address of {host!r}")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield refused
    assert refused == [], f"the test tried to leave the machine: {refused}"


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A model cache of this run's own; what the user's holds ready converted, which takes half a minute, is seen in it.

    Nothing is written through to the user's: conversions are made whole under new names, and never changed.
    """
    cache = tmp_path_factory.mktemp("model-cache")
    (cache / "converted").mkdir()
    for folder in sorted((cache_directory() / "converted").glob("*/")):
        (cache / "converted" / folder.name).symlink_to(folder.resolve(), target_is_directory=True)
    # For the whole run: models that live as long as it are made before any test's own environment.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FLUXMEM_MODELS", str(cache))
        yield cache


@pytest.fixture(autouse=True)
def clean_environment(
    session_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Forget FLUXMEM_* settings, keep model libraries off the network, and work in folders of the tests' own."""
    for name in [name for name in os.environ if name.startswith("FLUXMEM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FLUXMEM_MODELS", str(session_cache))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    folder = tmp_path_factory.mktemp("cwd")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Seed the global generators; code under test has generators of its own."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder(64)


@pytest.fixture
def llm() -> ScriptedLLM:
    return ScriptedLLM()


@pytest.fixture
def folder_in_ram(tmp_path: Path) -> Iterator[Path]:
    """A place for a memory, in RAM where there is one: what is tested is no matter of the disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path / "m"
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as fast:
        yield Path(fast) / "m"
