"""`fluxmem stats`, `verify`, `reindex` and `doctor`."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fluxmem_local.agent.builder import NO_MODEL
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.errors import FluxMemError, MemoryNotFoundError
from fluxmem_local.retention import RetentionRule

from .output import FAILED, count_of, note, print_json, print_table
from .progress import progress
from .session import NamedPath, Session, Verb

__all__ = ["COMMANDS"]

_PACKAGES = (
    "fluxmem-local",
    "torch",
    "transformers",
    "sentence-transformers",
    "hnswlib",
    "rank-bm25",
    "scikit-learn",
    "numpy",
    "outlines",
)


# What --json calls each of them, and what it is for people.
_NAMES = {
    "num_semantic_nodes": "facts",
    "num_episodic_nodes": "episodes",
    "num_procedural_nodes": "skills",
    "num_ground_edges": "links from facts to episodes",
    "num_distill_edges": "links from episodes to skills",
    "num_step_edges": "links of running tasks",
    "num_trial_nodes": "memories on trial in a running task",
    "num_demoted_nodes": "memories put aside, not searched",
    "num_edits": "repairs",
    "num_unembedded": "memories without a vector",
    "size_bytes": "size on disk",
    "generation": "changes so far",
    "dimension": "numbers in a vector",
    "fingerprint": "embedder",
}


@click.command(cls=Verb)
@click.pass_obj
def stats(session: Session) -> None:
    """Count the memory's nodes, links and repairs.

    \b
    Example:
      fluxmem stats --json
    """
    with session.open() as agent:
        counted = agent.stats
    if session.as_json:
        print_json(counted)
    else:
        rules = counted.pop("retention", [])
        rows = [[_NAMES.get(name, name), _written(name, counted[name])] for name in counted]
        rows += [[f"to be forgotten by the next consolidate: {_limit(rule)}", rule["num_due"]] for rule in rules]
        print_table(["what", "number"], rows)


def _limit(given: dict[str, Any]) -> str:
    rule = RetentionRule(**{name: value for name, value in given.items() if name != "num_due"})
    limits = [
        *([f"older than {rule.max_age}"] if rule.max_age is not None else []),
        *([f"more than {rule.max_nodes}"] if rule.max_nodes is not None else []),
    ]
    return f"{rule.whose}, {' or '.join(limits)}"


@click.command(cls=Verb)
@click.option("--fix", is_flag=True, help="Put right what can be.")
@click.option(
    "--salvage",
    type=NamedPath(path_type=Path, file_okay=False),
    help="Copy what can be read of a damaged memory into a new one in this folder; the damaged one stays as it is.",
)
@click.pass_obj
def verify(session: Session, fix: bool, salvage: Path | None) -> None:
    """Check the graph's rules and that every index agrees with it; ends with 1 when something is wrong.

    \b
    Example:
      fluxmem verify --fix
      fluxmem verify --salvage ./rescued
    """
    if salvage is not None:
        _salvage(session, salvage)
        return
    with session.open() as agent:
        report = agent.verify(fix=fix)
    if session.as_json:
        print_json(report)
    else:
        print_table(["checked", "number"], report.counts.items())
        for problem in report.problems:
            note(f"problem: {problem}")
        for told in report.notes:
            note(f"note: {told}")
        for repair in report.fixed:
            note(f"fixed: {repair}")
        click.echo("nothing is wrong" if report.ok else count_of(len(report.problems), "problem"))
    if not report.ok:
        sys.exit(FAILED)


def _salvage(session: Session, target: Path) -> None:
    from fluxmem_local.agent.agent import FluxMemAgent

    rescued = FluxMemAgent.salvage(session.directory, target)
    if session.as_json:
        print_json(rescued)
        return
    click.echo(f"{target}: {count_of(rescued.num_nodes, 'memory', 'memories')}, {count_of(rescued.num_edges, 'link')}")
    if rescued.num_damaged:
        note(f"{count_of(rescued.num_damaged, 'memory', 'memories')} left out, being damaged")
    if rescued.num_missing:
        note(f"{count_of(rescued.num_missing, 'memory', 'memories')} not found, though something names them")
    if rescued.num_unembedded:
        note(f"{count_of(rescued.num_unembedded, 'memory', 'memories')} without a vector; run: fluxmem reindex")


@click.command(cls=Verb)
@click.option("--embedder", help="The embedding model to change to; else the configured one.")
@click.pass_obj
def reindex(session: Session, embedder: str | None) -> None:
    """Embed all that has no vector of the embedder, then rebuild the indices.

    This is also the way to another embedding model. The memory can be used meanwhile, with the old one; the new vectors
    take over all at once at the end. A reindex that was stopped goes on where it was.

    \b
    Example:
      fluxmem reindex --embedder /models/e5
    """
    with (
        session.open(embedder=True, accept_other_embedder=True, embedding_model=embedder) as agent,
        progress("embedding") as advance,
    ):
        report = asyncio.run(agent.reindex(on_progress=advance))
    if session.as_json:
        print_json(report)
    else:
        embedded = count_of(report.num_embedded, "memory", "memories")
        click.echo(f"embedded {embedded}; the vectors are by {report.fingerprint}")
    if embedder is not None and session.config().embedding_model != embedder:
        note(f"this memory now needs embedding_model = {json.dumps(embedder)}, in the environment or its fluxmem.toml")


def _written(name: str, value: Any) -> str:
    if name == "size_bytes":
        return f"{value / 1024:,.0f} KiB" if value < 1024**2 else f"{value / 1024**2:,.1f} MiB"
    return "none yet" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class _Check:
    what: str
    ok: bool
    found: str


@click.command(cls=Verb)
@click.pass_obj
def doctor(session: Session) -> None:
    """Check Python, packages, models and the memory; ends with 1 when something is wrong.

    \b
    Example:
      fluxmem doctor
    """
    config, checks = _settings(session)
    checks = [
        *_installation(),
        *checks,
        _model("embedding model", config.embedding_model),
        _model("language model", config.llm_model),
        *_verification(config.llm_model),
        *_memory(session, embeds=config.embedding_model != NO_MODEL),
    ]
    checks.append(_Check("telemetry", True, "none; no connection ever leaves this machine"))
    wrong = [check for check in checks if not check.ok]
    if session.as_json:
        print_json({"ok": not wrong, "checks": checks})
    else:
        print_table(
            ["", "what", "found"], [["ok" if check.ok else "WRONG", check.what, check.found] for check in checks]
        )
    if wrong:
        sys.exit(FAILED)


def _installation() -> Iterator[_Check]:
    yield _Check("python", sys.version_info >= (3, 10), f"{platform.python_version()} on {platform.platform()}")
    for package in _PACKAGES:
        try:
            yield _Check(package, True, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield _Check(package, False, f"not installed; run: pip install {package}")


def _settings(session: Session) -> tuple[FluxMemConfig, list[_Check]]:
    try:
        return session.config(), []
    except FluxMemError as error:
        return FluxMemConfig(), [_Check("settings", False, str(error))]


def _model(what: str, name: str) -> _Check:
    if name == NO_MODEL:
        return _Check(what, True, "switched off")
    # Here, because only these checks need the registry.
    from fluxmem_local.models.registry import verify_model

    try:
        report = verify_model(name)
    except FluxMemError as error:
        return _Check(what, False, str(error))
    if not report.files:
        return _Check(what, True, f"{name} at {report.path}; not registered, so there are no hashes to compare")
    damaged = [file.file for file in report.files if not file.ok]
    if damaged:
        return _Check(what, False, f"{name} at {report.path}: {', '.join(damaged)} missing or changed; get it again")
    files = count_of(len(report.files), "file")
    return _Check(what, True, f"{name} at {report.path}, {files} with the registered SHA-256")


def _verification(name: str) -> Iterator[_Check]:
    """Say by which method the language model verifies; without a signal it is off, which is no fault."""
    from fluxmem_local.models.registry import locate_model

    try:
        entry = locate_model(name).entry if name != NO_MODEL else None
    except FluxMemError:
        # The check of the model itself says what is wrong.
        return
    if entry is None or entry.kind != "llm":
        return
    auc = entry.verification_auc
    measured = "not measured yet" if auc is None else f"AUC {auc:.2f}, 0.5 is chance"
    if entry.verification == "none":
        found = f"off: {name} was measured to have no signal ({measured}), so it is not asked"
    elif auc is None:
        found = f"by {entry.verification}, {measured}; run: fluxmem models calibrate {name} (a path: import it first)"
    else:
        found = f"by {entry.verification} ({measured})"
    yield _Check("verification", True, found)


def _memory(session: Session, *, embeds: bool) -> Iterator[_Check]:
    try:
        with session.open() as agent:
            counted = agent.stats
            report = agent.verify()
    except MemoryNotFoundError:
        yield _Check("memory", True, f"none yet at {session.directory}")
        return
    except FluxMemError as error:
        yield _Check("memory", False, str(error))
        return
    problems = f"; {report.problems[0]}" if report.problems else ""
    yield _Check("memory", report.ok, f"{session.directory}, {count_of(len(report.problems), 'problem')}{problems}")
    unembedded = counted["num_unembedded"]
    remedy = "; run: fluxmem reindex" if unembedded and embeds else ""
    without = "1 memory has" if unembedded == 1 else f"{unembedded} memories have"
    yield _Check("embeddings", not (unembedded and embeds), f"{without} no vector{remedy}")


COMMANDS = {"stats": stats, "verify": verify, "reindex": reindex, "doctor": doctor}
