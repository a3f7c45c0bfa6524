"""Which models there are, where their files lie, and whether they are the registered ones (spec section 8)."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fluxmem_local.errors import InvalidInputError, ModelError, ModelIntegrityError, ModelNotFoundError

from .cache import cache_directory
from .hashing import file_sha256, remembered_sha256

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "ENTRY_FILE",
    "VERIFICATION_METHODS",
    "FileCheck",
    "LocatedModel",
    "ModelCheck",
    "ModelEntry",
    "ModelStatus",
    "check_files",
    "known_entries",
    "list_models",
    "locate_model",
    "model_path",
    "read_json",
    "registered_name",
    "registry_directory",
    "verify_model",
]

# Cheapest first; "none" says that the model was measured to have no signal.
VERIFICATION_METHODS = ("likelihood", "verdict", "json", "none")
_ATTRIBUTION_METHODS = ("likelihood", "json")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_GGUF_START = b"GGUF"
# In the folder of an imported model.
ENTRY_FILE = "fluxmem-entry.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One registered model.

    ``files`` maps paths inside the model's folder to their SHA-256. ``dimension`` (embedders) and ``context_length``
    (tokens) are None where only the files tell. ``verification`` is one of ``VERIFICATION_METHODS``; its scale and its
    share of labelled texts ranked rightly (``verification_auc``) are None until `fluxmem models calibrate` measured
    them. ``attribution`` is "likelihood" or "json".
    ``attribution_accuracy`` is the measured share of causes that it named rightly, 0.25 being chance, or None.
    ``writing`` False: the model's own skills and rewritings were measured to be of no use; ``attributing`` False: its
    word on the cause of a failure was.
    """

    name: str
    kind: str
    licence: str = "unknown"
    revision: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    package: str | None = None
    package_version: str | None = None
    install: str | None = None
    module: str | None = None
    folder: str = "."
    directory: str | None = None
    gguf: str | None = None
    dimension: int | None = None
    context_length: int | None = None
    verification: str = "likelihood"
    verification_neutral: float | None = None
    verification_spread: float | None = None
    verification_auc: float | None = None
    attribution: str = "json"
    attribution_accuracy: float | None = None
    writing: bool = True
    attributing: bool = True
    system_prompt: str | None = None


@dataclass(frozen=True, slots=True)
class LocatedModel:
    """A model that is on this machine: its entry, its folder, and the GGUF file if it is one."""

    entry: ModelEntry
    directory: Path
    gguf: Path | None = None

    @property
    def path(self) -> Path:
        """What to point another program at: the GGUF file, else the folder."""
        return self.gguf or self.directory


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A registered model and the place of its files, or None while it is not on this machine."""

    entry: ModelEntry
    path: Path | None


@dataclass(frozen=True, slots=True)
class FileCheck:
    """One file of a model: ``actual`` is its SHA-256, None when it is missing."""

    file: str
    expected: str
    actual: str | None

    @property
    def ok(self) -> bool:
        """Whether the file is the registered one."""
        return self.actual == self.expected


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """What reading every file of a model gave."""

    name: str
    path: Path
    files: tuple[FileCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether all files are the registered ones."""
        return all(check.ok for check in self.files)


def registry_directory() -> Path:
    """Return the folder with registry.toml and the tiny models, in an installed wheel or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_models", package.parent / "models"):
        if (folder / "registry.toml").is_file():
            return folder
    raise ModelError(f"{package} has no model registry; install fluxmem-local again")


def list_models() -> tuple[ModelStatus, ...]:
    """List the registered models, shipped ones first, then imported ones."""
    statuses = []
    for entry in known_entries().values():
        try:
            statuses.append(ModelStatus(entry, _locate(entry).path))
        except ModelNotFoundError:
            statuses.append(ModelStatus(entry, None))
    return tuple(statuses)


def model_path(name: str) -> Path:
    """Return where a model's files lie: its folder, or its GGUF file.

    Raises:
        ModelNotFoundError: it is not on this machine.
    """
    return locate_model(name).path


def verify_model(name: str) -> ModelCheck:
    """Read every registered file of a model and compare its SHA-256.

    Raises:
        ModelNotFoundError: it is not on this machine.
    """
    located = locate_model(name)
    return ModelCheck(
        located.entry.name,
        located.path,
        tuple(
            FileCheck(file, expected, file_sha256(path) if (path := located.directory / file).is_file() else None)
            for file, expected in located.entry.files.items()
        ),
    )


def registered_name(located: LocatedModel) -> str:
    """Return the registered name of a model's weights, wherever they lie; its own name if they are not registered."""
    weights = located.directory / "model.safetensors"
    if located.entry.files or not weights.is_file():
        return located.entry.name
    sha256 = remembered_sha256(weights)
    return next(
        (entry.name for entry in known_entries().values() if entry.files.get(weights.name) == sha256),
        located.entry.name,
    )


def check_files(located: LocatedModel) -> None:
    """Refuse a model of which a registered file is missing or changed; unchanged files are not read again.

    Raises:
        ModelIntegrityError: names the file and both hashes.
    """
    for file, expected in located.entry.files.items():
        path = located.directory / file
        actual = remembered_sha256(path) if path.is_file() else None
        if actual != expected:
            raise ModelIntegrityError(
                f"{path} of model {located.entry.name!r} "
                + ("is missing" if actual is None else f"has SHA-256 {actual}")
                + f"; registered is {expected}. Get it again"
                + (f": {located.entry.install}" if located.entry.install else ", or import it under a new name")
            )


