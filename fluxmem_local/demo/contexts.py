"""Reads and edits a serialised context, as any program outside of the memory would."""

from __future__ import annotations

import xml.etree.ElementTree as ET

__all__ = ["context_items", "with_only_skill"]


def context_items(context: str) -> list[tuple[str, str]]:
    """List what a context holds as pairs of kind (fact, episode or skill) and text."""
    return [
        (element.tag, " ".join(part.strip() for part in element.itertext() if part.strip()))
        for element in ET.fromstring(context).iter()
        if element.tag in ("fact", "episode", "skill")
    ]


def with_only_skill(context: str, skill_text: str) -> str:
    """Put one skill in the place of all episodes and skills of a context."""
    tree = ET.fromstring(context)
    for section in ("episodic_memory", "procedural_memory"):
        for element in tree.findall(section):
            tree.remove(element)
    memory = ET.SubElement(tree, "procedural_memory")
    ET.SubElement(memory, "skill").text = skill_text
    return ET.tostring(tree, encoding="unicode")
