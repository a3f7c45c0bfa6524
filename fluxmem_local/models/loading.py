"""Loads models from local files only: safetensors or GGUF, never pickle, never a model's own code."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from fluxmem_local.errors import ConfigError, ModelError, ModelIntegrityError

from .cache import build_directory, cache_directory
from .hashing import file_sha256, remembered_sha256
from .registry import ModelEntry, check_files, locate_model, read_json

__all__ = [
    "LoadedEmbedder",
    "LoadedLLM",
    "PreparedModel",
    "load_embedder",
    "load_llm",
    "prepare_model",
]

logger = logging.getLogger(__name__)

# Part of a converted folder's name: a change of the conversion makes a new one.
_CONVERSION = 1
_DTYPES = ("float32", "bfloat16", "float16")
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model whose files were checked and are ready to load: ``converted`` tells whether this call converted it."""

    entry: ModelEntry
    directory: Path
    converted: bool = False


# No slots: weak references need a place, which slotted dataclasses have from Python 3.11 on.
@dataclass(eq=False)
class LoadedLLM:
    """A causal language model in memory, shared by everyone in the process who asked for the same one."""

    model: Any
    tokenizer: Any
    entry: ModelEntry
    device: str
    context_length: int
    grammars: dict[str, Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def move_to_cpu(self) -> bool:
        """Move the weights to the CPU; False when they are there already."""
        return _move_to_cpu(self)


@dataclass(eq=False)
class LoadedEmbedder:
    """A sentence-transformers model in memory, shared by everyone in the process who asked for the same one."""

    model: Any
    device: str
    max_length: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    def move_to_cpu(self) -> bool:
        """Move the weights to the CPU; False when they are there already."""
        return _move_to_cpu(self)


def _move_to_cpu(loaded: LoadedLLM | LoadedEmbedder) -> bool:
    if loaded.device == "cpu":
        return False
    loaded.model.to("cpu")
    loaded.device = "cpu"
    return True


_loaded: WeakValueDictionary[tuple[str, ...], Any] = WeakValueDictionary()
_loading = threading.Lock()
_converting = threading.Lock()


def prepare_model(name: str | Path, progress: Callable[[str], None] | None = None) -> PreparedModel:
    """Check a model's files and convert a GGUF file to safetensors in the model cache, once.

    Args:
        name: registry name, folder or .gguf file.
        progress: told in words what takes long.

    Raises:
        ModelNotFoundError: it is not on this machine.
        ModelIntegrityError: a registered file is missing or changed.
        ModelError: it cannot be converted, or its form is refused.
    """
    located = locate_model(name)
    check_files(located)
    if located.gguf is None:
        _refuse_code(located.directory)
        return PreparedModel(located.entry, located.directory)
    gguf = located.gguf
    sha256 = remembered_sha256(gguf)
    target = cache_directory() / "converted" / f"{located.entry.name}-{sha256[:16]}-{_CONVERSION}"
    converted = False
    if not target.is_dir():
        if progress:
            progress(f"converting {gguf.name} to safetensors, once")
        converted = build_directory(target, lambda folder: _convert(gguf, sha256, folder))
        if progress and converted:
            progress(f"converted into {target}")
    _check_converted(target, sha256)
    return PreparedModel(located.entry, target, converted)


def load_llm(name: str | Path, device: str = "auto", dtype: str = "auto") -> LoadedLLM:
    """Load a causal language model, or return the one that this process has loaded already.

    Raises:
        ModelError: as ``prepare_model``, or when the files do not make a model.
    """
    prepared = prepare_model(name)
    loaded: LoadedLLM = _shared(prepared, "llm", device, dtype, _load_llm)
    return loaded


def load_embedder(name: str | Path, device: str = "auto", dtype: str = "auto") -> LoadedEmbedder:
    """Load an embedding model, or return the one that this process has loaded already.

    Raises:
        ModelError: as ``prepare_model``, or when the files do not make a model.
    """
    prepared = prepare_model(name)
    loaded: LoadedEmbedder = _shared(prepared, "embedder", device, dtype, _load_embedder)
    return loaded


def _shared(
    prepared: PreparedModel, kind: str, device: str, dtype: str, load: Callable[[PreparedModel, str, Any], Any]
) -> Any:
    if prepared.entry.kind != kind:
        raise ModelError(
            f"model {prepared.entry.name!r} is of kind {prepared.entry.kind!r}, and {kind!r} is needed here; "
            "`fluxmem models list` shows the kinds"
        )
    _go_offline()
    chosen_device = _device(device)
    chosen_dtype = _dtype(dtype, chosen_device, kind)
    key = (kind, str(prepared.directory.resolve()), chosen_device, chosen_dtype)
    with _loading:
        loaded = _loaded.get(key)
        if loaded is None:
            import torch

            try:
                with _quiet_progress():
                    loaded = load(prepared, chosen_device, getattr(torch, chosen_dtype))
            except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError) as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                raise ModelError(
                    f"model {prepared.entry.name!r} in {prepared.directory} cannot be loaded: {error}; "
                    "check it with `fluxmem models verify`, or give another folder"
                ) from error
            _loaded[key] = loaded
    return loaded


