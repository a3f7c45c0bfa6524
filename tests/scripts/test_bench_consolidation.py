"""The measurement of consolidation runs, and what it says of its small memory is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_consolidation.py"


def test_it_measures_a_small_memory() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--skills", "100", "--episodes", "80"], check=True, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"PEMS of 100 skills without embedding: \d+\.\d\d ms", lines[0])
    assert lines[1].startswith("80 episodes, ")
    assert lines[2].startswith("again, nothing new, 0 skills worked on: ")
    assert lines[3].startswith("again, one new episode, 1 skill worked on: ")
