"""Writes the generated parts of README.md: the table of settings and the list of commands.

.venv/bin/python scripts/make_docs.py            rewrite them
.venv/bin/python scripts/make_docs.py --check    exit 1 when they differ from the code
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import fields
from pathlib import Path

import click

from fluxmem_local.cli.main import cli as command_line
from fluxmem_local.config import FluxMemConfig

README = Path(__file__).parent.parent / "README.md"


def settings_table() -> str:
    lines = ["| setting | default | allowed | what it is |", "|---|---|---|---|"]
    for spec in fields(FluxMemConfig):
        rule = spec.metadata
        choices = ", ".join(rule.get("choices", ())) or "text"
        allowed = rule.get("allowed") or (f"{rule['low']:g} to {rule['high']:g}" if "low" in rule else choices)
        lines.append(f"| `{spec.name}` | `{spec.default}` | {allowed} | {rule['about']} |")
    return "\n".join(lines)


def command_table() -> str:
    lines = ["| command | what it does |", "|---|---|"]
    context = click.Context(command_line, info_name="fluxmem")
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            group = click.Context(command, info_name=name, parent=context)
            for verb in command.list_commands(group):
                part = command.get_command(group, verb)
                assert part is not None
                lines.append(f"| `fluxmem {name} {verb}` | {part.get_short_help_str(100)} |")
        else:
            lines.append(f"| `fluxmem {name}` | {command.get_short_help_str(100)} |")
    return "\n".join(lines)


def with_generated(text: str) -> str:
    for mark, part in (("settings", settings_table()), ("commands", command_table())):
        pattern = rf"(<!-- {mark}: made by scripts/make_docs.py -->\n).*?(<!-- end of {mark} -->)"
        text, count = re.subn(
            pattern, lambda found, part=part: found[1] + part + "\n" + found[2], text, flags=re.DOTALL
        )
        if count != 1:
            raise SystemExit(f"README.md has {count} places for the {mark}; it needs exactly one")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    present = README.read_text(encoding="utf-8")
    wanted = with_generated(present)
    if present == wanted:
        return 0
    if arguments.check:
        print("README.md is not what the code says; run: .venv/bin/python scripts/make_docs.py")
        return 1
    README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
