"""Makes the CSV files of the case study: seeded, with the right answer known to the maker and to nobody else."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["MedalTable", "write_table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MedalTable:
    """One CSV of medals by athlete.

    ``countries`` maps a country to (number of athletes, mean medals of an athlete). The country with the largest
    total should not be the one with the best mean, or a wrong reading of the question would go unseen.
    """

    file_name: str
    header: Sequence[str]
    countries: Mapping[str, tuple[int, float]]
    sports: Sequence[str]
    seed: int

    @property
    def num_rows(self) -> int:
        """Count the athletes."""
        return sum(count for count, _ in self.countries.values())


def write_table(table: MedalTable, directory: Path) -> tuple[Path, dict[str, float]]:
    """Write the CSV: one row an athlete with name, country, sport, age and medals.

    Returns:
        The file's path, and each country's true average of medals per athlete.
    """
    generator = np.random.default_rng(table.seed)
    rows: list[tuple[str, str, str, int, int]] = []
    averages: dict[str, float] = {}
    for country, (count, mean) in table.countries.items():
        medals = generator.poisson(mean, count)
        ages = generator.integers(17, 39, count)
        sports = generator.integers(0, len(table.sports), count)
        averages[country] = float(medals.mean())
        rows.extend(
            (f"A{table.seed}{len(rows) + i:06d}", country, table.sports[sports[i]], int(ages[i]), int(medals[i]))
            for i in range(count)
        )
    order = generator.permutation(len(rows))
    path = directory / table.file_name
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.header)
        writer.writerows(rows[i] for i in order)
    return path, averages
