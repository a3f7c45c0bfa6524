"""A corpus and questions to measure retrieval with: the docstrings of the Python that runs, and who should find which.

`python_docs.jsonl` holds one question a line: `question`, `language`, and `evidence`, a list of one or two objects with
the `title` of a document and an `anchor`, a few words that stand in the part of its text which answers; and `reworded`,
the same need as another might put it. The weight of what was learned was chosen on the first sixty; the rewordings of
the others were written later. Nothing of the documentation is stored here. A few documents differ between versions of
Python; a question whose title is missing from the running one is left out.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

__all__ = ["QUESTIONS", "Document", "Evidence", "Question", "load_documents", "load_questions"]

QUESTIONS = Path(__file__).with_suffix(".jsonl")
MIN_CHARACTERS = 40
MODULES = (
    *("abc", "argparse", "array", "ast", "asyncio", "base64", "binascii", "bisect", "builtins", "bz2", "calendar"),
    *("cmd", "codecs", "collections", "concurrent.futures", "configparser", "contextlib", "contextvars", "copy"),
    *("cProfile", "csv", "ctypes.util", "dataclasses", "datetime", "decimal", "difflib", "dis", "doctest", "email"),
    *("email.header", "email.headerregistry", "email.message", "email.parser", "email.policy", "email.utils", "enum"),
    *("errno", "faulthandler", "filecmp", "fnmatch", "fractions", "ftplib", "functools", "gc", "getpass", "gettext"),
    *("glob", "graphlib", "gzip", "hashlib", "heapq", "hmac", "html", "html.parser", "http", "http.client"),
    *("http.cookiejar", "http.cookies", "http.server", "imaplib", "importlib", "importlib.metadata", "inspect", "io"),
    *("ipaddress", "itertools", "json", "keyword", "linecache", "locale", "logging", "logging.config"),
    *("logging.handlers", "lzma", "math", "mimetypes", "mmap", "multiprocessing.pool", "multiprocessing.shared_memory"),
    *("operator", "os", "os.path", "pathlib", "pdb", "pickle", "pkgutil", "platform", "pprint", "pstats", "queue"),
    *("random", "re", "reprlib", "sched", "secrets", "selectors", "shelve", "shlex", "shutil", "signal", "smtplib"),
    *("socket", "socketserver", "sqlite3", "ssl", "stat", "statistics", "string", "struct", "subprocess", "sys"),
    *("tarfile", "tempfile", "textwrap", "threading", "time", "timeit", "tokenize", "tomllib", "traceback"),
    *("tracemalloc", "types", "typing", "unicodedata", "unittest", "unittest.mock", "urllib.error", "urllib.parse"),
    *("urllib.request", "urllib.robotparser", "uuid", "warnings", "wave", "weakref", "webbrowser", "xml.dom.minidom"),
    *("xml.etree.ElementTree", "zipfile", "zlib", "zoneinfo"),
)


@dataclass(frozen=True, slots=True)
class Document:
    """One docstring: the module it comes from, the full name of what it describes, and its text without indentation."""

    source: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The document that answers, and words of the part of it that does."""

    title: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Question:
    question: str
    language: str
    evidence: tuple[Evidence, ...]
    reworded: str


def load_documents() -> list[Document]:
    """The docstrings of modules, public classes, methods and functions, each text once, always in the same order."""
    documents: list[Document] = []
    seen: set[str] = set()
    for source in MODULES:
        try:
            module = importlib.import_module(source)
        except ImportError:  # an older Python lacks tomllib, and a Python built without a library lacks its module
            continue
        for title, described in _described(source, module):
            if not described.__doc__:  # getdoc would fall back on what a base says
                continue
            text = (inspect.getdoc(described) or "").strip()
            if len(text) >= MIN_CHARACTERS and text not in seen:
                seen.add(text)
                documents.append(Document(source, title, text))
    return documents


def load_questions(documents: Iterable[Document]) -> list[Question]:
    """The questions whose evidence is all among `documents`, in the order of the file."""
    titles = {document.title for document in documents}
    entries = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    questions = [
        Question(
            entry["question"],
            entry["language"],
            tuple(Evidence(**part) for part in entry["evidence"]),
            entry["reworded"],
        )
        for entry in entries
    ]
    return [question for question in questions if all(part.title in titles for part in question.evidence)]


def _described(source: str, module: ModuleType) -> Iterator[tuple[str, object]]:
    yield source, module
    for name, member in _public_members(module).items():
        title = f"{source}.{name}"
        if inspect.isclass(member):
            yield title, member
            for inner, attribute in _own_attributes(member).items():
                if not inner.startswith("_") and _is_method(attribute):
                    yield f"{title}.{inner}", attribute
        elif inspect.isroutine(member):
            yield title, member


def _public_members(module: ModuleType) -> dict[str, object]:
    members = {name: member for name, member in vars(module).items() if not name.startswith("_")}
    if hasattr(module, "__all__"):
        return {name: member for name, member in members.items() if name in module.__all__}
    homes = (module.__name__, f"_{module.__name__}")  # the second is where a module's part in C lives
    return {name: member for name, member in members.items() if getattr(member, "__module__", None) in homes}


def _own_attributes(owner: type) -> dict[str, object]:
    """What a class defines, with what it has from bases that are private and so appear nowhere else."""
    hidden = [base for base in owner.__mro__[1:] if base.__name__.startswith("_")]
    return {name: value for part in (*reversed(hidden), owner) for name, value in vars(part).items()}


def _is_method(attribute: object) -> bool:
    return (
        inspect.isroutine(attribute)
        or inspect.isdatadescriptor(attribute)
        or isinstance(attribute, classmethod | staticmethod | cached_property)
    )
