"""What spans carry (A-23, F-16): names of attributes, and which value of a fact each has.

A span of guest-favorites-cleanup has the names of its specification besides those of every job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.report import (
    BatchDone,
    BatchResized,
    BrakeOverridden,
    ReplicaBehind,
    RetryAwaited,
    RowsKept,
    RunError,
    RunReport,
    RunStarted,
    WorkerLost,
)

Values = dict[str, str | int | float | bool]

_GUEST: Final = guest_favorites_cleanup.NAME
_ACTIVITY: Final = activity_retention.NAME


def run(job: str, run_id: str) -> Values:
    """Which run it is."""
    values: Values = {"pgretention.job": job, "pgretention.run_id": run_id}
    if job == _GUEST:
        values["jobRunId"] = run_id
    if job == _ACTIVITY:
        values["correlationId"] = run_id
    return values


def started(fact: RunStarted) -> Values:
    """By what it runs."""
    values: Values = {
        "pgretention.retention_days": fact.retention.days,
        "pgretention.batch_size": fact.batch_size,
        "pgretention.cutoff": fact.cutoff.isoformat(),
        "pgretention.backlog": fact.backlog.rows,
    }
    if fact.job == _GUEST:
        values |= {"retentionDays": fact.retention.days, "batchSize": fact.batch_size}
    return values


def batch(fact: BatchDone) -> Values:
    """What a batch deleted."""
    return {"pgretention.batch_index": fact.index, **_deleted(fact.deleted)}


def finished(report: RunReport) -> Values:
    """What came of it."""
    values: Values = {
        "pgretention.outcome": report.outcome.value,
        "pgretention.batches": report.batches,
        "pgretention.has_more": report.has_more,
        **_deleted(report.deleted),
        **{f"pgretention.throttled.{reason}": wait.total_seconds() for reason, wait in report.throttled.items()},
        **_why(report.error),
    }
    if report.limit is not None:
        values["pgretention.limit"] = report.limit.value
    if report.backlog_after is not None:
        values["pgretention.backlog_remaining"] = report.backlog_after.rows
    if report.job == _GUEST:
        values["deletedTotal"] = sum(report.deleted.values())
    return values


def event(
    fact: RetryAwaited | RowsKept | WorkerLost | BatchResized | BrakeOverridden | ReplicaBehind,
) -> tuple[str, Values]:
    """What happened on the way, by name."""
    match fact:
        case RetryAwaited():
            waits = {"pgretention.attempt": fact.attempt, "pgretention.wait_seconds": fact.wait.total_seconds()}
            return "retry", {**waits, **_why(fact.error)}
        case RowsKept():
            return "rows kept", {"pgretention.rows": fact.rows, **_why(fact.error)}
        case WorkerLost():
            return "worker lost", _why(fact.error)
        case BatchResized():
            reason = fact.reason.value if fact.reason else ""
            return "batch size", {"pgretention.batch_size": fact.batch_size, "pgretention.reason": reason}
        case BrakeOverridden():
            return "brake overridden", {"pgretention.brake": fact.brake}
        case ReplicaBehind():
            lag: Values = {"pgretention.lag_seconds": fact.lag.total_seconds()} if fact.lag is not None else {}
            return "replica behind", {"pgretention.replica": fact.replica, **lag}


def _deleted(counts: Mapping[str, int]) -> Values:
    return {
        "pgretention.deleted_rows": sum(counts.values()),
        **{f"pgretention.deleted.{table}": rows for table, rows in counts.items()},
    }


def _why(error: RunError | None) -> Values:
    """Of an error what cannot hold a row: the keys of a batch stay out."""
    if error is None:
        return {}
    known = {"sqlstate": error.sqlstate, "constraint": error.constraint, "message": error.message}
    return {
        "pgretention.error.kind": error.kind.value,
        **{f"pgretention.error.{name}": value for name, value in known.items() if value},
    }
