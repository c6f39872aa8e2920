"""What the measurements should show, and whether they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.contenders import LITERAL, OURS, OURS_2, UNBATCHED, Contender
from bench.measures import NOBODY
from bench.samples import Results, Spread

Figures = Callable[[Results], list[float]]
"""One figure a round."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that should lie at or on the right side of a bound; `unit` follows it in print."""

    measure: str
    about: str
    figures: Figures
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    def spread(self, results: Results) -> Spread | None:
        """The figure over all rounds; None when it was not measured."""
        figures = self.figures(results)
        return Spread.of(figures) if figures else None

    def met(self, spread: Spread) -> bool:
        """Whether the median is where it should be."""
        low_enough = self.at_most is None or spread.median <= self.at_most
        return low_enough and (self.at_least is None or spread.median >= self.at_least)

    @property
    def bound(self) -> str:
        """The bound, as it is printed; empty for a figure that is only shown."""
        if self.at_least is not None:
            return f">= {self.at_least:g}{self.unit}"
        return "" if self.at_most is None else f"<= {self.at_most:g}{self.unit}"


def against(measure: str, value: str, contender: Contender, other: Contender | str) -> Figures:
    """The ratio of two contenders in the same round."""
    name = other if isinstance(other, str) else other.name

    def figures(results: Results) -> list[float]:
        theirs = {number: value for (number, _), value in results.of(measure, value, name).items()}
        ours = results.of(measure, value, contender.name)
        return [mine / theirs[number] for (number, _), mine in ours.items() if number in theirs]

    return figures


def growing(value: str, smallest: int) -> Figures:
    """The ratio of the most rows to the fewest, in the same round; `smallest` is a place in the order of sizes."""

    def figures(results: Results) -> list[float]:
        found = results.of("growth", value, OURS.name)
        sizes = sorted({rows for _, rows in found})
        return [
            found[number, sizes[-1]] / found[number, sizes[min(smallest, len(sizes) - 1)]]
            for number in {number for number, _ in found}
        ]

    return figures


def itself(measure: str, value: str, contender: Contender | str, divisor: float = 1.0) -> Figures:
    """The value as it is, in each round."""
    name = contender if isinstance(contender, str) else contender.name
    return lambda results: [each / divisor for each in results.of(measure, value, name).values()]


_MB = 1_000_000.0

GOALS = (
    Goal(
        "activity",
        "rows/s, one worker, against the unbatched DELETE",
        against("activity", "rows_per_s", OURS, UNBATCHED),
        at_least=1.05,
        unit=" x",
    ),
    Goal(
        "activity",
        "rows/s, two workers, against the unbatched DELETE",
        against("activity", "rows_per_s", OURS_2, UNBATCHED),
        at_least=1.9,
        unit=" x",
    ),
    Goal(
        "activity",
        "WAL bytes for each row against the unbatched DELETE",
        against("activity", "wal_bytes_per_row", OURS, UNBATCHED),
        at_most=0.85,
        unit=" x",
    ),
    Goal(
        "favorites",
        "rows/s, one worker, against the literal loop",
        against("favorites", "rows_per_s", OURS, LITERAL),
        at_least=3.0,
        unit=" x",
    ),
    Goal(
        "favorites",
        "rows/s, one worker, against the unbatched DELETE",
        against("favorites", "rows_per_s", OURS, UNBATCHED),
        at_least=0.25,
        unit=" x",
    ),
    Goal(
        "favorites",
        "rows/s, two workers against one",
        against("favorites", "rows_per_s", OURS_2, OURS),
        at_least=1.0,
        unit=" x",
    ),
    Goal(
        "snapshot",
        "time of a batch in the last tenth against the first",
        itself("snapshot", "late_over_early", OURS),
        at_most=1.2,
        unit=" x",
    ),
    Goal(
        "snapshot",
        "the same of the literal loop, on an eighth of the rows",
        itself("snapshot", "late_over_early", LITERAL),
        unit=" x",
    ),
    Goal(
        "growth",
        "time for each row, the most rows against the second fewest",
        growing("us_per_row", 1),
        at_most=1.1,
        unit=" x",
    ),
    Goal(
        "growth", "peak memory, the most rows against the fewest", growing("peak_rss_bytes", 0), at_most=1.1, unit=" x"
    ),
    Goal("growth", "peak memory", itself("growth", "peak_rss_bytes", OURS, _MB), at_most=80.0, unit=" MB"),
    Goal(
        "foreground",
        "p99 of others, one worker, against the literal loop",
        against("foreground", "p99_ms", OURS, LITERAL),
        at_most=1.0,
        unit=" x",
    ),
    Goal(
        "foreground",
        "p99 of others, one worker, against nobody at work",
        against("foreground", "p99_ms", OURS, NOBODY),
        unit=" x",
    ),
    Goal("start", "`pgretention --help`", itself("start", "seconds", "help"), at_most=0.15, unit=" s"),
    Goal("start", "a run that finds nothing", itself("start", "seconds", "run of nothing"), at_most=0.5, unit=" s"),
)
