"""Imported models: a site's own, copied into the model cache and registered there by hash."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

from filelock import FileLock

from fluxmem_local.errors import InvalidInputError, ModelError

from .cache import build_directory, cache_directory
from .hashing import file_sha256
from .registry import ENTRY_FILE, LocatedModel, ModelEntry, ModelStatus, known_entries, locate_model

__all__ = ["check_imported", "import_model", "set_verification"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_LOCK_TIMEOUT_S = 30.0


def import_model(path: str | Path, name: str | None = None) -> ModelStatus:
    """Copy a model's folder or .gguf file into the model cache and register its hashes, so that its name opens it.

    Args:
        path: the folder (safetensors) or .gguf file.
        name: what to call it; None: the folder's or file's own name in lower case.

    Raises:
        InvalidInputError: the name is taken or has signs other than a-z, 0-9, dot, dash and underscore.
        ModelNotFoundError: nothing is at the path, or no model that may be loaded.
    """
    source = Path(path).expanduser().absolute()
    located = locate_model(source)
    chosen = located.path.stem.lower() if name is None and located.gguf else name or source.name.lower()
    if not _NAME.fullmatch(chosen):
        raise InvalidInputError(
            f"{chosen!r} is no model name; use a-z, 0-9, dot, dash and underscore, as in 'my-model'"
        )
    if chosen in known_entries():
        raise InvalidInputError(f"a model {chosen!r} is registered already; give another name with --name")
    target = cache_directory() / "imported" / chosen

    def copy(folder: Path) -> None:
        for file in _carried_files(located):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(located.directory / file, folder / file)
        files = {
            str(file.relative_to(folder).as_posix()): file_sha256(file, remember=False)
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        }
        entry = replace(located.entry, name=chosen, files=files, directory=str(target), revision="imported")
        _write_entry(folder / ENTRY_FILE, entry)

    with FileLock(_made(cache_directory()) / "import.lock", timeout=_LOCK_TIMEOUT_S):
        build_directory(target, copy)
    return ModelStatus(known_entries()[chosen], locate_model(chosen).path)


def check_imported(name: str) -> None:
    """Refuse a model that was not imported: the entries of shipped ones stay as they are.

    Raises:
        InvalidInputError: says how to import one.
    """
    if not _NAME.fullmatch(name) or not (cache_directory() / "imported" / name / ENTRY_FILE).is_file():
        raise InvalidInputError(
            f"model {name!r} is not one that was imported, so nothing can be registered for it; "
            "`fluxmem models import PATH` makes it one, and --dry-run only measures"
        )


def set_verification(name: str, *, method: str, auc: float | None, neutral: float | None, spread: float | None) -> None:
    """Write into an imported model's entry by which method it verifies, with what was measured of it.

    Raises:
        InvalidInputError: the model is not an imported one.
        ModelError: the entry cannot be written.
    """
    check_imported(name)
    file = cache_directory() / "imported" / name / ENTRY_FILE
    try:
        with FileLock(cache_directory() / "import.lock", timeout=_LOCK_TIMEOUT_S):
            entry = replace(
                known_entries()[name],
                verification=method,
                verification_auc=auc,
                verification_neutral=neutral,
                verification_spread=spread,
            )
            fresh = file.with_name(f"{file.name}.{os.getpid()}")
            _write_entry(fresh, entry)
            fresh.replace(file)
    except OSError as error:
        raise ModelError(f"{file} cannot be written: {error}") from error


def _write_entry(file: Path, entry: ModelEntry) -> None:
    table = {spec.name: getattr(entry, spec.name) for spec in fields(entry)}
    table["files"] = dict(entry.files)
    file.write_text(json.dumps({key: value for key, value in table.items() if value is not None}, indent=1), "utf-8")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _carried_files(located: LocatedModel) -> list[Path]:
    if located.gguf:
        return [Path(located.gguf.name)]
    # Weights in other forms, and code, stay behind.
    return [
        file.relative_to(located.directory)
        for file in sorted(located.directory.rglob("*"))
        if file.is_file() and file.suffix in (".safetensors", ".json", ".txt", ".model", ".jinja", ".md")
    ]
