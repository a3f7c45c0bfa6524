"""A consolidation as one self-contained HTML page: PEMS by round as a plot, then what was done and why."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from fluxmem_local.graph import ProceduralNode

from .page import hash_source

__all__ = ["render_report_page"]

_WIDTH, _HEIGHT, _MARGIN = 720, 320, 48
# Lines of their own colour; those of further skills are grey.
_COLOURS = ("#1b6ca8", "#b5483a", "#3c8d53", "#8a5ba6", "#b07d12", "#2a8c8c", "#a63d73", "#5b6670")
_MOST_CHARS = 160
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top; }
code { font-size: .85em; }
svg { max-width: 100%; height: auto; }
"""


def render_report_page(
    *,
    title: str,
    told: Mapping[str, str],
    pems_history: Mapping[str, Sequence[tuple[int, float]]],
    skills: Sequence[ProceduralNode],
) -> str:
    """Write what a consolidation did as an HTML page that can be opened from disk and loads nothing.

    Args:
        title: shown on top and in the browser's tab.
        told: what was done, in words.
        pems_history: for each skill the pairs of version and p_v; the n-th is that of its n-th round.
        skills: with their names and versions.
    """
    names = {skill.id: str(skill.metadata.get("name") or skill.skill_text.splitlines()[0]) for skill in skills}
    policy = f"default-src 'none'; style-src {hash_source(_STYLE)}; base-uri 'none'; form-action 'none'"
    versions = []
    for skill in skills:
        present = (skill.version, skill.pems_score, str(skill.metadata.get("ended_because") or "present"))
        ended = [(past.version, past.pems_score, past.ended_because) for past in skill.version_history]
        versions += [(names[skill.id], *each) for each in [*ended, present]]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        f"<title>{_escaped(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_escaped(title)}</h1>",
        _table(("what", "value"), list(told.items())),
        "<h2>PEMS by round</h2>",
        _plot(pems_history, names) if any(pems_history.values()) else "<p>No skill has been scored yet.</p>",
        "<h2>Versions</h2>",
        _table(
            ("skill", "version", "PEMS", "ended because"),
            [(name, number, "" if score is None else f"{score:.4f}", why) for name, number, score, why in versions],
        ),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _plot(pems_history: Mapping[str, Sequence[tuple[int, float]]], names: Mapping[str, str]) -> str:
    """Draw a line a skill, and their mean, in which a skill that has settled earlier keeps its last value."""
    lines = {id: [score for _, score in scores] for id, scores in pems_history.items() if scores}
    rounds = max(map(len, lines.values()))
    values = [score for scores in lines.values() for score in scores]
    low, high = min(0.0, *values), max(*values, 0.01) * 1.05

    def at(place: int, score: float) -> str:
        x = _MARGIN + (_WIDTH - 2 * _MARGIN) * (place / max(1, rounds - 1))
        y = _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * (score - low) / (high - low)
        return f"{x:.1f},{y:.1f}"

    drawn = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        'aria-label="PEMS of each skill by round">',
        f'<path d="M{_MARGIN},{_MARGIN} V{_HEIGHT - _MARGIN} H{_WIDTH - _MARGIN}" fill="none" stroke="#888"/>',
    ]
    for tick in range(5):
        score = low + (high - low) * tick / 4
        x, y = at(0, score).split(",")
        drawn.append(f'<text x="{float(x) - 6:.1f}" y="{y}" font-size="11" text-anchor="end">{score:.2f}</text>')
    for place in range(rounds):
        x = at(place, low).split(",")[0]
        y_text = _HEIGHT - _MARGIN + 16
        drawn.append(f'<text x="{x}" y="{y_text}" font-size="11" text-anchor="middle">{place + 1}</text>')
    for number, (id, scores) in enumerate(sorted(lines.items())):
        colour = _COLOURS[number] if number < len(_COLOURS) else "#bbb"
        points = [at(place, score) for place, score in enumerate(scores)]
        dots = "".join(
            f'<circle cx="{point.split(",")[0]}" cy="{point.split(",")[1]}" r="3" fill="{colour}"/>' for point in points
        )
        line = f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        drawn.append(f"<g><title>{_escaped(names.get(id, id))}</title>{line}{dots}</g>")
    means = [
        sum(scores[min(place, len(scores) - 1)] for scores in lines.values()) / len(lines) for place in range(rounds)
    ]
    mean = " ".join(at(place, score) for place, score in enumerate(means))
    drawn.append(
        f'<polyline points="{mean}" fill="none" stroke="#000" stroke-width="2.5" stroke-dasharray="6 4">'
        "<title>mean</title></polyline></svg>"
    )
    legend = [
        f'<svg width="12" height="12"><rect width="12" height="12" fill="{colour}"/></svg> '
        f"{_escaped(names.get(id, id))}"
        for (id, _), colour in zip(sorted(lines.items()), _COLOURS, strict=False)
    ]
    return "\n".join([*drawn, f"<p>{' &nbsp; '.join([*legend, 'dashed: mean of all'])}</p>"])


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{_escaped(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{_escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escaped(value: object) -> str:
    text = str(value)
    text = text if len(text) <= _MOST_CHARS else text[: _MOST_CHARS - 1] + "…"
    # Half a surrogate pair could not be written to a file.
    return html.escape(text.encode("utf-8", "replace").decode())
