"""The command ``fluxmem``: finds the verb, loads its module only then, and turns errors into one line."""

from __future__ import annotations

import io
import logging
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from fluxmem_local.errors import FluxMemError

from .output import BAD_INPUT, EXIT_CODES, INTERRUPTED, OK, exit_code
from .session import NamedPath, Session, VerbGroup

__all__ = ["cli", "main"]

# The verbs in the order of --help: where each lives, and its line of help, which so costs no import.
_VERBS: dict[str, tuple[str, str]] = {
    "init": ("adding", "Make an empty memory."),
    "add": ("adding", "Add files, folders or stdin to the memory."),
    "search": ("asking", "Find the memories nearest to a query."),
    "context": ("asking", "Print the context that a task would be given."),
    "ask": ("asking", "Answer a question from memory, with the facts it rests on."),
    "run": ("tasks", "Run a program on a task, repairing the memory when it fails."),
    "record": ("tasks", "Record an episode that was lived elsewhere."),
    "consolidate": ("consolidating", "Distil episodes into skills and tidy the graph."),
    "skills": ("skills", "List, show, approve, compare, export and import skills."),
    "show": ("nodes", "Show a memory with its links."),
    "history": ("nodes", "Show what happened to a memory."),
    "undo": ("nodes", "Take a repair of the graph back."),
    "update": ("nodes", "Give a memory new content."),
    "confirm": ("nodes", "Trust what an agent wrote by itself."),
    "forget": ("nodes", "Remove memories with all derived from them."),
    "stats": ("upkeep", "Count what the memory holds."),
    "verify": ("upkeep", "Check the graph's rules and the indices."),
    "reindex": ("upkeep", "Embed what has no vector and rebuild the indices."),
    "export": ("exchange", "Write the memory as JSON Lines."),
    "import": ("exchange", "Read JSON Lines that export wrote."),
    "backup": ("backups", "Copy the memory while others work with it."),
    "restore": ("backups", "Make a memory from a backup."),
    "graph": ("exchange", "Write the graph as one HTML page."),
    "models": ("models", "List, check and prepare the local models."),
    "doctor": ("upkeep", "Check installation, models and memory."),
    "demo": ("demo", "Run the case study on the local models."),
}


class _LazyGroup(VerbGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = import_module(f"fluxmem_local.cli.{_VERBS[cmd_name][0]}")
        command: click.Command = module.COMMANDS[cmd_name]
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments of all levels; a NUL byte, which no file's name can hold, is refused in each."""
        if any("\0" in argument for argument in args):
            ctx.fail("an argument holds a NUL byte; give text, and paths of files that can exist")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a reader of its output that goes away, as `head` does, ends it quietly."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # What is still buffered goes nowhere; click itself would end with 1.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line and exit with the code that ``fluxmem --help`` documents."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A path may hold bytes that are no text; they are shown as such, and in JSON they are its own escape.
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            code = super().main(*args, **{**kwargs, "prog_name": "fluxmem", "standalone_mode": False})
        except click.UsageError as error:
            error.show()
            code = BAD_INPUT
        except click.ClickException as error:
            click.echo(f"error: {error.format_message()}", err=True)
            code = BAD_INPUT
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            code = INTERRUPTED
        except (FluxMemError, OSError) as error:
            click.echo(f"error: {' '.join(str(error).split())}", err=True)
            code = exit_code(error)
        sys.exit(code if isinstance(code, int) else OK)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in _VERBS.items()])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


def _print_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from fluxmem_local import __version__

        click.echo(f"fluxmem-local {__version__}")
        ctx.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--memory",
    type=NamedPath(path_type=Path, file_okay=False),
    help="The memory's directory; else FLUXMEM_HOME, else one in your data directory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print results as JSON.")
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Print it.")
@click.pass_context
def cli(ctx: click.Context, memory: Path | None, as_json: bool) -> None:
    """Memory for agents that repairs itself, on this machine only.

    Each verb has --help with an example, --json and --memory. Settings come from FLUXMEM_<NAME> variables and from
    fluxmem.toml in the memory's directory or the current one.

    \b
    Example:
      fluxmem add notes.md
      fluxmem ask "When does the lease end?"
    """
    ctx.obj = Session(memory=memory, as_json=as_json)


def main() -> None:
    """Run the command ``fluxmem``."""
    _set_log_level()
    cli.main()


def _set_log_level() -> None:
    level = os.environ.get("FLUXMEM_LOG_LEVEL", "warning").strip().upper() or "WARNING"
    if not isinstance(logging.getLevelName(level), int):
        click.echo(f"error: FLUXMEM_LOG_LEVEL={level!r} is no log level; use debug, info, warning or error", err=True)
        sys.exit(BAD_INPUT)
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
