"""What all verbs share: the options of memory, scope and JSON, and opening the agent they act on."""

from __future__ import annotations

import difflib
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import BlankTextError, ImportFormatError
from fluxmem_local.settings import default_memory_directory, load_config
from fluxmem_local.text import is_blank
from fluxmem_local.types import Scope

from .output import note

if TYPE_CHECKING:
    from fluxmem_local.agent.agent import FluxMemAgent

__all__ = ["NamedPath", "Session", "Verb", "VerbGroup", "note_unembedded", "read_file", "read_text", "scope_options"]


class NamedPath(click.Path):
    """A path that is refused when blank, which else would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or end with a usage error."""
        if not os.fspath(value).strip():
            self.fail("it is blank; name a path", param, ctx)
        return super().convert(value, param, ctx)


class Session:
    """One call of the command: which memory it is about, and whether it answers in JSON."""

    def __init__(self, memory: Path | None = None, *, as_json: bool = False) -> None:
        self._memory = memory
        self.as_json = as_json

    @property
    def directory(self) -> Path:
        """The memory's directory."""
        return self._memory if self._memory is not None else default_memory_directory()

    def narrow(self, memory: Path | None, as_json: bool) -> None:
        """Let what stands after the verb win over what stands before it."""
        self._memory = memory if memory is not None else self._memory
        self.as_json = self.as_json or as_json

    def config(self, **overrides: Any) -> FluxMemConfig:
        """Read the settings for this memory; None in ``overrides`` means: not given."""
        given = {name: value for name, value in overrides.items() if value is not None}
        return load_config(given, directory=self.directory)

    def open(
        self,
        *,
        embedder: bool = False,
        llm: bool = False,
        create: bool = False,
        accept_other_embedder: bool = False,
        **overrides: Any,
    ) -> FluxMemAgent:
        """Open the agent with no more models than the verb needs.

        Raises:
            MemoryNotFoundError: there is no memory yet, and ``create`` is False.
            ModelNotFoundError: a model that the verb needs is not on this machine.
        """
        # Here, because help and usage errors should not load the whole system.
        from fluxmem_local.agent.agent import FluxMemAgent

        config = self.config(**overrides)
        models: dict[str, Any] = {}
        if not embedder:
            models["embedder"] = None
        if not llm:
            models["llm"] = None
        return FluxMemAgent.open(
            self.directory, config=config, create=create, accept_other_embedder=accept_other_embedder, **models
        )


class Verb(click.Command):
    """A command with --memory and --json of its own, so that they may stand on either side of the verb."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(
                ["--memory", "_memory"],
                type=NamedPath(path_type=Path, file_okay=False),
                help="The memory's directory; else FLUXMEM_HOME, else one in your data directory.",
            ),
            click.Option(["--json", "_as_json"], is_flag=True, help="Print the result as JSON."),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Hand the shared options to the session, then run the verb."""
        ctx.ensure_object(Session).narrow(ctx.params.pop("_memory"), ctx.params.pop("_as_json"))
        return super().invoke(ctx)


class VerbGroup(click.Group):
    """Verbs of one word more; one that is misspelt is answered with the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or end with a usage error that names the nearest one."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], known, n=1)
            ctx.fail(f"there is no verb {args[0]!r}; " + (f"did you mean {near[0]!r}?" if near else "see --help"))
        return super().resolve_command(ctx, args)


def scope_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --user, --agent and --session; the verb gets them as one ``scope``, None when none of them is given."""

    @functools.wraps(function)
    def with_scope(*args: Any, _user: str | None, _agent: str | None, _session: str | None, **kwargs: Any) -> Any:
        parts = {"user": _user, "agent": _agent, "session": _session}
        scope = Scope(**parts) if any(part is not None for part in parts.values()) else None
        return function(*args, scope=scope, **kwargs)

    for name in ("session", "agent", "user"):
        with_scope = click.option(f"--{name}", f"_{name}", help=f"Whose memory: the name of the {name}.")(with_scope)
    return with_scope


def note_unembedded(agent: FluxMemAgent) -> None:
    """Say what a search by meaning cannot find, because it was stored without an embedder."""
    number = agent.store.num_unembedded() if agent.embedder is not None else 0
    if number:
        has = "memory has" if number == 1 else "memories have"
        note(f"{number} {has} no vector yet, found by words only: fluxmem reindex")


def read_file(name: str) -> str:
    """Return the text of a file, or of stdin when its name is ``-``.

    Raises:
        ImportFormatError: it cannot be read, or is not UTF-8.
    """
    try:
        given = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise ImportFormatError(f"{name} cannot be read: {error.strerror or error}") from None
    try:
        return given.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte {given[error.start]:#04x} at offset {error.start}"
        raise ImportFormatError(f"{'stdin' if name == '-' else name}: {place} is not UTF-8") from None


def read_text(argument: str) -> str:
    """Return an argument's text, or all of stdin when it is ``-``.

    Raises:
        ImportFormatError: stdin is not UTF-8.
        BlankTextError: the text has no visible character.
    """
    text = read_file("-") if argument == "-" else argument
    if is_blank(text):
        raise BlankTextError("the text is blank; give text with at least one visible character")
    return text
