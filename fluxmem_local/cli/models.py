"""`fluxmem models`: the local models and their files."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from fluxmem_local.agent.builder import NO_MODEL
from fluxmem_local.errors import InvalidInputError
from fluxmem_local.models.imported import check_imported, import_model, set_verification
from fluxmem_local.models.registry import list_models, model_path, verify_model

from .output import FAILED, note, print_json, print_table, to_data
from .session import NamedPath, Session, Verb, VerbGroup

__all__ = ["COMMANDS"]


@click.group(cls=VerbGroup)
def models() -> None:
    """List, check, import and prepare the local models. Nothing is ever fetched from a network.

    \b
    Example:
      fluxmem models list
    """


@models.command("list", cls=Verb)
@click.pass_obj
def list_(session: Session) -> None:
    """List the registered models, and how to get those that are not here.

    \b
    Example:
      fluxmem models list
    """
    statuses = list_models()
    if session.as_json:
        print_json(
            [
                {
                    "name": status.entry.name,
                    "kind": status.entry.kind,
                    "licence": status.entry.licence,
                    "revision": status.entry.revision,
                    "path": status.path,
                    "install": status.entry.install,
                }
                for status in statuses
            ]
        )
        return
    rows = [
        [status.entry.name, status.entry.kind, status.entry.licence, status.path or f"get it: {status.entry.install}"]
        for status in statuses
    ]
    print_table(["name", "kind", "licence", "where"], rows)


@models.command(cls=Verb)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.pass_obj
def verify(session: Session, names: tuple[str, ...]) -> None:
    """Compare each file's SHA-256 with the registered one; without NAME of all models that are here.

    \b
    Example:
      fluxmem models verify all-minilm-l6-v2
    """
    checked = names or tuple(status.entry.name for status in list_models() if status.path is not None)
    reports = [verify_model(name) for name in checked]
    if session.as_json:
        print_json([{**to_data(report), "ok": report.ok} for report in reports])
    else:
        rows = [
            [report.name, file.file, "ok" if file.ok else "missing" if file.actual is None else "changed"]
            for report in reports
            for file in report.files
        ]
        print_table(["model", "file", "state"], rows)
    if not all(report.ok for report in reports):
        sys.exit(FAILED)


@models.command("import", cls=Verb)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", help="What to call it; else the folder's or file's own name.")
@click.pass_obj
def import_(session: Session, path: Path, name: str | None) -> None:
    """Copy the model folder or .gguf file at PATH into the model cache and register its hashes.

    \b
    Example:
      fluxmem models import /media/usb/e5-small --name e5
    """
    if not path.expanduser().exists():
        raise InvalidInputError(f"{path} does not exist; name a folder with a model's files, or a .gguf file")
    status = import_model(path, name)
    if session.as_json:
        print_json({"name": status.entry.name, "kind": status.entry.kind, "path": status.path})
    else:
        click.echo(f"{status.entry.name} ({status.entry.kind}) at {status.path}")


@models.command(cls=Verb)
@click.argument("name")
@click.pass_obj
def path(session: Session, name: str) -> None:
    """Print where the files of the model NAME lie.

    \b
    Example:
      fluxmem models path smollm2-135m-instruct
    """
    found = model_path(name)
    if session.as_json:
        print_json({"name": name, "path": found})
    else:
        click.echo(found)


@models.command(cls=Verb)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.pass_obj
def prepare(session: Session, names: tuple[str, ...]) -> None:
    """Convert models once to the form they load fastest from; without NAME the two configured ones.

    \b
    Example:
      fluxmem models prepare
    """
    # Here, because the other verbs of this group need no model library.
    from fluxmem_local.models.loading import prepare_model

    config = session.config()
    wanted = names or tuple(name for name in (config.embedding_model, config.llm_model) if name != NO_MODEL)
    prepared = [(name, prepare_model(name, progress=note)) for name in wanted]
    if session.as_json:
        print_json([{"name": name, "path": ready.directory} for name, ready in prepared])
    else:
        print_table(["model", "ready at"], [[name, ready.directory] for name, ready in prepared])


@models.command(cls=Verb)
@click.argument("name")
@click.option("--data", type=NamedPath(path_type=Path), help="Labelled questions of your own, as JSON Lines.")
@click.option("--dry-run", is_flag=True, help="Measure and print, write nothing.")
@click.pass_obj
def calibrate(session: Session, name: str, data: Path | None, dry_run: bool) -> None:
    """Measure by which method the imported model NAME verifies best, and register it; 'none' where it has no signal.

    Each line of --data is {"question": text, "fact": the text that answers it, "distractors": [texts that do not]}.
    Without it some sixty questions in eight languages are asked. A small model takes a few minutes.

    \b
    Example:
      fluxmem models calibrate my-model
    """
    # Here, because the other verbs of this group need no model library.
    from fluxmem_local.models.calibration import calibrate, labelled_questions
    from fluxmem_local.models.llm import TransformersLLM

    questions = labelled_questions(data)
    if not dry_run:
        check_imported(name)
    config = session.config()
    llm = TransformersLLM(name, device=config.device, dtype=config.dtype, batch_size=config.llm_batch_size)
    measured = asyncio.run(calibrate(llm, questions, note))
    chosen = measured.chosen
    if not dry_run:
        scale = chosen.scale
        set_verification(
            name,
            method=measured.method,
            auc=chosen.auc,
            neutral=scale.neutral if scale else None,
            spread=scale.spread if scale else None,
        )
    if session.as_json:
        print_json({"name": name, "method": measured.method, "written": not dry_run, "reports": measured.reports})
        return
    print_table(
        ["method", "AUC", "+-", "fact first", "ms a text", ""],
        [
            [
                report.method,
                *("-" if value is None else f"{value:.3f}" for value in (report.auc, report.auc_error, report.first)),
                "-" if report.ms_a_text is None else f"{report.ms_a_text:.0f}",
                "chosen" if report.method == measured.method else "" if report.has_signal else "no signal",
            ]
            for report in measured.reports
        ],
    )
    click.echo(f"{name}: verification {measured.method}" + ("" if dry_run else ", registered"))


COMMANDS = {"models": models}
