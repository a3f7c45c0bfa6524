"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fluxmem_local.errors import InvalidInputError

__all__ = ["written_whole"]


@contextmanager
def written_whole(path: Path) -> Iterator[IO[str]]:
    """Give a file to write that takes its place at ``path`` at the end; after an error, nothing has changed there.

    Raises:
        InvalidInputError: the folder does not exist, or the name is blank.
    """
    if not path.name.strip():
        raise InvalidInputError(f"{str(path)!r} names no file to write; give a file's path")
    if not path.parent.is_dir():
        raise InvalidInputError(f"there is no folder {path.parent} to write {path.name} to; make it first")
    handle, half = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            yield file
        os.replace(half, path)
    except BaseException:
        os.unlink(half)
        raise
