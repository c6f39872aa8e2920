"""What each job calls its log events and their fields (A-21, F-14, design section 6).

A job that is not in the table gets DEFAULT, so a new job needs nothing here. In a field's name, `{table}` stands for
the tables' names and makes it a field per table, and `{reason}` for each reason there was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pgretention.jobs import activity_retention, guest_favorites_cleanup

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


@dataclass(frozen=True, slots=True)
class Line:
    """One event: its name, its level, and its fields in order, each with the value of `logs` that it carries."""

    event: str
    level: int
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LogNames:
    """The events of a job; a run that a limit or a stop cut short is `completed`, a partial one is `failed`."""

    started: Line
    batch: Line
    completed: Line
    skipped: Line
    refused: Line
    failed: Line
    retry: Line
    resized: Line
    overridden: Line
    behind: Line
    throttled: Line
    lost: Line
    kept: Line


def _same(*fields: str) -> dict[str, str]:
    """Fields named like the values they carry."""
    return {field: field for field in fields}


FINDINGS: Final = {
    severity: Line("finding", level, _same("severity", "code", "object", "why", "fix"))
    for severity, level in (("error", ERROR), ("warning", WARNING), ("note", DEBUG))
}
"""What the check at the start of a worker found, by severity."""

SCHEDULED: Final = Line("scheduled", INFO, {"next_run": "due_local", "next_run_utc": "due", "zone": "zone"})
CATCHING_UP: Final = Line("catching up", INFO, {"due": "due_local", "due_utc": "due", "zone": "zone", "late": "late"})
MISSED: Final = Line("missed", WARNING, {"count": "count", "last_due": "last_due", "reason": "reason"})
"""What the worker says between runs, the same for every job."""


def of(job: str) -> LogNames:
    """The names that a job uses."""
    return _BY_JOB.get(job, DEFAULT)


_COUNTS: Final = {"deleted_{table}": "deleted"}
_WAITED: Final = {"throttled_{reason}": "throttled"}
_WHY: Final = _same("error", "kind", "sqlstate", "constraint")
_ERROR: Final = _WHY | _same("batch_index", "batch_ids", "batch_ids_left_out")

DEFAULT: Final = LogNames(
    started=Line(
        "started", INFO, _same("run_id", "cutoff", "retention", "batch_size", "backlog", "backlog_exact", "pooled")
    ),
    batch=Line("batch", DEBUG, _same("run_id", "batch_index") | _COUNTS | _same("duration")),
    completed=Line(
        "completed",
        INFO,
        _same("run_id", "outcome")
        | _COUNTS
        | _same("batches", "has_more", "limit", "duration", "backlog_remaining", "backlog_exact")
        | _WAITED,
    ),
    skipped=Line("skipped", INFO, _same("run_id", "reason", "holders")),
    refused=Line("refused", ERROR, _same("run_id", "kind", "reasons")),
    failed=Line("failed", ERROR, _same("run_id", "outcome") | _ERROR | _COUNTS | _same("batches", "duration")),
    retry=Line("retry", WARNING, _same("run_id", "attempt", "wait") | _WHY),
    resized=Line("batch size", INFO, _same("run_id", "batch_size", "reason")),
    overridden=Line("brake overridden", WARNING, _same("run_id", "brake", "why")),
    behind=Line("replica behind", INFO, _same("run_id", "replica", "lag", "limit")),
    throttled=Line("throttled", DEBUG, _same("run_id", "reason", "wait")),
    lost=Line("worker lost", WARNING, _same("run_id") | _WHY),
    kept=Line("rows kept", WARNING, _same("run_id", "rows", "batch_ids") | _WHY),
)
"""For a job whose specification names no events of its own."""

_ACTIVITY: Final = LogNames(
    started=Line("started", INFO, _same("run_id", "cutoff", "batch_size", "lock")),
    batch=Line("batch", DEBUG, _same("run_id", "batch_index") | _COUNTS),
    completed=Line(
        "completed",
        INFO,
        _same("run_id", "outcome") | _COUNTS | _same("batches", "has_more", "limit", "duration") | _WAITED,
    ),
    skipped=DEFAULT.skipped,
    refused=DEFAULT.refused,
    failed=DEFAULT.failed,
    retry=DEFAULT.retry,
    resized=DEFAULT.resized,
    overridden=DEFAULT.overridden,
    behind=DEFAULT.behind,
    throttled=DEFAULT.throttled,
    lost=DEFAULT.lost,
    kept=DEFAULT.kept,
)

_GUEST_RUN: Final = {"jobRunId": "run_id"}
_GUEST_WHY: Final = {"exception": "error"} | _same("kind", "sqlstate", "constraint")
_GUEST_TOTALS: Final = {"deletedTotal": "deleted_total", "batches": "batches", "durationMs": "duration_ms"}
_GUEST: Final = LogNames(
    started=Line("job started", INFO, _GUEST_RUN | {"cutoff": "cutoff", "RetentionDays": "retention_days"}),
    # At info like the others, since the specification lists it with them; in everyday runs it is a line or two.
    batch=Line("batch deleted", INFO, _GUEST_RUN | {"batchNo": "batch_index", "rows": "deleted_total"}),
    completed=Line(
        "job completed",
        INFO,
        _GUEST_RUN
        | _same("outcome", "limit")
        | _GUEST_TOTALS
        | {"backlogRemaining": "backlog_remaining", "backlogExact": "backlog_exact"}
        | _WAITED,
    ),
    skipped=Line("job skipped", INFO, _GUEST_RUN | _same("reason", "holders")),
    refused=Line("job refused", ERROR, _GUEST_RUN | _same("kind", "reasons")),
    failed=Line(
        "job failed",
        ERROR,
        _GUEST_RUN
        | _same("outcome")
        | {"batchNo": "batch_index"}
        | _GUEST_WHY
        | {"batchIds": "batch_ids", "batchIdsLeftOut": "batch_ids_left_out"}
        | _GUEST_TOTALS,
    ),
    retry=Line("job retry", WARNING, _GUEST_RUN | _same("attempt", "wait") | _GUEST_WHY),
    resized=Line("batch size", INFO, _GUEST_RUN | {"batchSize": "batch_size", "reason": "reason"}),
    overridden=Line("brake overridden", WARNING, _GUEST_RUN | _same("brake", "why")),
    behind=Line("replica behind", INFO, _GUEST_RUN | _same("replica", "lag", "limit")),
    throttled=Line("throttled", DEBUG, _GUEST_RUN | _same("reason", "wait")),
    lost=Line("worker lost", WARNING, _GUEST_RUN | _GUEST_WHY),
    kept=Line("rows kept", WARNING, _GUEST_RUN | {"rows": "rows", "batchIds": "batch_ids"} | _GUEST_WHY),
)

_BY_JOB: Final = {activity_retention.NAME: _ACTIVITY, guest_favorites_cleanup.NAME: _GUEST}
