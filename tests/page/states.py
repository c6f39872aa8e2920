"""Workers in every state a page can show, planted: real facts heard by the real history, and no process or database."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pgretention import app, web
from pgretention.config import AccessToken, HostPort
from pgretention.errors import FaultKind
from pgretention.job import Job
from pgretention.page import routes
from pgretention.page.guard import Gate
from pgretention.page.situation import Watched
from pgretention.policy import Table
from pgretention.preflight import Finding, Reference, Severity
from pgretention.readiness import Away
from pgretention.report import (
    Backlog,
    BatchDone,
    BatchResized,
    Fact,
    Limit,
    MissReason,
    Outcome,
    ReplicaBehind,
    RetryAwaited,
    RunError,
    RunFinished,
    RunReport,
    RunScheduled,
    RunsMissed,
    RunStarted,
    Throttle,
    Throttled,
)
from pgretention.sinks.history import History
from pgretention.survey import Survey

NOW = datetime(2026, 12, 2, 9, 30, tzinfo=UTC)
DAY, HOUR, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)
ASSIGNMENTS = {name: app.default(name) for name in app.JOB_NAMES}
ACTIVITY, GUESTS = (assignment.job for assignment in ASSIGNMENTS.values())
SESSIONS = Table("user_activity", "sessions")

UNREACHABLE = RunError(FaultKind.CONNECTION, "cannot connect: connection refused")
KEPT = RunError(
    FaultKind.FOREIGN_KEY,
    "14 expired rows stay: ForeignKeyViolation: a foreign key that the policy does not know still refers to them",
    sqlstate="23503",
    constraint="invoices_session_id_fkey",
    keys=tuple(f"0b9e7d2c-6f7e-4a83-9a51-2f4f6d9c1c{n:02}" for n in range(14)),
)
CASCADING = RunError(
    FaultKind.REFUSED,
    "public.notes (session_id): its foreign key notes_session_id_fkey to user_activity.sessions is ON DELETE CASCADE: "
    "it deletes rows that the policy activity-retention does not name, as many as there are; `pgretention check "
    "activity-retention` shows what puts it right",
)

CASCADE = Finding(
    Severity.ERROR,
    "undeclared-cascade",
    "public.notes (session_id)",
    "its foreign key notes_session_id_fkey to user_activity.sessions is ON DELETE CASCADE: it deletes rows that the "
    "policy activity-retention does not name, as many as there are",
    "-- after this what is referred to stays, and runs are partial, until the rows here are gone:\nSET lock_timeout = "
    '\'2s\';\nALTER TABLE "public"."notes" DROP CONSTRAINT "notes_session_id_fkey";',
)
REPLICA = Finding(
    Severity.WARNING,
    "horizon",
    "replication slot standby_1",
    "keeps rows that were deleted since 9,000 transactions, so that vacuum cannot remove them",
    "SELECT pg_drop_replication_slot('standby_1');",
)

KEYS = (
    Reference(
        "action_events_session_id_fkey",
        Table("user_activity", "action_events"),
        ("session_id",),
        SESSIONS,
        "RESTRICT",
        160_000,
        indexed=True,
    ),
    Reference(
        "action_events_property_object_view_id_fkey",
        Table("user_activity", "action_events"),
        ("property_object_view_id",),
        Table("user_activity", "property_object_views"),
        "SET NULL",
        160_000,
        indexed=True,
    ),
    Reference(
        "property_object_views_session_id_fkey",
        Table("user_activity", "property_object_views"),
        ("session_id",),
        SESSIONS,
        "RESTRICT",
        60_000,
        indexed=True,
    ),
    Reference(
        "property_object_views_apply_filter_event_id_fkey",
        Table("user_activity", "property_object_views"),
        ("apply_filter_event_id",),
        Table("user_activity", "action_events"),
        "SET NULL",
        60_000,
        indexed=True,
    ),
)
NOTES = Reference(
    "notes_session_id_fkey", Table("public", "notes"), ("session_id",), SESSIONS, "CASCADE", 50_000, indexed=False
)
STATEMENTS = {
    "claim the first batch": 'WITH claimed (address, key) AS MATERIALIZED (\n    SELECT ctid, "id"\n)\nSELECT 1',
    "delete the claimed batch, in the same transaction": 'WITH "deleted_1" AS (\n    DELETE FROM ONLY t\n)\nSELECT 1',
}


@dataclass
class Clock:
    """A clock that somebody else sets."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


