"""What was measured, as it goes into the results file and comes out of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """One contender in one round of one measure; `rows` are those that it deleted, children included.

    `values` are named with their unit: seconds, bytes, milliseconds. `series` has a value for each twentieth of a run.
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


@dataclass(frozen=True, slots=True)
class Results:
    """All samples, with `about`: on what they were taken, and how."""

    about: Mapping[str, Any]
    samples: list[Sample]

    def of(self, measure: str, value: str, contender: str) -> dict[tuple[int, int], float]:
        """A value of a contender in a measure, by its round and the rows it had to delete."""
        return {
            (sample.round, sample.rows): sample.values[value]
            for sample in self.samples
            if (sample.measure, sample.contender) == (measure, contender)
        }

    def write(self, path: Path) -> None:
        """As JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Results:
        """What `write` has written."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(found["about"], [Sample(**sample) for sample in found["samples"]])