def locate_model(name: str | Path) -> LocatedModel:
    """Find a model by registry name, by its folder, or by its .gguf file. Nothing is imported and nothing is fetched.

    Raises:
        ModelNotFoundError: there is none that may be loaded; the message says how to get one.
    """
    entry = known_entries().get(str(name))
    if entry is not None:
        return _locate(entry)
    if not str(name).strip():
        raise InvalidInputError("a model name must not be blank; `fluxmem models list` shows the names")
    path = Path(name).expanduser().absolute()
    if path.suffix.lower() == ".gguf" and path.is_file():
        _check_gguf(path)
        return LocatedModel(ModelEntry(name=path.stem, kind="llm", gguf=path.name), path.parent, path)
    if path.is_dir():
        return _inspect(path)
    if path.is_file():
        raise ModelNotFoundError(f"{path} is no model; give a folder with safetensors weights, or a .gguf file")
    raise ModelNotFoundError(
        f"no model {str(name)!r}: not a registered name ({', '.join(known_entries())}), "
        f"and no folder or .gguf file at {path}. "
        "`fluxmem models list` says how to get the registered ones; `fluxmem models import PATH` adds your own"
    )


def known_entries() -> dict[str, ModelEntry]:
    """Return the registered models by name: the shipped ones, and those that were imported into the cache."""
    shipped = _shipped(registry_directory() / "registry.toml")
    imported: dict[str, ModelEntry] = {}
    for file in sorted((cache_directory() / "imported").glob(f"*/{ENTRY_FILE}")):
        try:
            table = json.loads(file.read_text("utf-8"))
            entry = _entry(file.parent.name, table)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ModelError(f"{file} is damaged ({error}); remove {file.parent} and import the model again") from error
        # The cache may have been moved since the import.
        imported[entry.name] = replace(entry, directory=str(file.parent))
    return {**shipped, **imported}


@lru_cache(maxsize=4)
def _shipped(path: Path) -> Mapping[str, ModelEntry]:
    with path.open("rb") as stream:
        tables = tomllib.load(stream)["models"]
    return MappingProxyType({name: _entry(name, table) for name, table in tables.items()})


def _entry(name: str, table: Mapping[str, Any]) -> ModelEntry:
    entry = ModelEntry(**{**table, "name": name, "files": MappingProxyType(dict(table.get("files", {})))})
    if (
        entry.kind not in ("llm", "embedder")
        or entry.verification not in VERIFICATION_METHODS
        or entry.attribution not in _ATTRIBUTION_METHODS
    ):
        raise ValueError(f"model {name!r} has kind {entry.kind!r} or an unknown method")
    return entry


def _locate(entry: ModelEntry) -> LocatedModel:
    if entry.directory is not None:
        directory = registry_directory() / entry.directory
    else:
        spec = importlib.util.find_spec(entry.module) if entry.module else None
        if spec is None or not spec.submodule_search_locations:
            raise ModelNotFoundError(
                f"model {entry.name!r} is not on this machine: no Python package {entry.package!r}. "
                f"Get it with `{entry.install}`, or give a folder or .gguf file in its place"
            )
        directory = Path(next(iter(spec.submodule_search_locations))) / entry.folder
    gguf = directory / entry.gguf if entry.gguf else None
    if not (gguf or directory).exists():
        raise ModelNotFoundError(
            f"model {entry.name!r} has no files at {gguf or directory}"
            + (f"; get them again with `{entry.install}`" if entry.install else "; install or import it again")
        )
    return LocatedModel(entry, directory, gguf)


def _inspect(directory: Path) -> LocatedModel:
    entry = ModelEntry(name=directory.name, kind="llm")
    if not (directory / "config.json").is_file():
        files = sorted(directory.glob("*.gguf"))
        if len(files) == 1:
            _check_gguf(files[0])
            return LocatedModel(replace(entry, gguf=files[0].name), directory, files[0])
        raise ModelNotFoundError(
            f"{directory} is no model folder: it has no config.json"
            + (f" and {len(files)} .gguf files; give one of them" if files else "; give a folder that has one")
        )
    if not any(directory.glob("*.safetensors")):
        pickled = next((file.name for file in sorted(directory.iterdir()) if file.suffix in _PICKLED), None)
        raise ModelNotFoundError(
            f"{directory} has no safetensors weights"
            + (f", only {pickled}, a format that can run code when it is loaded" if pickled else "")
            + "; convert it to safetensors where it was made (save_pretrained does), then give that folder"
        )
    try:
        config = json.loads((directory / "config.json").read_text("utf-8"))
        names = config.get("architectures") or []
    except (OSError, ValueError, AttributeError) as error:
        raise ModelNotFoundError(
            f"{directory} is no model folder: its config.json cannot be read ({error}); get the model again"
        ) from error
    causal = any(str(name).endswith(("ForCausalLM", "LMHeadModel")) for name in names)
    if (directory / "modules.json").is_file() or not causal:
        return LocatedModel(replace(entry, kind="embedder"), directory)
    length = config.get("max_position_embeddings")
    return LocatedModel(replace(entry, context_length=length if isinstance(length, int) else None), directory)


def _check_gguf(file: Path) -> None:
    try:
        with file.open("rb") as stream:
            start = stream.read(len(_GGUF_START))
    except OSError as error:
        raise ModelNotFoundError(f"{file} cannot be read: {error.strerror or error}; check its rights") from error
    if start != _GGUF_START:
        raise ModelNotFoundError(f"{file} is no GGUF file, whatever its name says; get it again, or give a folder")


def read_json(path: Path) -> Any:
    """Read one of a model's JSON files.

    Raises:
        ModelError: it is missing or no JSON.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error}); get the model again") from error