@dataclass
class Planted:
    """A worker at NOW, built by telling its history what happened and when."""

    clock: Clock = field(default_factory=Clock)
    surveys: dict[str, Survey] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    away: dict[str, Away] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    here: tuple[str, ...] = app.JOB_NAMES
    stopping: bool = False

    def __post_init__(self) -> None:
        self.history = History([ACTIVITY, GUESTS], self.clock)
        self.number = 0

    @property
    def watched(self) -> Watched:
        """What the page asks."""
        self.clock.at = NOW
        return Watched(
            machine="worker-7",
            jobs=(ACTIVITY, GUESTS),
            here=self.here,
            switches={name: assignment.switch for name, assignment in ASSIGNMENTS.items()},
            databases=dict.fromkeys(ASSIGNMENTS, "host=db.internal dbname=app user=retention"),
            clock=self.clock,
            history=self.history,
            survey=self.surveys.get,
            unseen=self.unseen.get,
            away=self.away.get,
            lost=self.lost.__contains__,
            stopping=lambda: self.stopping,
        )

    def tell(self, at: datetime, *facts: Fact) -> None:
        """These became known at that instant."""
        self.clock.at = at
        for fact in facts:
            self.history(fact)

    def planned(self, *jobs: Job) -> None:
        """The jobs are due when their schedule says."""
        for job in jobs or (ACTIVITY, GUESTS):
            self.tell(NOW, RunScheduled(job.name, job.schedule.next_after(NOW), job.schedule.zone))

    def seen(self, job: Job, backlog: Backlog, *findings: Finding, more: Iterable[Reference] = ()) -> None:
        """Its database was looked at some minutes ago."""
        keys = (*KEYS, *more) if job is ACTIVITY else ()
        at = NOW - timedelta(minutes=7)
        self.surveys[job.name] = Survey(at, findings, keys, STATEMENTS, at - job.policy.retention, backlog)

    def run(  # noqa: PLR0913  a run has many sides
        self,
        job: Job,
        ended: datetime,
        outcome: Outcome = Outcome.COMPLETED,
        *,
        batches: int = 4,
        left: Backlog | None = None,
        error: RunError | None = None,
        limit: Limit | None = None,
        holders: str | None = None,
        throttled: Mapping[str, timedelta] | None = None,
        between: Iterable[Callable[[str], Fact]] = (),
    ) -> str:
        """A run that ended then, with so many batches; answers its id."""
        run_id = self.begin(job, ended - batches * SECOND - SECOND, backlog=10_000 + (left.rows if left else 0))
        self.batches(job, run_id, ended - batches * SECOND, batches)
        self.tell(ended, *(made(run_id) for made in between))
        deleted = self.deleted(job, *range(1, batches + 1))
        report = RunReport(
            job.name,
            run_id,
            outcome,
            None if outcome in {Outcome.REFUSED, Outcome.SKIPPED} else ended - job.policy.retention,
            deleted,
            batches,
            outcome in {Outcome.LIMIT_REACHED, Outcome.STOPPED},
            None,
            left,
            (batches + 1) * SECOND,
            error,
            holders,
            throttled or {},
            limit,
        )
        self.tell(ended, RunFinished(report))
        return run_id

    def begin(self, job: Job, at: datetime, backlog: int = 10_000) -> str:
        """A run begins; answers its id."""
        self.number += 1
        run_id = f"{self.number:08}-6f7e-4a83-9a51-2f4f6d9c1c11"
        expired = Backlog(backlog, exact=True, oldest_age=job.policy.retention + 20 * HOUR)
        started = RunStarted(
            job.name,
            run_id,
            at - job.policy.retention,
            job.policy.retention,
            job.limits.batch_size,
            expired,
            pooled=False,
        )
        self.tell(at, started)
        return run_id

    def batches(self, job: Job, run_id: str, began: datetime, number: int) -> None:
        """So many batches, a second apart, of different lengths."""
        for index in range(1, number + 1):
            took = timedelta(milliseconds=40 + 13 * (index * 7 % 11) + (400 if index % 97 == 0 else 0))
            self.tell(began + index * SECOND, BatchDone(job.name, run_id, index, self.deleted(job, index), took))

    @staticmethod
    def deleted(job: Job, *indexes: int) -> dict[str, int]:
        """What the batches of these numbers delete, children first."""
        tables = job.policy.tables
        rows = sum(900 + 37 * (index % 5) for index in indexes)
        return {str(table): rows * (len(tables) - place) for place, table in enumerate(tables)}


@contextmanager
def serving(planted: Planted, token: AccessToken | None = None) -> Generator[HostPort]:
    """While inside, the page of that worker on the loopback; yields where."""
    anywhere = HostPort("127.0.0.1", 0)
    with web.serving(anywhere, routes.routes(planted.watched, Gate.at(anywhere, token, (), "worker-7"))) as at:
        yield at


DRAINED = Backlog(0, exact=True, oldest_age=None)


def overdue(job: Job, rows: int, by: timedelta, *, exact: bool = True) -> Backlog:
    """A backlog whose oldest row is so far past its end."""
    return Backlog(rows, exact, job.policy.retention + by)


def nothing() -> Planted:
    """A worker that has just started."""
    planted = Planted()
    planted.planned()
    return planted


def fine() -> Planted:
    """Two weeks of nights without an incident."""
    planted = Planted()
    for night in range(14, 0, -1):
        for job in ACTIVITY, GUESTS:
            planted.run(job, NOW - night * DAY + 17 * HOUR, batches=3 + (night * 5) % 7, left=DRAINED)
    planted.planned()
    planted.seen(ACTIVITY, overdue(ACTIVITY, 412, 6 * HOUR))
    planted.seen(GUESTS, overdue(GUESTS, 35, 6 * HOUR))
    return planted


