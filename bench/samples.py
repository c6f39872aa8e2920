"""What was measured, as it goes into the results file and comes out of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

LABELS: Mapping[str, str] = MappingProxyType(
    {
        "seconds": "seconds",
        "rows_per_s": "rows/s",
        "us_per_row": "µs/row",
        "wal_bytes_per_row": "WAL bytes/row",
        "cpu_s": "own CPU s",
        "peak_rss_mb": "own memory MB",
        "first_tenth_ms": "ms/batch, first tenth",
        "last_tenth_ms": "ms/batch, last tenth",
        "late_over_early": "last tenth/first tenth",
        "p50_ms": "median ms",
        "p99_ms": "p99 ms",
        "max_ms": "slowest ms",
    }
)
"""Every value there is, as a page names it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One contender in one round of one measure; `rows` are those that it deleted, children included.

    The keys of `values` are those of LABELS. `series` has a value for each twentieth of a run.
    """

    measure: str
    contender: str
    rows: int
    round: int
    values: Mapping[str, float]
    series: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some rounds with the lowest and the highest of them."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of at least one value."""
        found = list(values)
        return cls(median(found), min(found), max(found), len(found))

    def __str__(self) -> str:
        shown = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in (self.median, self.low, self.high)]  # noqa: PLR2004
        return shown[0] if self.rounds == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


@dataclass(frozen=True, slots=True)
class Results:
    """All samples, with `about`: on what they were taken, and how."""

    about: Mapping[str, Any]
    samples: list[Sample]

    def of(self, measure: str, value: str, contender: str) -> dict[int, float]:
        """A value of a contender in a measure, by round."""
        return {
            sample.round: sample.values[value]
            for sample in self.samples
            if (sample.measure, sample.contender) == (measure, contender) and value in sample.values
        }

    def ratio(self, measure: str, value: str, contender: str, other: str) -> Spread | None:
        """A contender's value divided by another's, round by round; None where they never met."""
        theirs = self.of(measure, value, other)
        ours = self.of(measure, value, contender)
        ratios = [mine / theirs[number] for number, mine in ours.items() if number in theirs]
        return Spread.of(ratios) if ratios else None

    def contenders(self, measure: str) -> list[str]:
        """Whoever took part, in the order of the alphabet."""
        return sorted({sample.contender for sample in self.samples if sample.measure == measure})

    def write(self, path: Path) -> None:
        """As JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Results:
        """What `write` has written."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(found["about"], [Sample(**sample) for sample in found["samples"]])
