"""`fluxmem export`, `import` and `graph`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fluxmem_local.errors import ImportFormatError
from fluxmem_local.types import Scope

from .files import written_whole
from .output import count_of, note, print_json
from .session import NamedPath, Session, Verb, scope_options
from .sources import readable_name

__all__ = ["COMMANDS"]


@click.command(cls=Verb)
@click.option("-o", "--output", default="-", show_default=True, help="The file to write; - is stdout.")
@scope_options
@click.pass_obj
def export(session: Session, output: str, scope: Scope | None) -> None:
    """Write the whole memory as JSON Lines, or what a scope sees of it: nodes, links, repairs, history, vectors.

    \b
    Example:
      fluxmem export -o memory.jsonl
    """
    with session.open() as agent:
        if output == "-":
            # JSON Lines are UTF-8, whatever the terminal's encoding.
            sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
            agent.export(sys.stdout, scope=scope)
            sys.stdout.flush()
            return
        with written_whole(Path(output)) as file:
            num_lines = agent.export(file, scope=scope)
    if session.as_json:
        print_json({"file": output, "num_lines": num_lines})
    else:
        note(f"wrote {count_of(num_lines, 'line')} to {output}")


@click.command("import", cls=Verb)
@click.argument("file")
@click.pass_obj
def import_(session: Session, file: str) -> None:
    """Read the JSON Lines that `export` wrote from FILE (- for stdin), all or nothing.

    Nodes that are in the memory already are not doubled, and what was forgotten there stays away until it is added
    anew. Vectors of another embedder are left out; `reindex` makes them anew.

    \b
    Example:
      fluxmem --memory ./copy import memory.jsonl
    """
    with session.open(create=True) as agent:
        try:
            if file == "-":
                sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
                report = agent.import_(sys.stdin)
            else:
                with Path(file).open(encoding="utf-8") as opened:
                    report = agent.import_(opened)
        except UnicodeDecodeError as error:
            raise ImportFormatError(f"{file}: not UTF-8 ({error.reason}); nothing was imported") from None
        except FileNotFoundError:
            raise ImportFormatError(f"{file} does not exist; name a file that export wrote, or - for stdin") from None
        except IsADirectoryError:
            raise ImportFormatError(
                f"{Path(file)} is a folder; name a file that export wrote, or - for stdin"
            ) from None
    if session.as_json:
        print_json(report)
    else:
        click.echo(", ".join(f"{name.removeprefix('num_')}: {number}" for name, number in report.to_dict().items()))


@click.command(cls=Verb)
@click.option("-o", "--output", required=True, type=NamedPath(path_type=Path, dir_okay=False), help="The HTML file.")
@click.option("--title", help="The page's title; else the memory's directory.")
@click.pass_obj
def graph(session: Session, output: Path, title: str | None) -> None:
    """Write the graph as one HTML page that needs nothing else, and no network.

    \b
    Example:
      fluxmem graph -o graph.html
    """
    from fluxmem_local.viewer.page import render_graph_page

    with session.open() as agent:
        nodes, edges = agent.store.select(), agent.store.edges()
        page = render_graph_page(
            nodes, edges, title=readable_name(title or session.directory), edits=agent.store.edits()
        )
    with written_whole(output) as file:
        file.write(page)
    if session.as_json:
        print_json({"file": output, "num_nodes": len(nodes), "num_edges": len(edges)})
    else:
        click.echo(f"{output}: {count_of(len(nodes), 'node')}, {count_of(len(edges), 'link')}")


COMMANDS = {"export": export, "import": import_, "graph": graph}
