"""No pattern takes quadratic time on a long run of one sign: memories are made of whatever was stored."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import regex

import fluxmem_local
from fluxmem_local.answers import usable_text
from fluxmem_local.models.fitting import fit_prompt
from fluxmem_local.stages.feedback import (
    lack_sign,
    missing_command,
    outside_sign,
    refusal_sign,
    specifics,
    wording_sign,
)
from fluxmem_local.stages.rewriting import generalise, spell_out
from fluxmem_local.text import chunk_document

_PACKAGES = ("answers", "models.fitting", "stages", "storage", "text", "viewer")
# Read only what feedback's own functions bound, or a text without trailing space; those are tested below.
_BOUNDED = {
    "stages.feedback": {"_MISSING_COMMAND", "_REFUSAL", "_SPECIFIC"},
    "answers": {"_BARE_WHOLE"},
    "stages.antiunification": {"_WORD"},
}
_SIGNS = (*" \n\"'aA1_.,-(</\\*[{#`|!?~:=年。」é\u0301", " \n", "\n ", "a ", "1 ", "a.", "; ", "[](", "<a>", "<think>")
_LENGTH = 20_000
# A hundred times what a linear pattern takes here; a quadratic one that matters takes as much again.
_BOUND_S = 1.0


def _patterns() -> Iterator[Any]:
    for found in pkgutil.walk_packages(fluxmem_local.__path__, "fluxmem_local."):
        name = found.name.removeprefix("fluxmem_local.")
        if not any(name == package or name.startswith(f"{package}.") for package in _PACKAGES):
            continue
        for variable, value in vars(importlib.import_module(found.name)).items():
            if isinstance(value, (re.Pattern, regex.Pattern)) and variable not in _BOUNDED.get(name, ()):
                yield pytest.param(value, id=f"{name}.{variable}")


def _seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


@pytest.mark.parametrize("pattern", list(_patterns()))
def test_a_pattern_reads_a_long_run_once(pattern: re.Pattern[str]) -> None:
    for sign in _SIGNS:
        text = f"x{sign * (_LENGTH // len(sign))}\x00"
        assert _seconds(lambda text=text: sum(1 for _ in pattern.finditer(text))) < _BOUND_S, sign


@pytest.mark.parametrize(
    "read",
    [
        lambda text: generalise(text, "go"),
        lambda text: spell_out(text, "go", text),
        lambda text: [sign(text) for sign in (outside_sign, missing_command, refusal_sign, lack_sign, specifics)],
        lambda text: [wording_sign(text, granularity) for granularity in ("fine", "coarse")],
        lambda text: usable_text(text, 10_000_000),
        lambda text: list(chunk_document(f"# a{text}", 512, markdown=True)),
    ],
    ids=["generalise", "spell_out", "feedback", "wording", "usable_text", "chunk_document"],
)
def test_a_text_of_one_sign_holds_nothing_up(read: Callable[[str], object]) -> None:
    for sign in _SIGNS:
        assert _seconds(lambda sign=sign: read(sign * (50_000 // len(sign)) + "x")) < 5.0, sign


def test_a_memory_of_many_blank_lines_is_shortened_by_its_lines() -> None:
    memory = f"one\n<note>\n{chr(10) * 100_000}two <b>\nthree"
    shorter = fit_prompt(f"<context>{memory}</context>", 100_040, len)
    assert shorter == f"<context>one\n<note>\n{chr(10) * 100_000}two <b>\n</context>"


def test_a_thought_that_never_ends_takes_the_rest() -> None:
    assert usable_text(f"Noon<think>no</think>.{'<think>' * 20_000}At one", 100) == "Noon."
    assert usable_text("<think>It asks</think> Noon. <thinking>or", 100) == "Noon."
