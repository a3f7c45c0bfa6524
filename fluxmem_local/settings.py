"""Where settings come from: arguments, then the environment, then fluxmem.toml, then the defaults (spec section 7)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["CONFIG_FILE", "default_memory_directory", "load_config"]

CONFIG_FILE = "fluxmem.toml"
_PREFIX = "FLUXMEM_"

# Variables of ours that are no settings of an agent.
_OTHER_VARIABLES = frozenset(_PREFIX + name for name in ("HOME", "MODELS", "LOG_LEVEL", "TORCH", "CONTEXT_FILE"))
_FIELDS = {spec.name: spec for spec in fields(FluxMemConfig)}


def load_config(
    overrides: Mapping[str, Any] | None = None, *, directory: str | os.PathLike[str] | None = None
) -> FluxMemConfig:
    """Collect the settings for a memory.

    Args:
        overrides: settings that win over all others.
        directory: the memory's directory; a ``fluxmem.toml`` in it is read, else one in the current directory.

    Raises:
        ConfigError: an unknown name or a value out of range; the message says where it came from.
    """
    found: dict[str, Any] = {}
    path = _config_file(directory)
    if path is not None:
        for name, value in _read_toml(path).items():
            found[name] = _checked(name, value, f"in {path}")
    for variable, text in os.environ.items():
        # A variable that is set to nothing counts as not set, as everywhere in a shell.
        if variable.startswith(_PREFIX) and variable not in _OTHER_VARIABLES and text.strip():
            name = variable[len(_PREFIX) :].lower()
            found[name] = _checked(name, text.strip(), f"in the environment as {variable}")
    for name, value in (overrides or {}).items():
        found[name] = _checked(name, value, "given as an argument")
    return FluxMemConfig(**found)


def default_memory_directory() -> Path:
    """Name the memory that is used when none is given: FLUXMEM_HOME, else a folder of the user's data directory."""
    named = os.environ.get("FLUXMEM_HOME", "").strip()
    if named:
        return Path(named).expanduser()
    data = os.environ.get("XDG_DATA_HOME", "").strip()
    return (Path(data) if data else Path.home() / ".local" / "share") / "fluxmem" / "memory"


def _config_file(directory: str | os.PathLike[str] | None) -> Path | None:
    places = [Path.cwd()] if directory is None else [Path(directory), Path.cwd()]
    return next((place / CONFIG_FILE for place in places if (place / CONFIG_FILE).is_file()), None)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            settings: dict[str, Any] = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}; settings are lines such as top_k_semantic = 5") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    return settings


def _checked(name: str, value: Any, origin: str) -> Any:
    try:
        if isinstance(value, str) and name in _FIELDS:
            value = _from_text(name, value)
        FluxMemConfig(**{name: value})
    except ConfigError as error:
        raise ConfigError(f"{error} ({origin})") from None
    return value


def _from_text(name: str, text: str) -> Any:
    rule = _FIELDS[name].metadata
    if "choices" in rule:
        return text
    if "allowed" in rule:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f'{name} must be JSON, as [{{"max_age": "90d"}}]: {error}') from None
    if rule["optional"] and text.lower() == "none":
        return None
    whole = rule["optional"] or isinstance(_FIELDS[name].default, int)
    try:
        return int(text) if whole else float(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r} must be a {'whole number' if whole else 'number'}") from None
