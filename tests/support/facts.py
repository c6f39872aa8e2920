"""Runs as their facts tell them, for the tests of whoever listens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pgretention.errors import FaultKind
from pgretention.job import Job, Limits
from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.policy import IsNull, Policy, Table
from pgretention.report import (
    Backlog,
    BatchDone,
    BrakeOverridden,
    Fact,
    Limit,
    Outcome,
    ReplicaBehind,
    RunError,
    RunFinished,
    RunReport,
    RunStarted,
    Throttle,
    Throttled,
)
from pgretention.schedule import Schedule

RUN = "0b9e7d2c-6f7e-4a83-9a51-2f4f6d9c1c11"
NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
CUTOFF = datetime(2025, 3, 1, 3, 0, 0, 250_000, tzinfo=UTC)
YEAR = timedelta(days=365)
NIGHTLY = Schedule.parse("0 3 * * *", "UTC")

ACTIVITY = Job(activity_retention.policy(YEAR), Limits(5000, timedelta(minutes=30), 200), NIGHTLY)
GUEST = Job(guest_favorites_cleanup.policy(YEAR), Limits(1000, timedelta(minutes=10)), NIGHTLY)
THIRD = Job(
    Policy(
        name="token-cleanup",
        root=Table("auth", "tokens"),
        key="id",
        expiry="expires_at",
        guard=(IsNull("kept_for"),),
        retention=timedelta(days=30),
    ),
    Limits(100, timedelta(minutes=1)),
    NIGHTLY,
)
JOBS = (ACTIVITY, GUEST, THIRD)

FOREIGN_KEY = RunError(
    FaultKind.FOREIGN_KEY,
    "ForeignKeyViolation: a foreign key that the policy does not know still refers to one of the rows",
    sqlstate="23503",
    constraint="invoices_session_id_fkey",
    keys=("a1", "b2"),
    batch=3,
)
TEN_THOUSAND = Backlog(10_000, exact=True, oldest_age=timedelta(days=400))
SOME_LEFT = Backlog(4000, exact=True, oldest_age=timedelta(days=380))
ABOUT = Backlog(4000, exact=False, oldest_age=None)
DRAINED = Backlog(0, exact=True, oldest_age=None)

REASONS = RunError(FaultKind.REFUSED, "sessions has no column ended_at; action_events has no index on session_id")
UNREACHABLE = RunError(FaultKind.CONNECTION, "cannot connect: connection refused")


@dataclass
class StandingClock:
    """A clock that moves only when it is told to."""

    at: datetime = NOW
    seconds: float = 1000.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds


def counts(job: Job, rows: int) -> dict[str, int]:
    """What `rows` deleted root rows take with them, in delete order: three rows of the first child, two of the next."""
    tables = [str(table) for table in job.policy.tables]
    return {table: rows * (len(tables) - place) for place, table in enumerate(tables)}


def started(job: Job, rows: int = 10_000, *, exact: bool = True, pooled: bool = False) -> RunStarted:
    return RunStarted(
        job=job.name,
        run_id=RUN,
        cutoff=CUTOFF,
        retention=job.policy.retention,
        batch_size=job.limits.batch_size,
        backlog=Backlog(rows, exact, timedelta(days=400)),
        pooled=pooled,
    )


def batch(job: Job, index: int = 1, rows: int = 5000) -> BatchDone:
    return BatchDone(job.name, RUN, index, counts(job, rows), timedelta(milliseconds=250))


def finished(
    job: Job,
    outcome: Outcome = Outcome.COMPLETED,
    *,
    rows: int = 0,
    batches: int = 0,
    left: Backlog | None = None,
    error: RunError | None = None,
    duration: timedelta = timedelta(seconds=12, microseconds=345_678),
) -> RunFinished:
    """A run that ended like that; at the limit of batches where the job has one."""
    limit = Limit.DURATION if job.limits.max_batches is None else Limit.BATCHES
    never_began = left is None
    return RunFinished(
        RunReport(
            job=job.name,
            run_id=RUN,
            outcome=outcome,
            cutoff=None if never_began else CUTOFF,
            deleted=counts(job, rows),
            batches=batches,
            has_more=outcome in {Outcome.LIMIT_REACHED, Outcome.STOPPED},
            backlog_before=None if never_began else TEN_THOUSAND,
            backlog_after=left,
            duration=duration,
            error=error,
            limit=limit if outcome is Outcome.LIMIT_REACHED else None,
        )
    )


def held_elsewhere(job: Job) -> RunFinished:
    return RunFinished(replace(finished(job, Outcome.SKIPPED).report, holders="process 4711 (psql, role ann)"))


def stories(job: Job) -> dict[str, list[Fact]]:
    """A run in every outcome, by what it is about."""
    begun: list[Fact] = [started(job), batch(job), batch(job, 2, 1000)]
    ends = {
        "completed": finished(job, rows=6000, batches=2, left=DRAINED),
        "completed, some locked": finished(job, rows=6000, batches=2, left=SOME_LEFT),
        "limit reached": finished(job, Outcome.LIMIT_REACHED, rows=6000, batches=2, left=SOME_LEFT),
        "stopped": finished(job, Outcome.STOPPED, rows=6000, batches=2, left=ABOUT),
        "partial": finished(job, Outcome.PARTIAL, rows=6000, batches=2, left=SOME_LEFT, error=FOREIGN_KEY),
        "failed": finished(job, Outcome.FAILED, rows=6000, batches=2, error=FOREIGN_KEY),
    }
    never: dict[str, list[Fact]] = {
        "nothing expired": [started(job, 0), finished(job, left=DRAINED)],
        "skipped": [finished(job, Outcome.SKIPPED)],
        "skipped behind a pooler": [started(job, pooled=True), finished(job, Outcome.SKIPPED, left=SOME_LEFT)],
        "refused": [finished(job, Outcome.REFUSED, error=REASONS)],
        "unreachable": [finished(job, Outcome.FAILED, error=UNREACHABLE)],
        "estimated": [started(job, 5000, exact=False, pooled=True), *begun[1:], ends["completed"]],
    }
    lag, limit, second = timedelta(seconds=7), timedelta(seconds=5), timedelta(seconds=1)
    waited = replace(ends["completed"].report, throttled={Throttle.REPLICA_LAG: second, Throttle.WAL: second})
    held_back: list[Fact] = [
        BrakeOverridden(job.name, RUN, "cutoff-jump", "the cutoff is 3 days later than the last run's"),
        begun[0],
        ReplicaBehind(job.name, RUN, "standby-1", lag, limit),
        Throttled(job.name, RUN, Throttle.REPLICA_LAG, second),
        *begun[1:],
        Throttled(job.name, RUN, Throttle.WAL, second),
        RunFinished(waited),
    ]
    return {name: [*begun, end] for name, end in ends.items()} | never | {"held back": held_back}