def _load_llm(prepared: PreparedModel, device: str, dtype: Any) -> LoadedLLM:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        prepared.directory, local_files_only=True, trust_remote_code=False, padding_side="left"
    )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(
        prepared.directory, local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=dtype
    )
    model.to(device).eval()
    length = prepared.entry.context_length or model.config.max_position_embeddings
    return LoadedLLM(
        model, tokenizer, prepared.entry, device, min(length, model.config.max_position_embeddings or length)
    )


def _load_embedder(prepared: PreparedModel, device: str, dtype: Any) -> LoadedEmbedder:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(
        str(prepared.directory),
        device=device,
        local_files_only=True,
        trust_remote_code=False,
        model_kwargs={"dtype": dtype, "use_safetensors": True},
    )
    model.eval()
    length = model.max_seq_length or model.tokenizer.model_max_length
    return LoadedEmbedder(model, device, min(length, prepared.entry.context_length or length))


def _go_offline() -> None:
    # Read when the libraries are imported; loading by folder asks no host in any case.
    os.environ.update(_OFFLINE)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@contextlib.contextmanager
def _quiet_progress() -> Iterator[None]:
    from transformers.utils import logging as transformers_logging

    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


@contextlib.contextmanager
def _no_conversion_bar() -> Iterator[None]:
    """Hide the bar of transformers' GGUF reader, which its own setting for bars does not reach."""
    from transformers import modeling_gguf_pytorch_utils as reader

    with _converting:
        shown = getattr(reader, "tqdm", None)
        if shown is not None:
            reader.tqdm = functools.partial(shown, disable=True)
        try:
            yield
        finally:
            if shown is not None:
                reader.tqdm = shown


def _device(device: str) -> str:
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device={device!r} is no device; allowed are auto, cpu, cuda, cuda:1, mps") from error
    if (chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count()) or (
        chosen.type == "mps" and not torch.backends.mps.is_available()
    ):
        raise ConfigError(f"device={device!r} is not on this machine; device='auto' takes what is there")
    return device


def _dtype(dtype: str, device: str, kind: str) -> str:
    if dtype != "auto":
        if dtype not in _DTYPES:
            raise ConfigError(f"dtype={dtype!r} is unknown; allowed are auto, {', '.join(_DTYPES)}")
        return dtype
    if kind == "embedder":
        # A memory's vectors must not depend on the device that made them.
        return "float32"
    import torch

    if device.startswith("cuda"):
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    if device == "mps":
        return "float16"
    # A batch takes a third of the time where the CPU has instructions for it; elsewhere it would take longer.
    has_instructions = any(
        getattr(torch.cpu, name, bool)() for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    )
    return "bfloat16" if has_instructions else "float32"


def _refuse_code(directory: Path) -> None:
    """Refuse a folder whose modules name classes outside sentence-transformers: loading it would run them."""
    modules = directory / "modules.json"
    if not modules.is_file():
        return
    for module in read_json(modules):
        name = str(module.get("type", "")) if isinstance(module, dict) else str(module)
        if not name.startswith("sentence_transformers."):
            raise ModelError(
                f"{modules} names {name!r}, code of its own, which is never run; "
                "use a model made of sentence-transformers' modules only"
            )


def _convert(gguf: Path, sha256: str, folder: Path) -> None:
    _go_offline()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": gguf.name, "local_files_only": True, "trust_remote_code": False}
    try:
        with _quiet_progress(), _no_conversion_bar():
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
            model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **where)
    except (ValueError, KeyError, TypeError, RuntimeError, ImportError, AttributeError) as error:
        raise ModelError(
            f"{gguf} cannot be converted: {error}; check the file, or give a folder with safetensors weights"
        ) from error
    # transformers refuses to save what it marks as quantised, although it has unpacked all numbers.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    _save(model, tokenizer, weights, folder)
    files = {file.name: file_sha256(file, remember=False) for file in sorted(folder.iterdir()) if file.is_file()}
    (folder / "fluxmem-source.json").write_text(json.dumps({"source": sha256, "files": files}, indent=1), "utf-8")


def _save(model: Any, tokenizer: Any, weights: dict[str, Any], folder: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except Exception as error:
        # A full disk is no OSError in safetensors, and a bare Exception in tokenizers.
        if type(error) not in (SafetensorError, Exception):
            raise
        raise OSError(str(error)) from error


def _check_converted(target: Path, sha256: str) -> None:
    record = read_json(target / "fluxmem-source.json")
    for name, expected in record.get("files", {}).items():
        if not (target / name).is_file() or remembered_sha256(target / name) != expected:
            raise ModelIntegrityError(
                f"{target / name} is missing or changed since it was converted; remove {target}, "
                "and the next start converts the model again"
            )
    if record.get("source") != sha256:
        raise ModelIntegrityError(f"{target} was converted from another file; remove it, and it is made again")
