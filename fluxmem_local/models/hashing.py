"""SHA-256 of model files, remembered so that a start does not read hundreds of megabytes again."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

from filelock import FileLock

from .cache import cache_directory

__all__ = ["file_sha256", "remembered_sha256"]

logger = logging.getLogger(__name__)

_LOCK_TIMEOUT_S = 30.0


def file_sha256(path: Path, *, remember: bool = True) -> str:
    """Read a file and return its SHA-256 (hex); without ``remember`` no later call profits from it."""
    before = _stamp(path)
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256") if hasattr(hashlib, "file_digest") else _digest(stream)
    sha256: str = digest.hexdigest()
    if remember and _stamp(path) == before:
        _remember(path, before, sha256)
    return sha256


def remembered_sha256(path: Path) -> str:
    """Return a file's SHA-256 (hex), reading the file only if it changed since it was last hashed."""
    known = _table().get(str(path.resolve()))
    if isinstance(known, dict) and known.get("stamp") == _stamp(path) and isinstance(known.get("sha256"), str):
        return str(known["sha256"])
    return file_sha256(path)


def _digest(stream: Any) -> Any:
    # hashlib.file_digest needs Python 3.11.
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest


def _stamp(path: Path) -> list[int]:
    # The time of the last status change also moves when a file is rewritten and its old date put back.
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _table() -> dict[str, Any]:
    try:
        table = json.loads((cache_directory() / "hashes.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


def _remember(path: Path, stamp: list[int], sha256: str) -> None:
    folder = cache_directory()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "hashes.lock", timeout=_LOCK_TIMEOUT_S):
            table = _table()
            table[str(path.resolve())] = {"stamp": stamp, "sha256": sha256}
            fresh = folder / f"hashes.json.{os.getpid()}"
            fresh.write_text(json.dumps(table, indent=1), "utf-8")
            fresh.replace(folder / "hashes.json")
    except (OSError, TimeoutError) as error:
        logger.warning("the hash of %s is not remembered, so it is read again at the next start: %s", path, error)
