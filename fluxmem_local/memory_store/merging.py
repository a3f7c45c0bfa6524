"""Merging: one node takes over what another one has."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from fluxmem_local.storage.rows import confirm
from fluxmem_local.storage.times import VALID_FROM, VALID_TO
from fluxmem_local.text import HEADINGS
from fluxmem_local.types import Origin

__all__ = ["merged_metadata", "take_over"]


def merged_metadata(known: Mapping[str, Any], told: Mapping[str, Any], *, replaces: bool) -> dict[str, Any]:
    """Join what is known of a fact with what is told when it is stated again; no key is ever lost.

    Args:
        known: the fact's metadata.
        told: the metadata that it comes with this time. Its headings are left out: they say where another piece of
            text stands.
        replaces: whether what is told wins over what is known; else only new keys are taken.
    """
    told = {key: value for key, value in told.items() if key != HEADINGS}
    if replaces:
        return {**known, **told}
    if VALID_FROM in known or VALID_TO in known:
        # Half a period of one source and half of another one would be a period that neither names.
        told = {key: value for key, value in told.items() if key not in (VALID_FROM, VALID_TO)}
    return {**known, **{key: value for key, value in told.items() if key not in known}}


def take_over(connection: sqlite3.Connection, keep: str, drop: str) -> None:
    """Move edges, outcomes, mentions, count, versions and edits from one node to another."""
    _edges(connection, keep, drop)
    run = connection.execute
    for column, rest in (("node_id", "episode_id"), ("episode_id", "node_id")):
        run(
            f"INSERT INTO outcomes ({column}, {rest}, helped, hurt) "
            f"SELECT ?, {rest}, helped, hurt FROM outcomes WHERE {column} = ? ON CONFLICT (node_id, episode_id) "
            "DO UPDATE SET helped = helped + excluded.helped, hurt = hurt + excluded.hurt",
            (keep, drop),
        )
    run(
        "INSERT INTO mentions SELECT ?, source, chunk_index, times, at FROM mentions WHERE node_id = ? "
        "ON CONFLICT (node_id, source, chunk_index) DO UPDATE SET times = times + excluded.times",
        (keep, drop),
    )
    run(
        # A reshaped version was stated by nobody.
        "UPDATE nodes SET count = count + (SELECT coalesce(sum(times), 0) FROM mentions WHERE node_id = ?) "
        "WHERE id = ? AND layer = 'semantic'",
        (drop, keep),
    )
    said = run("SELECT added_by, confirmed_at, created_at FROM nodes WHERE id = ?", (drop,)).fetchone()
    if said["added_by"] != Origin.AGENT or said["confirmed_at"] is not None:
        confirm(connection, [keep], said["confirmed_at"] or said["created_at"])
    run("UPDATE nodes SET variant_of = ? WHERE variant_of = ? AND id != ?", (keep, drop, keep))
    run("UPDATE edit_targets SET node_id = ? WHERE node_id = ?", (keep, drop))
    run("UPDATE edits SET episode_id = ? WHERE episode_id = ?", (keep, drop))


def _edges(connection: sqlite3.Connection, keep: str, drop: str) -> None:
    for mine, other in (("source_id", "target_id"), ("target_id", "source_id")):
        # First the pairs that both nodes have, then the rest simply moves.
        twins = connection.execute(
            f"SELECT kept.id AS kept_id, gone.* FROM edges AS gone JOIN edges AS kept ON kept.{mine} = ? "
            f"AND kept.kind = gone.kind AND kept.{other} = gone.{other} WHERE gone.{mine} = ? AND gone.kind != 'step'",
            (keep, drop),
        ).fetchall()
        for twin in twins:
            connection.execute(
                "UPDATE edges SET weight = max(weight, ?), success_count = success_count + ?, "
                "failure_count = failure_count + ? WHERE id = ?",
                (twin["weight"], twin["success_count"], twin["failure_count"], twin["kept_id"]),
            )
            connection.execute("DELETE FROM edges WHERE id = ?", (twin["id"],))
        connection.execute(f"DELETE FROM edges WHERE {mine} = ? AND {other} = ?", (drop, keep))
        connection.execute(f"UPDATE edges SET {mine} = ? WHERE {mine} = ?", (keep, drop))