def once() -> Planted:
    """One run of each."""
    planted = Planted()
    for job in ACTIVITY, GUESTS:
        planted.run(job, NOW - 6 * HOUR, batches=1, left=DRAINED)
        planted.seen(job, overdue(job, 3, HOUR))
    planted.planned()
    return planted


def much() -> Planted:
    """A thousand runs of each, one of them very long."""
    planted = Planted()
    for hour in range(1000, 0, -1):
        for job in ACTIVITY, GUESTS:
            waited: dict[str, timedelta] = {
                Throttle.WAL: SECOND * (hour % 5),
                Throttle.REPLICA_LAG: SECOND * (hour % 3),
            }
            planted.run(job, NOW - hour * HOUR, batches=2 + hour % 9, left=DRAINED, throttled=waited)
    planted.run(
        GUESTS, NOW - timedelta(minutes=30), batches=5000, left=overdue(GUESTS, 8_000_000, 3 * HOUR, exact=False)
    )
    planted.planned()
    planted.seen(ACTIVITY, overdue(ACTIVITY, 12, 30 * timedelta(minutes=1)), REPLICA)
    planted.seen(GUESTS, overdue(GUESTS, 8_000_123, 3 * HOUR, exact=False))
    return planted


def failing() -> Planted:
    """Activity leaves rows out, favorites cannot reach their database for the third night."""
    planted = fine()
    planted.run(ACTIVITY, NOW - 5 * HOUR, Outcome.PARTIAL, left=overdue(ACTIVITY, 14, 3 * DAY), error=KEPT)
    planted.run(GUESTS, NOW - 5 * HOUR, Outcome.FAILED, batches=0, error=UNREACHABLE)
    planted.tell(NOW - 2 * SECOND, RetryAwaited(GUESTS.name, "x", UNREACHABLE, 1, 30 * SECOND))
    planted.away[GUESTS.name] = Away(5 * HOUR, "cannot connect: connection refused")
    planted.unseen[GUESTS.name] = "cannot connect: connection refused"
    return planted


def refused() -> Planted:
    """Activity meets a CASCADE, favorites have not been looked at and are behind."""
    planted = Planted()
    planted.run(ACTIVITY, NOW - 5 * HOUR, Outcome.REFUSED, batches=0, error=CASCADING)
    planted.seen(ACTIVITY, overdue(ACTIVITY, 60_000, 9 * DAY), CASCADE, REPLICA, more=[NOTES])
    for night in range(3, 0, -1):
        left = overdue(GUESTS, 4_000_000 + 50_000 * (3 - night), 40 * DAY)
        planted.run(GUESTS, NOW - night * DAY, Outcome.LIMIT_REACHED, left=left, limit=Limit.DURATION)
    planted.planned()
    return planted


def running() -> Planted:
    """Activity deletes at this moment and waits for a replica now and then; favorites caught up before."""
    planted = fine()
    run_id = planted.begin(ACTIVITY, NOW - 70 * SECOND, backlog=90_000)
    planted.batches(ACTIVITY, run_id, NOW - 65 * SECOND, 60)
    planted.tell(
        NOW - 3 * SECOND,
        ReplicaBehind(ACTIVITY.name, run_id, "standby_1", 12 * SECOND, 5 * SECOND),
        Throttled(ACTIVITY.name, run_id, Throttle.REPLICA_LAG, 2 * SECOND),
        BatchResized(ACTIVITY.name, run_id, 2500, FaultKind.STATEMENT_TIMEOUT),
    )
    for hours, rows in (3, 900_000), (1, 500_000):
        left = overdue(GUESTS, rows, 12 * DAY)
        planted.run(GUESTS, NOW - hours * HOUR, Outcome.LIMIT_REACHED, left=left, limit=Limit.DURATION)
    planted.surveys.pop(GUESTS.name)
    return planted


def held() -> Planted:
    """Activity finds its lock held night after night, favorites missed their night."""
    planted = Planted()
    for night in range(3, 0, -1):
        planted.run(
            ACTIVITY,
            NOW - night * DAY,
            Outcome.SKIPPED,
            batches=0,
            holders="process 4711 (psql, role ann), since 3 days",
        )
    planted.seen(ACTIVITY, overdue(ACTIVITY, 20_000, 3 * DAY))
    planted.run(GUESTS, NOW - 2 * DAY, left=DRAINED)
    planted.tell(NOW - DAY, RunsMissed(GUESTS.name, 2, NOW - 30 * HOUR, MissReason.LATE))
    planted.seen(GUESTS, overdue(GUESTS, 900, 20 * HOUR))
    planted.planned()
    return planted


def off() -> Planted:
    """One job is left to another worker, the other has lost its thread."""
    planted = fine()
    planted.here = (ACTIVITY.name,)
    planted.lost.add(ACTIVITY.name)
    return planted


def ending() -> Planted:
    """The worker was told to stop."""
    planted = fine()
    planted.stopping = True
    return planted


STATES: Mapping[str, Callable[[], Planted]] = {
    made.__name__: made for made in (nothing, once, fine, much, failing, refused, running, held, off, ending)
}
