"""`fluxmem demo`: runs the case study on the configured local models."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from fluxmem_local.agent.agent import FluxMemAgent
from fluxmem_local.errors import ConfigError
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.settings import load_config
from fluxmem_local.viewer.page import render_graph_page

from .case_study import CaseStudy, StudyReport
from .story import Narrator, tell

__all__ = ["run_demo"]


def run_demo(directory: Path | None = None, *, as_json: bool = False) -> int:
    """Run the case study and show it.

    Args:
        directory: where tables, memory and page go; a new temporary one when None.
        as_json: print data on stdout; the story then goes to stderr.

    Returns:
        The exit status: 0 when the first question was solved and the second one at its first try.
    """
    home = Path(directory or tempfile.mkdtemp(prefix="fluxmem-demo-")).resolve()
    console = Console(stderr=as_json)
    report, page = asyncio.run(_run(home, console))
    if as_json:
        json.dump({**report.to_dict(), "page": str(page)}, sys.stdout, ensure_ascii=False, indent=2)
        sys.stdout.write("\n")
    tell(console, report, page)
    return 0 if report.success else 1


async def _run(home: Path, console: Console) -> tuple[StudyReport, Path]:
    tables = home / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    # Each run starts from the same first memory, so it gets a directory of its own.
    memory = Path(tempfile.mkdtemp(prefix="memory-", dir=home))
    async with FluxMemAgent.open(memory, config=load_config(directory=memory)) as agent:
        embedder = agent.embedder
        if embedder is None:
            raise ConfigError("the demo needs an embedder; name one in FLUXMEM_EMBEDDING_MODEL, or unset it")
        console.print("Loading the local models ...")
        await _load(agent, embedder)
        narrator = Narrator(console, agent.store)
        study = CaseStudy(agent, embedder, tables)
        report = await study.run(on_question=narrator.announce, on_event=narrator)
        page = home / "graph.html"
        nodes, edges, edits = agent.store.select(), agent.store.edges(), agent.store.edits()
        page.write_text(render_graph_page(nodes, edges, title="FluxMem case study", edits=edits), encoding="utf-8")
    return report, page


async def _load(agent: FluxMemAgent, embedder: BaseEmbedder) -> None:
    """Load both models now, so that no round of the story waits for them."""
    await embedder.embed_text("Loading.")
    if agent.llm is not None:
        await agent.llm.verify_batch(["The model is loaded."], ["Loading."])
