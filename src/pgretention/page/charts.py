"""Charts as tables: each is a table of numbers that reads well by itself, and that a script draws if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pgretention.course import STATEMENT_LIMIT
from pgretention.job import Job
from pgretention.page.words import clock_time
from pgretention.report import Throttle
from pgretention.sinks.records import RunRecord


class Shape(StrEnum):
    """How the numbers are drawn."""

    BARS = "bars"
    LINE = "line"


@dataclass(frozen=True, slots=True)
class Point:
    """A row of the table: where it stands on the axis, what that is called, where it leads, and a number per column.

    None where nobody knows the number.
    """

    at: float
    label: str
    values: tuple[float | None, ...]
    href: str | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """`unit` is what the numbers count, `axis` what the points stand at: instants of the epoch, or batch numbers.

    `limit` is a line that the numbers are to stay below, by its name.
    """

    key: str
    title: str
    about: str
    shape: Shape
    axis: str
    unit: str
    columns: tuple[str, ...]
    points: tuple[Point, ...]
    limit: tuple[str, float] | None = None


def of_job(job: Job, runs: Sequence[RunRecord]) -> list[Chart]:
    """What its runs deleted, what they left and what they waited for."""
    tables = tuple(str(table) for table in job.policy.tables)
    waits = tuple(reason.value for reason in Throttle)
    ended = [run for run in runs if run.ended is not None]
    measured = [run for run in ended if run.backlog_after is not None]
    return [
        Chart(
            "deleted",
            "Rows deleted per run",
            "Committed rows of each table.",
            Shape.BARS,
            "time",
            "rows",
            tables,
            tuple(_point(run, tuple(float(run.deleted.get(table, 0)) for table in tables)) for run in ended),
        ),
        Chart(
            "backlog",
            "Backlog after each run",
            f"Expired rows of {job.policy.root} that were left.",
            Shape.LINE,
            "time",
            "rows",
            ("left",),
            tuple(_point(run, (float(run.backlog_after.rows),)) for run in measured if run.backlog_after),
        ),
        Chart(
            "throttled",
            "Time spent waiting per run",
            "By reason; over all its connections.",
            Shape.BARS,
            "time",
            "seconds",
            tuple(reason.replace("_", " ") for reason in waits),
            tuple(_point(run, tuple(run.throttled.get(reason, 0.0) for reason in waits)) for run in ended),
        ),
    ]


def of_run(job: Job, run: RunRecord) -> list[Chart]:
    """How long its batches took, one after the other, and what each deleted."""
    tables = tuple(str(table) for table in job.policy.tables)
    most = job.pace.batch_duration
    limit = ("TargetBatchDuration", most) if most else ("the limit of a statement", STATEMENT_LIMIT)
    several = any(stretch.count > 1 for stretch in run.stretches)
    about = "The longest of several batches in a row." if several else "From the claim to the COMMIT."
    return [
        Chart(
            "durations",
            "Batch durations",
            about,
            Shape.LINE,
            "batch",
            "seconds",
            ("longest" if several else "took",),
            tuple(Point(each.first, _batches(each.first, each.count), (each.longest,)) for each in run.stretches),
            (limit[0], limit[1].total_seconds()),
        ),
        Chart(
            "batches",
            "Rows per batch",
            "Committed rows of each table" + (", per batch on average." if several else "."),
            Shape.BARS,
            "batch",
            "rows",
            tables,
            tuple(
                Point(each.first, _batches(each.first, each.count), tuple(rows / each.count for rows in each.rows))
                for each in run.stretches
            ),
        ),
    ]


def _point(run: RunRecord, values: tuple[float | None, ...]) -> Point:
    at = run.ended or run.began
    return Point(at.timestamp(), f"{clock_time(at)} UTC", values, f"/runs/{run.run_id}")


def _batches(first: int, count: int) -> str:
    return f"{first:,}" if count == 1 else f"{first:,} to {first + count - 1:,}"
