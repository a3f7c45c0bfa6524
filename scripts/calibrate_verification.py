"""By which method a language model should verify: measured on labelled questions, and written to a registry.

    .venv/bin/python scripts/calibrate_verification.py MODEL [--data FILE] [--write] [--json FILE]

MODEL is a registry name, a folder or a .gguf file. --write puts the result into models/registry.toml for a model of
this repository; for an imported one `fluxmem models calibrate` does it. The questions are models/verification.jsonl,
whose lines hold a question, the text that answers it, and three that do not although most of them share its words.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fluxmem_local.models import TransformersLLM
from fluxmem_local.models.calibration import Calibration, calibrate, labelled_questions

REGISTRY = Path(__file__).resolve().parents[1] / "models" / "registry.toml"


def show(model: str, measured: Calibration) -> None:
    table = Table(title=f"Verification by {model}")
    for name in ("method", "AUC", "standard error", "fact first", "ms a text", "neutral", "spread", "signal"):
        table.add_column(name, justify="right")
    for report in measured.reports:
        scale = (report.scale.neutral, report.scale.spread) if report.scale else (None, None)
        values = (report.auc, report.auc_error, report.first, report.ms_a_text, *scale)
        shown = ["-" if value is None else f"{value:.3f}" for value in values]
        table.add_row(report.method, *shown, "yes" if report.has_signal else "no")
    Console(width=120).print(table)
    print(f"chosen: {measured.method}")


def write(model: str, measured: Calibration) -> None:
    """Set the model's verification keys in registry.toml, and leave every other line as it is."""
    text = REGISTRY.read_text("utf-8")
    found = re.search(rf"^\[models\.{re.escape(model)}\]\n(?:(?!\[).*\n)*", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{REGISTRY} has no [models.{model}]; for an imported model: fluxmem models calibrate {model}")
    chosen = measured.chosen
    told = {"verification": measured.method, "verification_auc": chosen.auc and round(chosen.auc, 2)}
    if chosen.scale and measured.method != "none":
        told |= {"verification_neutral": chosen.scale.neutral, "verification_spread": chosen.scale.spread}
    lines = found[0].rstrip("\n").split("\n")
    place = next((at for at, line in enumerate(lines) if line.startswith("verification")), len(lines))
    lines = [line for line in lines if not re.match(r"verification(_\w+)? =", line)]
    lines[place:place] = [f"{key} = {json.dumps(value)}" for key, value in told.items() if value is not None]
    REGISTRY.write_text(f"{text[: found.start()]}{chr(10).join(lines)}\n\n{text[found.end() :]}", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, help="labelled questions of your own")
    parser.add_argument("--write", action="store_true", help="write the result to models/registry.toml")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    questions = labelled_questions(arguments.data)
    measured = asyncio.run(
        calibrate(TransformersLLM(arguments.model), questions, lambda told: print(told, file=sys.stderr))
    )
    show(arguments.model, measured)
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(measured), indent=2) + "\n", "utf-8")
    if arguments.write:
        write(arguments.model, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
