"""All errors of the package.

FluxMemError
├── InvalidInputError (also ValueError)   an argument that no call could accept
│   ├── BlankTextError                    text without a visible character
│   ├── DimensionError                    a vector of the wrong size, or with NaN or infinity
│   └── ConfigError                       an unknown setting or a value out of range
├── NotFoundError (also LookupError)      an id, edit or scope the memory does not hold
├── ModelError
│   ├── ModelNotFoundError                no such model directory, file or registry name
│   ├── ModelIntegrityError               a model file whose hash is not the registered one
│   ├── ModelOutputError                  a model's answer that cannot be used
│   └── EmbedderMismatchError             the memory was written by another embedder
├── OutsideFailureError                   raised by a task function: what failed is outside of the memory
└── StorageError
    ├── MemoryNotFoundError               no memory at this path
    ├── MemoryDamagedError                the database is damaged, or is none
    ├── SchemaVersionError                written by a newer version of this package
    ├── MemoryLockedError                 another writer holds the memory
    └── ImportFormatError                 a file that `import` or `add` cannot read
"""

from __future__ import annotations

__all__ = [
    "BlankTextError",
    "ConfigError",
    "DimensionError",
    "EmbedderMismatchError",
    "FluxMemError",
    "ImportFormatError",
    "InvalidInputError",
    "MemoryDamagedError",
    "MemoryLockedError",
    "MemoryNotFoundError",
    "ModelError",
    "ModelIntegrityError",
    "ModelNotFoundError",
    "ModelOutputError",
    "NotFoundError",
    "OutsideFailureError",
    "SchemaVersionError",
    "StorageError",
]


class FluxMemError(Exception):
    """Base of every error this package raises on purpose; its message names the problem and the remedy."""


class InvalidInputError(FluxMemError, ValueError):
    """An argument that no call could accept; nothing was stored."""


class BlankTextError(InvalidInputError):
    """Text without a visible character was given where content is needed."""


class DimensionError(InvalidInputError):
    """A vector has the wrong size, or holds NaN or infinity."""


class ConfigError(InvalidInputError):
    """An unknown setting, or a value out of its range."""


class NotFoundError(FluxMemError, LookupError):
    """The memory holds no node, edit or scope of this name."""


class ModelError(FluxMemError):
    """A local model cannot be used."""


class ModelNotFoundError(ModelError):
    """No model directory, GGUF file or registry entry of this name on this machine, or none where one is needed."""


class ModelIntegrityError(ModelError):
    """A model file's hash differs from the registered one."""


class ModelOutputError(ModelError):
    """A model's answer cannot be used: empty, repetitive, cut off, or not of the asked form."""


class EmbedderMismatchError(ModelError):
    """The memory's vectors were made by another embedder."""


class OutsideFailureError(FluxMemError):
    """A task function raises it when it knows that no memory can mend what failed: the task ends without a repair.

    The message is the feedback; ``result`` is what the step had brought forth.
    """

    def __init__(self, message: str, *, result: str = "") -> None:
        super().__init__(message)
        self.result = result


class StorageError(FluxMemError):
    """The memory directory cannot be read or written as asked."""


class MemoryNotFoundError(StorageError):
    """There is no memory at the given path."""


class MemoryDamagedError(StorageError):
    """The memory's database is damaged, or the file is no database of ours."""


class SchemaVersionError(StorageError):
    """The memory was written by a newer version of this package."""


class MemoryLockedError(StorageError):
    """Another writer holds the memory; the message says who."""


class ImportFormatError(StorageError):
    """A file to add or import is not in a readable form; the message gives file and position."""
