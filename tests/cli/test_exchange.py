from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Fluxmem


def test_export_and_import_make_a_copy(fluxmem: Fluxmem, tmp_path: Path) -> None:
    fluxmem("add", "-", stdin="Žluťoučký kůň. 東京。")
    file = tmp_path / "memory.jsonl"
    report = fluxmem.data("export", "-o", str(file))
    lines = file.read_text(encoding="utf-8").splitlines()
    assert report == {"file": str(file), "num_lines": len(lines)}
    assert fluxmem("export").stdout == file.read_text(encoding="utf-8")
    copy = ("--memory", str(tmp_path / "copy"))
    assert fluxmem.data("import", str(file), *copy)["num_nodes"] == 1
    assert fluxmem("export", *copy).stdout == file.read_text(encoding="utf-8")
    assert fluxmem.data("import", "-", *copy, stdin=file.read_bytes())["num_nodes"] == 0
    hits = fluxmem.data("search", "東京", *copy)
    assert [hit["content"] for hit in hits] == ["Žluťoučký kůň. 東京。"]


@pytest.mark.parametrize("content", [b"", b"not json\n", b'{"type": "header"}\n', b"\xff\xfe"])
def test_import_refuses_other_files(fluxmem: Fluxmem, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.jsonl"
    file.write_bytes(content)
    fluxmem("import", str(file), code=2)
    assert fluxmem.data("stats")["num_semantic_nodes"] == 0
    assert "does not exist" in fluxmem("import", str(tmp_path / "nowhere"), code=2).stderr


def test_graph_is_one_page(fluxmem: Fluxmem, tmp_path: Path) -> None:
    fluxmem("add", "-", stdin="A fact <b>with</b> markup.")
    page = tmp_path / "graph.html"
    assert fluxmem.data("graph", "-o", str(page))["num_nodes"] == 1
    text = page.read_text(encoding="utf-8")
    assert "<b>with</b>" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "no folder" in fluxmem("graph", "-o", str(tmp_path / "no" / "x.html"), code=2).stderr
