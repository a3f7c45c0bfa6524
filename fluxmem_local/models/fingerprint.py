"""Which embedder made a vector: name, size, pooling and the hash of the files that decide it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fluxmem_local.errors import ModelError

from .hashing import remembered_sha256
from .registry import LocatedModel, read_json, registered_name

__all__ = ["embedder_dimension", "embedder_fingerprint"]

_DECISIVE = ("*.safetensors", "tokenizer.json", "vocab.txt", "config.json", "modules.json", "sentence_bert_config.json")


def embedder_dimension(located: LocatedModel) -> int:
    """Read an embedder's vector size from its small files.

    Raises:
        ModelError: no file tells it.
    """
    if located.entry.dimension is not None:
        return located.entry.dimension
    size = None
    for folder in _module_folders(located.directory):
        config = folder / "config.json"
        if config.is_file():
            told = read_json(config)
            # A dense module after the pooling has the last word.
            size = (
                told.get("out_features")
                or told.get("word_embedding_dimension")
                or told.get("embedding_dimension")
                or size
            )
    size = size or read_json(located.directory / "config.json").get("hidden_size")
    if not isinstance(size, int) or size < 1:
        raise ModelError(f"{located.directory}/config.json names no hidden_size; the folder is no embedding model")
    return size


def embedder_fingerprint(located: LocatedModel, dimension: int) -> str:
    """Name an embedder so that equal names mean equal vectors: ``name/384/mean/1f2e…``.

    A copy of a registered model in another folder has the registered one's name.
    """
    digest = hashlib.sha256()
    files = sorted({file for pattern in _DECISIVE for file in located.directory.glob(pattern)})
    for file in files:
        name = file.relative_to(located.directory).as_posix()
        digest.update(f"{name} {located.entry.files.get(name) or remembered_sha256(file)}\n".encode())
    return f"{registered_name(located)}/{dimension}/{_pooling(located.directory)}/{digest.hexdigest()[:16]}"


def _pooling(directory: Path) -> str:
    for folder in _module_folders(directory):
        if folder.name.endswith("Pooling") and (folder / "config.json").is_file():
            config = read_json(folder / "config.json")
            if isinstance(config.get("pooling_mode"), str):
                return str(config["pooling_mode"])
            modes = [
                name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
                for name, on in config.items()
                if name.startswith("pooling_mode_") and on is True
            ]
            return "+".join(modes) or "mean"
    return "mean"


def _module_folders(directory: Path) -> list[Path]:
    modules = directory / "modules.json"
    if not modules.is_file():
        return []
    return [directory / str(module["path"]) for module in read_json(modules) if module.get("path")]
