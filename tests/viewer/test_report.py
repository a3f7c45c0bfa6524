"""The page of a consolidation: self-contained, escaped, and with the numbers that were measured."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from fluxmem_local.graph import ProceduralNode, SkillVersion
from fluxmem_local.viewer.report import render_report_page

SKILL = ProceduralNode(
    id="s1",
    skill_text="make deploy",
    version=2,
    version_history=(SkillVersion(version=1, skill_text="old", pems_score=0.2, ended_because="replaced by version 2"),),
    pems_score=0.3,
    metadata={"name": "deploy <script>alert(1)</script>"},
)
HISTORY = {"s1": ((1, 0.2), (2, 0.3)), "s2": ((1, 0.1),), "s3": ()}


def page(**changes: object) -> str:
    given = {"title": "Of </title> mine", "told": {"result": "done & <b>"}, "pems_history": HISTORY, "skills": [SKILL]}
    return render_report_page(**{**given, **changes})  # type: ignore[arg-type]


def test_it_holds_each_skills_line_by_round_and_their_mean() -> None:
    drawn = ET.fromstring(re.search(r"<svg viewBox.*?</svg>", page(), re.DOTALL)[0])  # type: ignore[index]
    lines = [line.attrib["points"].split() for line in drawn.iter("polyline")]
    # One point a round; the highest value, 0.3 of 0.315, is near the top.
    assert lines[0] == ["48.0,129.8", "672.0,58.7"]
    assert lines[1] == ["48.0,200.9"]
    # The mean: 0.15, and in the second round (0.3 + 0.1) / 2, as the other one has settled.
    assert lines[2] == ["48.0,165.3", "672.0,129.8"]


def test_what_stands_in_the_memory_cannot_change_the_page() -> None:
    text = page()
    assert "<script" not in text
    assert "deploy &lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<title>Of &lt;/title&gt; mine</title>" in text
    assert "done &amp; &lt;b&gt;" in text


def test_it_loads_nothing() -> None:
    text = page()
    assert "default-src &#x27;none&#x27;" in text
    assert not re.search(r"(?:src|href|url|@import)\s*[=(:]", text.replace("default-src", "").replace("style-src", ""))


def test_every_version_its_value_and_its_end_are_listed() -> None:
    cells = re.findall(r"<td>(.*?)</td>", page().split("<h2>Versions</h2>")[1])
    assert [cell for cell in cells if "deploy" not in cell] == [
        "1",
        "0.2000",
        "replaced by version 2",
        "2",
        "0.3000",
        "present",
    ]


def test_without_a_score_there_is_no_plot() -> None:
    assert "No skill has been scored yet." in page(pems_history={}, skills=[])
