"""The folder of this user's models: converted and imported ones, remembered hashes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from fluxmem_local.errors import ModelError

__all__ = ["build_directory", "cache_directory"]

# A conversion on a slow disk takes minutes; another process then waits for it and uses its result.
_BUILD_TIMEOUT_S = 1800.0


def cache_directory() -> Path:
    """Return the model cache: ``FLUXMEM_MODELS``, else ``fluxmem/models`` in the user's cache folder."""
    chosen = os.environ.get("FLUXMEM_MODELS")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fluxmem" / "models"


def build_directory(target: Path, fill: Callable[[Path], None]) -> bool:
    """Make a directory whole or not at all: it is filled beside its place and renamed into it.

    Processes that want the same directory wait for each other; the later ones find it made.

    Returns:
        Whether this call made it.

    Raises:
        ModelError: the folder cannot be written, or the disk is full; nothing is left of the attempt.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(target.name + ".lock"), timeout=_BUILD_TIMEOUT_S):
            if target.is_dir():
                return False
            # A process that was killed while it filled its folder could not sweep it away; the lock says none runs now.
            for left in target.parent.glob(f".{target.name}.part-*"):
                shutil.rmtree(left, ignore_errors=True)
            part = Path(tempfile.mkdtemp(prefix=f".{target.name}.part-", dir=target.parent))
            try:
                fill(part)
                part.chmod(0o755)
                part.rename(target)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
            return True
    except OSError as error:
        raise ModelError(
            f"{target} cannot be made: {error}; free some space, or set FLUXMEM_MODELS to another folder"
        ) from error
