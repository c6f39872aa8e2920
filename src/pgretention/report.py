"""Frozen facts about a run: what the engine says while it works, and what it gives back at the end.

Facts carry counts, keys and names, never the content of a row. Sinks (`sinks/`) subscribe to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from pgretention.errors import FaultKind


class Outcome(StrEnum):
    """How a run ended (design section 5)."""

    COMPLETED = "completed"
    LIMIT_REACHED = "limit_reached"
    STOPPED = "stopped"
    SKIPPED = "skipped"
    REFUSED = "refused"
    PARTIAL = "partial"
    FAILED = "failed"


class Limit(StrEnum):
    """Which limit ended a run, by the setting that raises it (A-11, F-04)."""

    BATCHES = "MaxBatchesPerRun"
    DURATION = "MaxRunDuration"


class Throttle(StrEnum):
    """Why a run waits between two transactions: what `Pace` says, or another try after a fault."""

    BATCH_PAUSE = "batch_pause"
    REPLICA_LAG = "replica_lag"
    WAL = "wal"
    BACKOFF = "backoff"


class TooLong(StrEnum):
    """Why batches are made smaller although none of them failed."""

    BATCH_DURATION = "batch_duration"


@dataclass(frozen=True, slots=True)
class Backlog:
    """Expired rows still in the table, those somebody else has locked among them.

    `exact` is False where counting would have taken too long and `rows` is the planner's estimate.
    `oldest_age` is how far back the oldest expiry lies; None when nothing is expired or looking took too long.
    """

    rows: int
    exact: bool
    oldest_age: timedelta | None


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed, in our own words; `keys` are the root keys of the batch that was rolled back, as text."""

    kind: FaultKind
    message: str
    sqlstate: str | None = None
    constraint: str | None = None
    keys: tuple[str, ...] = ()
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run holds its lock, if it has one, and knows its cutoff; nothing is deleted yet."""

    job: str
    run_id: str
    cutoff: datetime
    retention: timedelta
    batch_size: int
    backlog: Backlog
    pooled: bool


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A batch is committed. `index` counts from 1; `deleted` has a count per table, in delete order."""

    job: str
    run_id: str
    index: int
    deleted: Mapping[str, int]
    duration: timedelta


@dataclass(frozen=True, slots=True)
class RetryAwaited:
    """A transient fault ended an attempt; the run waits for `wait` and tries again (A-16). `attempt` counts from 1.

    The worker says it too, after RunFinished, of a run that never reached its database.
    """

    job: str
    run_id: str
    error: RunError
    attempt: int
    wait: timedelta


@dataclass(frozen=True, slots=True)
class BatchResized:
    """From now on a batch takes another number of root rows; smaller because of `reason`, larger without one."""

    job: str
    run_id: str
    batch_size: int
    reason: FaultKind | TooLong | None


@dataclass(frozen=True, slots=True)
class BrakeOverridden:
    """A brake would have kept the run from beginning, and was told not to; `brake` is its name."""

    job: str
    run_id: str
    brake: str
    why: str


@dataclass(frozen=True, slots=True)
class ReplicaBehind:
    """The run begins to wait for a replica, which is `lag` behind in replaying; None while it catches up at all."""

    job: str
    run_id: str
    replica: str
    lag: timedelta | None
    limit: timedelta


@dataclass(frozen=True, slots=True)
class Throttled:
    """The run has waited between two transactions, which it says at least every second."""

    job: str
    run_id: str
    reason: Throttle
    wait: timedelta


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """One of the parallel connections of a run is gone for good; the others go on and do its part."""

    job: str
    run_id: str
    error: RunError


@dataclass(frozen=True, slots=True)
class RowsKept:
    """Expired root rows that the database would not delete; this run does not try them again (A-17).

    `error.keys` are the keys where they were found one by one, and empty where a whole batch was left out.
    """

    job: str
    run_id: str
    rows: int
    error: RunError


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did and what is left (A-15): counts of committed deletions only, whatever happened afterwards.

    `has_more` is true exactly when the run ended at a limit or a stop rather than drained; `limit` says at which limit.
    `cutoff` and the backlogs
    are None when the run ended before they were read. `holders` says whose lock kept a run from going on. `throttled`
    is how long its connections waited for the sake of others, by reason, those of them that there were.
    """

    job: str
    run_id: str
    outcome: Outcome
    cutoff: datetime | None
    deleted: Mapping[str, int]
    batches: int
    has_more: bool
    backlog_before: Backlog | None
    backlog_after: Backlog | None
    duration: timedelta
    error: RunError | None = None
    holders: str | None = None
    throttled: Mapping[str, timedelta] = field(default_factory=dict)
    limit: Limit | None = None

    def as_json(self) -> dict[str, object]:
        """The result object of `run --json`, ready for `json.dumps` (design section 5)."""
        measured = [backlog for backlog in (self.backlog_before, self.backlog_after) if backlog is not None]
        return {
            "job": self.job,
            "run_id": self.run_id,
            "outcome": self.outcome.value,
            "cutoff": None if self.cutoff is None else self.cutoff.isoformat(),
            "deleted": dict(self.deleted),
            "batches": self.batches,
            "has_more": self.has_more,
            "backlog_before": None if self.backlog_before is None else self.backlog_before.rows,
            "backlog_after": None if self.backlog_after is None else self.backlog_after.rows,
            "backlog_exact": bool(measured) and all(backlog.exact for backlog in measured),
            "duration_seconds": round(self.duration.total_seconds(), 6),
            "error": None
            if self.error is None
            else {
                "kind": self.error.kind.value,
                "sqlstate": self.error.sqlstate,
                "constraint": self.error.constraint,
                "message": self.error.message,
                "keys": list(self.error.keys),
            },
        }


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run is over, whatever its outcome; every run ends in exactly one of these."""

    report: RunReport


class MissReason(StrEnum):
    """Why a run that was due did not take place."""

    LATE = "late"
    OVERLAP = "overlap"


@dataclass(frozen=True, slots=True)
class RunScheduled:
    """The worker waits for the next run of a job: `due` in UTC, `zone` the schedule's IANA name (H-01)."""

    job: str
    due: datetime
    zone: str


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """A run begins that was due at `due`, in UTC, while the worker was down or asleep: `late` ago (H-01)."""

    job: str
    due: datetime
    zone: str
    late: timedelta


@dataclass(frozen=True, slots=True)
class RunsMissed:
    """Runs that were due did not take place: the process slept for longer than the grace, or the last one was still on.

    `last_due` is the latest of their instants, in UTC. A `count` of 1000 means at least so many.
    """

    job: str
    count: int
    last_due: datetime
    reason: MissReason


RunFact = (
    RunStarted
    | BatchDone
    | RetryAwaited
    | BatchResized
    | BrakeOverridden
    | ReplicaBehind
    | Throttled
    | WorkerLost
    | RowsKept
    | RunFinished
)
"""What the engine says."""

HostFact = RunScheduled | CatchingUp | RunsMissed
"""What the worker says between runs."""

Fact = RunFact | HostFact
