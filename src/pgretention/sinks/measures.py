"""What can be measured of a job, and which fact says so; knows no name of a metric and no library.

Everything is measured when a fact arrives, and facts of deletions arrive after COMMIT: what is rolled back is never
counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Final, assert_never

from pgretention.errors import FaultKind
from pgretention.job import Job
from pgretention.report import (
    Backlog,
    BatchDone,
    BatchResized,
    BrakeOverridden,
    CatchingUp,
    Fact,
    HostFact,
    MissReason,
    Outcome,
    ReplicaBehind,
    RetryAwaited,
    RowsKept,
    RunFinished,
    RunReport,
    RunScheduled,
    RunsMissed,
    RunStarted,
    Throttle,
    Throttled,
    WorkerLost,
)


class Measure(Enum):
    """One thing that is counted, set or observed."""

    RUNS = auto()
    RUN_SECONDS = auto()
    RUN_MILLISECONDS = auto()
    ERRORS = auto()
    MISSED = auto()
    DELETED = auto()
    KEPT = auto()
    BATCHES = auto()
    BATCH_SECONDS = auto()
    BATCH_SIZE = auto()
    RETRIES = auto()
    WORKERS_LOST = auto()
    THROTTLED = auto()
    BACKLOG = auto()
    BACKLOG_BEFORE = auto()
    BACKLOG_AFTER = auto()
    OLDEST_AGE = auto()
    DRAIN_ETA = auto()
    LAST_SUCCESS = auto()
    NEXT_RUN = auto()


LABELS: Final = {
    Measure.RUNS: "outcome",
    Measure.ERRORS: "kind",
    Measure.MISSED: "reason",
    Measure.DELETED: "table",
    Measure.RETRIES: "kind",
    Measure.THROTTLED: "reason",
}
"""What is measured apart for each of several parts, and what those are called."""

WHOLE: Final = ""
"""The part of a measure that has no parts."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure moves: by `value` where it counts, else to it. Seconds, rows or Unix time, as its name says."""

    measure: Measure
    value: float
    part: str = WHOLE


@dataclass(frozen=True, slots=True)
class Left:
    """Expired root rows that a run left behind; `at` is the monotonic clock's."""

    rows: int
    at: float


def parts(measure: Measure, job: Job) -> tuple[str, ...]:
    """Every part a measure of this job can have, known before anything happens, so that their number is bounded."""
    match measure:
        case Measure.RUNS:
            return tuple(Outcome)
        case Measure.ERRORS | Measure.RETRIES:
            return tuple(FaultKind)
        case Measure.MISSED:
            return tuple(MissReason)
        case Measure.DELETED:
            return tuple(str(table) for table in job.policy.tables)
        case Measure.THROTTLED:
            return tuple(Throttle)
        case _:
            return (WHOLE,)


def measured(fact: Fact) -> Iterator[Measured]:
    """What a fact says by itself; a success and the time to drain take a clock besides."""
    match fact:
        case RunStarted():
            yield Measured(Measure.BATCH_SIZE, fact.batch_size)
            yield Measured(Measure.BACKLOG_BEFORE, fact.backlog.rows)
            yield from _backlog(fact.backlog)
        case BatchDone():
            yield Measured(Measure.BATCHES, 1)
            yield Measured(Measure.BATCH_SECONDS, fact.duration.total_seconds())
            yield from (Measured(Measure.DELETED, rows, table) for table, rows in fact.deleted.items())
        case RetryAwaited() | Throttled():
            yield from _waited(fact)
        case BatchResized():
            yield Measured(Measure.BATCH_SIZE, fact.batch_size)
        case WorkerLost():
            yield Measured(Measure.WORKERS_LOST, 1)
        case BrakeOverridden() | ReplicaBehind():
            pass  # what comes of it is measured
        case RowsKept():
            yield Measured(Measure.KEPT, fact.rows)
        case RunScheduled() | CatchingUp() | RunsMissed():
            yield from _between_runs(fact)
        case RunFinished(report):
            yield from _finished(report)
        case _:
            assert_never(fact)


def _waited(fact: RetryAwaited | Throttled) -> Iterator[Measured]:
    if isinstance(fact, RetryAwaited):
        yield Measured(Measure.RETRIES, 1, fact.error.kind)
        yield Measured(Measure.THROTTLED, fact.wait.total_seconds(), Throttle.BACKOFF)
    else:
        yield Measured(Measure.THROTTLED, fact.wait.total_seconds(), fact.reason)


def _between_runs(fact: HostFact) -> Iterator[Measured]:
    match fact:
        case RunScheduled():
            yield Measured(Measure.NEXT_RUN, fact.due.timestamp())
        case CatchingUp():
            pass  # the run itself is counted
        case RunsMissed():
            yield Measured(Measure.MISSED, fact.count, fact.reason)
        case _:
            assert_never(fact)


def succeeded(outcome: Outcome) -> bool:
    """Whether a run did all that it may: it drained the table, or used up a limit.

    One that was stopped is none although nothing is wrong with it: of a worker that is restarted every night at three
    an alert has to say that nothing is cleaned. One that was skipped is none either, since it did nothing; the run that
    held the lock counts where it ran (A-24, F-17).
    """
    match outcome:
        case Outcome.COMPLETED | Outcome.LIMIT_REACHED:
            return True
        case Outcome.STOPPED | Outcome.SKIPPED | Outcome.REFUSED | Outcome.PARTIAL | Outcome.FAILED:
            return False
    assert_never(outcome)


def drain_eta(before: Left | None, now: Left) -> float:
    """Seconds until nothing expired is left, if it goes on as between the ends of two successive runs.

    New rows expire meanwhile, so this is the net of both. Infinite where the backlog does not fall, NaN where nobody
    can tell: after a first run that left something.
    """
    if now.rows == 0:
        return 0.0
    if before is None or now.at <= before.at:
        return math.nan
    drained = before.rows - now.rows
    return now.rows * (now.at - before.at) / drained if drained > 0 else math.inf


def _finished(report: RunReport) -> Iterator[Measured]:
    yield Measured(Measure.RUNS, 1, report.outcome)
    if report.outcome not in {Outcome.SKIPPED, Outcome.REFUSED}:
        yield Measured(Measure.RUN_SECONDS, report.duration.total_seconds())
        yield Measured(Measure.RUN_MILLISECONDS, report.duration / timedelta(milliseconds=1))
    if report.error is not None:
        yield Measured(Measure.ERRORS, 1, report.error.kind)
    if report.backlog_after is not None:
        yield Measured(Measure.BACKLOG_AFTER, report.backlog_after.rows)
        yield from _backlog(report.backlog_after)


def _backlog(backlog: Backlog) -> Iterator[Measured]:
    yield Measured(Measure.BACKLOG, backlog.rows)
    if backlog.oldest_age is not None:
        yield Measured(Measure.OLDEST_AGE, backlog.oldest_age.total_seconds())
    elif backlog.rows == 0:
        yield Measured(Measure.OLDEST_AGE, 0)
