"""`fluxmem consolidate --budget --report` and `fluxmem skills`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Fluxmem


@pytest.fixture
def lived(fluxmem: Fluxmem) -> Fluxmem:
    fluxmem.llm = None
    for app in ("shop", "blog", "wiki", "mail"):
        episode = {
            "task": f"Deploy {app} to staging",
            "success": True,
            "trajectory": [["a repository", f"cd {app}"], ["inside", "make deploy"]],
        }
        fluxmem("record", "-", stdin=json.dumps(episode))
    return fluxmem


def test_a_spent_budget_ends_with_one_and_the_next_run_goes_on(lived: Fluxmem) -> None:
    told = lived("consolidate", "--budget", "0s", code=1).stdout
    assert told.endswith("result\tthe budget was spent, 1 kind of task left; run it again to go on\n")
    assert lived.data("consolidate", "--budget", "10m", "--budget", "3 calls")["status"] == "ok"
    assert len(lived.data("skills", "list")) == 1


@pytest.mark.parametrize(
    "budgets", [["fast"], ["-1s"], ["1.5calls"], ["1s", "2m"], ["nan"], [""], ["9" * 5000 + "calls"], ["9" * 400 + "h"]]
)
def test_what_is_no_budget_is_a_usage_error(lived: Fluxmem, budgets: list[str]) -> None:
    options = [part for budget in budgets for part in ("--budget", budget)]
    assert "give a time as 90s" in lived("consolidate", *options, code=2).stderr
    assert lived.data("skills", "list") == []


def test_the_report_is_a_page(lived: Fluxmem, tmp_path: Path) -> None:
    lived("consolidate", "--report", str(tmp_path / "pems.html"))
    text = (tmp_path / "pems.html").read_text()
    assert "<h2>PEMS by round</h2>" in text
    assert "deploy-staging" in text
    assert "<polyline" in text
    assert "no folder" in lived("consolidate", "--report", str(tmp_path / "absent" / "x.html"), code=2).stderr


def test_skills_are_approved_exported_compared_and_imported(lived: Fluxmem, tmp_path: Path) -> None:
    lived("consolidate")
    (skill,) = lived.data("skills", "list")
    out = str(tmp_path / "out")
    refused = lived("skills", "export", out, code=1)
    assert "is not approved; run: fluxmem skills approve" in refused.stderr
    assert lived("skills", "approve", skill["id"]).stdout == f"{skill['id']}: version 1 is approved\n"
    assert "\t1*\t4\t" in lived("skills", "list").stdout
    assert "present, approved" in lived("skills", "show", skill["id"]).stdout
    assert lived("skills", "export", out).stdout == f"{skill['id']}\t{out}/deploy-staging\n"
    assert lived("skills", "diff", skill["id"], out + "/deploy-staging").stdout == ""
    assert lived("skills", "import", out).stdout == "added: 0, updated: 0, unchanged: 1\n"
    file = tmp_path / "out" / "deploy-staging" / "SKILL.md"
    file.write_text(file.read_text().replace("2. make deploy\n", "2. rm -rf /\n", 1))
    assert "+2. make deploy" in lived("skills", "diff", skill["id"], out + "/deploy-staging").stdout
    assert f"unsafe in {skill['id']}, never seen to succeed: 2. rm -rf /" in lived("skills", "import", out).stderr
    assert "-2. make deploy\n+2. rm -rf /\n" in lived("skills", "diff", skill["id"]).stdout
    assert lived("skills", "approve", "--revoke", skill["id"]).stdout.endswith("is no longer approved\n")
    assert lived.data("skills", "export", out, "--force")["unsafe"] == {skill["id"]: ["2. rm -rf /"]}
    assert "is not approved" in lived("skills", "export", out, skill["id"], code=1).stderr


def test_what_is_no_skill_or_folder_is_named(lived: Fluxmem, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no SKILL.md" in lived("skills", "import", str(tmp_path / "empty"), code=2).stderr
    assert "no folder" in lived("skills", "import", str(tmp_path / "absent"), code=2).stderr
    assert "no node 'absent'" in lived("skills", "approve", "absent", code=2).stderr
