"""What the measurements should show, and whether they do."""

from __future__ import annotations

from dataclasses import dataclass

from bench.contenders import LITERAL, OURS, OURS_2, UNBATCHED
from bench.measures import FEW, FEWEST, HELP, MOST, NOBODY, NOTHING
from bench.samples import LABELS, Results, Spread

ONE, TWO, LOOP, WHOLE = OURS.name, OURS_2.name, LITERAL.name, UNBATCHED.name


@dataclass(frozen=True, slots=True)
class Goal:
    """A value of a contender, or its ratio to that of another one in the same round, that should not pass a bound.

    Without a bound it is only shown.
    """

    measure: str
    value: str
    contender: str
    against: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def about(self) -> str:
        """The figure in words."""
        than = f" against {self.against}" if self.against else ""
        return f"{LABELS[self.value]}: {self.contender}{than}"

    @property
    def bound(self) -> str:
        """The bound as it is printed."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    def spread(self, results: Results) -> Spread | None:
        """The figure over all rounds; None where it was not measured."""
        found = results.of(self.measure, self.value, self.contender)
        if self.against:
            return results.ratio(self.measure, self.value, self.contender, self.against)
        return Spread.of(found.values()) if found else None

    def met(self, median: float) -> bool:
        """Whether it lies where it should."""
        return (self.at_least is None or median >= self.at_least) and (self.at_most is None or median <= self.at_most)


GOALS = (
    Goal("activity", "rows_per_s", ONE, WHOLE, at_least=1.05),
    Goal("activity", "rows_per_s", TWO, WHOLE, at_least=1.9),
    Goal("activity", "wal_bytes_per_row", ONE, WHOLE, at_most=0.85),
    Goal("favorites", "rows_per_s", ONE, LOOP, at_least=3.0),
    Goal("favorites", "rows_per_s", ONE, WHOLE, at_least=0.25),
    Goal("favorites", "rows_per_s", TWO, ONE, at_least=1.0),
    Goal("snapshot", "late_over_early", ONE, at_most=1.2),
    Goal("snapshot", "late_over_early", LOOP),
    Goal("growth", "us_per_row", MOST, FEW, at_most=1.1),
    Goal("growth", "peak_rss_mb", MOST, FEWEST, at_most=1.1),
    Goal("growth", "peak_rss_mb", MOST, at_most=80.0),
    Goal("foreground", "p99_ms", ONE, LOOP, at_most=1.0),
    Goal("foreground", "p99_ms", ONE, NOBODY),
    Goal("start", "seconds", HELP, at_most=0.15),
    Goal("start", "seconds", NOTHING, at_most=0.5),
)
