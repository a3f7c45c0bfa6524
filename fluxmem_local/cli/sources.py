"""Sources: files, folders and stdin as facts to add."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxmem_local.errors import BlankTextError, ImportFormatError, InvalidInputError
from fluxmem_local.graph import SemanticNode
from fluxmem_local.text import HEADINGS, chunk_document, is_blank, is_markdown
from fluxmem_local.types import Origin, Scope

__all__ = ["STDIN", "Found", "Source", "find_files", "read_source", "readable_name"]

STDIN = "stdin"

# What a folder is searched for; a file that is named itself may have any suffix.
# fmt: off
_TEXT_SUFFIXES = frozenset(
    {
        ".txt", ".text", ".md", ".markdown", ".mdx", ".rst", ".adoc", ".org", ".tex", ".log", ".csv",
        ".tsv", ".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".html", ".htm",
        ".xml", ".py", ".js", ".ts", ".java", ".c", ".h", ".cpp", ".hpp", ".cs", ".go", ".rs", ".rb",
        ".php", ".sh", ".sql", ".r", ".jl", ".lua", ".swift", ".kt",
    }
)
# fmt: on
_LINES_SUFFIXES = frozenset({".jsonl", ".ndjson"})
_KNOWN_KEYS = frozenset({"speaker", "role", "content", "text", "time", "timestamp", "metadata", "source", "id"})
_SNIFFED_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file's facts with the digest of its bytes, by which a second `add` knows it again; stdin has none."""

    digest: str | None
    facts: tuple[SemanticNode, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What the named paths hold: files to read, and how many were passed over as hidden, binary, blank or no text."""

    files: tuple[Path, ...]
    num_passed_over: int


def find_files(paths: list[Path]) -> Found:
    """List the files that ``paths`` name, folders with all below them, in a fixed order and each once.

    Raises:
        InvalidInputError: a path that does not exist.
    """
    files: dict[Path, None] = {}
    passed_over = 0
    for path in paths:
        if not path.exists():
            raise InvalidInputError(f"{readable_name(path)} does not exist; name a file, a folder, or - for stdin")
        if not path.is_dir():
            files[path.resolve()] = None
            continue
        for folder, subfolders, names in os.walk(path.resolve()):
            passed_over += sum(name.startswith(".") for name in subfolders)
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in sorted(names):
                file = Path(folder, name)
                if name.startswith(".") or file.suffix.lower() not in _TEXT_SUFFIXES or not _holds_text(file):
                    passed_over += 1
                else:
                    files[file] = None
    return Found(tuple(files), passed_over)


def read_source(
    name: str,
    content: bytes,
    *,
    chunk_size: int,
    scope: Scope,
    metadata: Mapping[str, Any],
    source: str | None = None,
    lines: bool | None = None,
    added_by: Origin = Origin.USER,
) -> Source:
    """Read one file's bytes as facts.

    Args:
        name: the file's path, which messages name, and which is the facts' source unless ``source`` says another.
        content: the file's bytes.
        chunk_size: characters of a fact at most.
        scope: whom the facts belong to.
        metadata: what each fact's metadata begins with.
        source: the facts' source.
        lines: whether it is JSON Lines; None: by the suffix.
        added_by: who says it.

    Raises:
        BlankTextError: the file has no visible character.
        ImportFormatError: bytes that are no UTF-8 text, or a line that is no fact or message; with its position.
    """
    text = _decoded(name, content)
    if is_blank(text):
        raise BlankTextError(f"{name} is blank; nothing of it was added")
    if lines is None:
        lines = Path(name).suffix.lower() in _LINES_SUFFIXES
    markdown = not lines and (is_markdown(name) or is_markdown(source or ""))
    parts = _line_parts(name, text) if lines else iter([(text, {})])
    facts: list[SemanticNode] = []
    for part, record in parts:
        for index, chunk in enumerate(chunk_document(part, chunk_size, markdown=markdown)):
            own_id: dict[str, Any] = {"id": record["id"] + (f"/{index}" if index else "")} if "id" in record else {}
            facts.append(
                SemanticNode(
                    content=chunk.content,
                    source=record.get("source", source or name),
                    chunk_index=len(facts),
                    metadata={
                        **({HEADINGS: chunk.headings} if chunk.headings else {}),
                        **metadata,
                        **record.get("metadata", {}),
                    },
                    scope=scope,
                    added_by=added_by,
                    **own_id,
                )
            )
    if name == STDIN:
        return Source(digest=None, facts=tuple(facts))
    how = f"{chunk_size}\n{scope}\n{json.dumps(dict(metadata), sort_keys=True)}\n{source}\n"
    # What was taken in before facts knew their headings is read again once.
    how += f"{HEADINGS}\n" if markdown else ""
    return Source(digest=hashlib.sha256(how.encode("utf-8", "surrogatepass") + content).hexdigest(), facts=tuple(facts))


def readable_name(file: Path | str) -> str:
    """Return a path as a text that can be stored; bytes that are no UTF-8 stand as ``\\xff``."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def _holds_text(file: Path) -> bool:
    try:
        # A pipe or device has no end of its own, and opening one may wait for ever.
        if not stat.S_ISREG(file.stat().st_mode):
            return False
        with file.open("rb") as opened:
            begin = opened.read(_SNIFFED_BYTES)
        return b"\0" not in begin and (len(begin) == _SNIFFED_BYTES or bool(begin.strip()))
    except OSError:
        # Left in the list, so that reading it reports why it cannot be read.
        return True


def _decoded(name: str, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImportFormatError(
            f"{name}: byte {content[error.start]:#04x} at offset {error.start} is not UTF-8; convert the file to UTF-8"
        ) from None
    if "\0" in text:
        raise ImportFormatError(
            f"{name}: NUL byte at offset {content.index(0)}: this is no text file, or not in UTF-8; convert it first"
        )
    return text


def _line_parts(name: str, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    # Not splitlines: JSON strings may hold U+2028 and its like as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ImportFormatError(f"{where}: not JSON ({error}); each line is one JSON object") from None
        if not isinstance(record, dict):
            raise ImportFormatError(f"{where}: {type(record).__name__} where a JSON object is needed")
        yield _line_part(where, record)


def _line_part(where: str, record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    speaker = record.get("speaker", record.get("role"))
    text = record.get("content", record.get("text"))
    if not isinstance(text, str) or is_blank(text):
        raise ImportFormatError(f"{where}: no visible text under 'content' or 'text'")
    metadata = record.get("metadata", {})
    if not isinstance(metadata, dict):
        raise ImportFormatError(f"{where}: 'metadata' must be a JSON object")
    for key in ("source", "id", "speaker", "role"):
        if key in record and (not isinstance(record[key], str) or is_blank(record[key])):
            raise ImportFormatError(f"{where}: {key!r} must be a text that is not blank")
    # Fields we have no use for may matter to a filter.
    metadata = {key: value for key, value in record.items() if key not in _KNOWN_KEYS} | metadata
    if speaker is not None:
        metadata = {"speaker": speaker, **metadata}
        time = record.get("time", record.get("timestamp"))
        if time is not None:
            metadata["time"] = time
        text = f"{speaker}: {text}"
    return text, {**record, "metadata": metadata}
