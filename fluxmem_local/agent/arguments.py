"""Checks of what a caller hands over, made before anything is done."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.storage.checks import check_text
from fluxmem_local.types import Origin

__all__ = [
    "check_bound",
    "check_file",
    "check_flag",
    "check_function",
    "check_id",
    "check_origin",
    "check_type",
    "listed",
    "listed_ids",
]


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False: a text such as "no" would count as true."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInputError(f"{name}={value!r:.200} must be True or False")


def check_bound(name: str, value: Any, *, whole: bool = False) -> None:
    """Refuse what is neither None nor a number of at least 0, and a whole one where that is asked for."""
    kinds = (int,) if whole else (int, float)
    if value is not None and (isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < math.inf):
        raise InvalidInputError(
            f"{name}={value!r:.200} is no {'whole ' if whole else ''}number of at least 0; None is no bound"
        )


def check_function(name: str, value: Any) -> None:
    """Refuse what is neither None nor can be called."""
    if value is not None and not callable(value):
        raise InvalidInputError(f"{name}={value!r:.200} cannot be called; give a function, or leave it out")


def check_id(name: str, value: Any) -> None:
    """Refuse what cannot be an id."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{name}={value!r:.200} is no id; ids are texts, such as add_knowledge returns")
    check_text(value, name)


def check_origin(name: str, value: Any) -> Origin:
    """Return who added something.

    Raises:
        InvalidInputError: it is nobody known.
    """
    if not isinstance(value, str) or value not in tuple(Origin):
        raise InvalidInputError(f"{name}={value!r:.200} is nobody known; give one of {', '.join(Origin)}")
    return Origin(value)


def listed(name: str, values: Any, of: str) -> list[Any]:
    """Return what was given as a list.

    Raises:
        InvalidInputError: it is a single text, a mapping, or nothing that can be gone through.
    """
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, bytearray, Mapping)):
        raise InvalidInputError(f"{name}={values!r:.200} must be a list of {of}")
    try:
        return list(values)
    except TypeError as error:
        # A class can claim to be iterable and not be: an array without dimensions does.
        raise InvalidInputError(f"{name}={values!r:.200} must be a list of {of}") from error


def listed_ids(name: str, values: Any) -> list[str]:
    """Return ids as a list, each once.

    Raises:
        InvalidInputError: it is no list, or holds something that is no text.
    """
    ids = listed(name, values, "ids")
    for id in ids:
        check_id(f"an id in {name}", id)
    return list(dict.fromkeys(ids))


def check_type(name: str, value: object, wanted: type) -> None:
    """Refuse what is neither None nor of the wanted type."""
    if value is not None and not isinstance(value, wanted):
        raise InvalidInputError(f"{name} is a {type(value).__name__}; it must be a {wanted.__name__} or None")


def check_file(file: Any, use: str) -> None:
    """Refuse what is no open text file to ``"read"`` or to ``"write"``."""
    closed = getattr(file, "closed", False)
    binary = isinstance(file, (io.RawIOBase, io.BufferedIOBase))
    # Any iterable of lines can be read, but a single text is the name of a file far more often than its content.
    readable = hasattr(file, "__iter__") and not isinstance(file, (str, bytes))
    usable = hasattr(file, "write") if use == "write" else readable
    if closed or binary or not usable:
        what = "closed" if closed else "open for bytes" if binary else "no open file"
        mode = ", 'w'" if use == "write" else ""
        raise InvalidInputError(f"file={file!r:.200} is {what}; give open(path{mode}, encoding='utf-8')")
