"""A run: batches of expired rows, each in one transaction, until drained, a limit, a stop or a failure.

Why each line of the deleting path is there. A deleted row cannot be brought back, so nothing here is left to luck:

- The cutoff is read once, from the server's clock, and bound in every statement. A run that lasts an hour deletes
  what was expired when it began, and no clock of this machine has a say (A-06).
- A batch first locks its root rows, at most BatchSize of them, oldest first, in a statement of its own. FOR UPDATE
  makes PostgreSQL look at the newest version of each row, so one that was touched a moment ago no longer meets the
  condition and stays (F-13). SKIP LOCKED steps around rows somebody else is using, another run of ours included.
- While a root row is locked nobody can add a child to it, since the foreign key check of the newcomer waits for us.
  The deleting statement comes after the claim and sees every child there will ever be.
- Before that, every table is held in its present definition, and that must be the one the plan was made for. A foreign
  key with CASCADE, a trigger or another type added since the run began would make other statements of these.
- Children are found by the keys just claimed, never by their own age; root rows by the address under which they are
  locked, with every guard and the cutoff repeated (F-02). Whatever is not claimed is not touched.
- As many root rows must go as were claimed, and never more than BatchSize. Anything else, a trigger that swallows
  deletions say, rolls the batch back and fails the run.
- Deferred constraints are checked before COMMIT, while a timeout can still end it and an error still has a name.
- Counters, cursor, log and progress move after COMMIT has answered COMMIT, and not before.
- The cursor remembers the last claimed (expiry, key) within this run only. Without it each batch would walk again
  over the index entries of all batches before, which cannot be vacuumed while an old snapshot is open. Rows that
  were locked when the cursor passed are found by starting once more from the oldest after a batch that was not full.
- An exclusive job holds its advisory lock on the connection that deletes. Whoever loses the connection loses the lock
  and the ability to delete at the same instant (A-09). A pooler can hand the next transaction to another server
  connection, so there the lock is taken anew inside every batch's transaction.
- An error rolls back the batch it happened in, and nothing else. What was committed stays and is reported (A-12).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

from psycopg.adapt import Transformer
from psycopg.postgres import types
from psycopg.pq import Format

from pgretention import backlog, catalog, db, plan
from pgretention.clock import Clock
from pgretention.db import Connection, Session
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.job import Job
from pgretention.plan import Plan
from pgretention.report import (
    Backlog,
    BatchDone,
    Fact,
    Outcome,
    RunError,
    RunFinished,
    RunReport,
    RunStarted,
)
from pgretention.stop import Stop

Observe = Callable[[Fact], None]

_LAST_LOOK = timedelta(milliseconds=250)
"""How long counting what is left may take when the run has used up its time."""

_BATCH_TIMEOUT = timedelta(minutes=1)
"""The longest a single statement of a batch may take, where the run has more time than that left."""


@dataclass(frozen=True, slots=True)
class _Cursor:
    """The last root row claimed, as texts: PostgreSQL's dates reach further than Python's."""

    expiry: str
    key: str


@dataclass(frozen=True, slots=True)
class _Batch:
    """A committed batch: root rows claimed, a count per table, and where the next one starts."""

    size: int
    deleted: dict[str, int]
    cursor: _Cursor | None


@dataclass(frozen=True, slots=True)
class _Ending:
    outcome: Outcome
    error: RunError | None = None


class _LockTaken(Exception):
    """Another run holds the lock that this batch's transaction asked for."""


class _BatchFault(Exception):
    """A fault together with the keys of the batch that was rolled back."""

    def __init__(self, fault: Fault, keys: tuple[str, ...]) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.keys = keys


@dataclass(slots=True)
class _Tally:
    """What has been committed so far; the only thing that changes while a run goes on."""

    deleted: dict[str, int]
    batches: int = 0
    cutoff: datetime | None = None
    before: Backlog | None = None
    after: Backlog | None = None

    def add(self, batch: _Batch) -> None:
        self.batches += 1
        for table, rows in batch.deleted.items():
            self.deleted[table] += rows


@dataclass(slots=True)
class _Run:
    """Everything a run is made of, so that its steps need not pass it around."""

    job: Job
    run_id: str
    observe: Observe
    stop: Stop
    clock: Clock
    deadline: float
    fingerprint: int = 0
    tally: _Tally = field(init=False)

    def __post_init__(self) -> None:
        self.tally = _Tally(deleted={str(table): 0 for table in self.job.policy.tables})

    def time_left(self) -> timedelta:
        return timedelta(seconds=self.deadline - self.clock.monotonic())


def run(job: Job, dsn: str, *, run_id: str, observe: Observe, stop: Stop, clock: Clock) -> RunReport:
    """Run the job once against the database at `dsn`, saying each fact to `observe` as it happens.

    Never raises for anything the database does: every way to end is an Outcome of the report, and what was committed
    before is in it (A-12, A-15). `observe` must not raise.
    """
    began = clock.monotonic()
    deadline = began + job.limits.max_run_duration.total_seconds()
    this = _Run(job, run_id, observe, stop, clock, deadline)
    try:
        with db.connect(dsn, f"pgretention/{job.name}/{run_id[:8]}") as session, stop.watching(session):
            ending = _in_session(this, session)
    except Refusal as refusal:
        ending = _Ending(Outcome.REFUSED, RunError(FaultKind.REFUSED, "; ".join(refusal.reasons)))
    except Fault as fault:
        ending = _ending_of(this, fault, keys=())
    except Exception as error:  # noqa: BLE001  a bug of ours must not lose the report of what is already deleted
        place = traceback.extract_tb(error.__traceback__)[-1]
        words = f"unexpected {type(error).__name__} in {place.name}, please report it"
        ending = _Ending(Outcome.FAILED, RunError(FaultKind.INTERNAL, words))
    report = _report(this, ending, timedelta(seconds=clock.monotonic() - began))
    observe(RunFinished(report))
    return report


def _in_session(run: _Run, session: Session) -> _Ending:
    policy = run.job.policy
    with _exclusive(session, policy.lock) as alone:
        if not alone:
            return _Ending(Outcome.SKIPPED)
        with db.looking(session, backlog.MEASURING) as connection:
            run.fingerprint = catalog.fingerprint(connection, policy.tables)
            statements = plan.build(policy, catalog.read(connection, policy.tables))
            cutoff = run.tally.cutoff = _read_cutoff(connection, policy.retention)
        before = run.tally.before = backlog.measure(session, statements, cutoff, run.time_left() / 4)
        run.observe(
            RunStarted(
                job=run.job.name,
                run_id=run.run_id,
                cutoff=cutoff,
                retention=policy.retention,
                batch_size=run.job.limits.batch_size,
                backlog=before,
                pooled=session.pooled,
            )
        )
        ending = _batches(run, session, statements, cutoff)
    if not run.stop.forced and not session.connection.closed:
        with suppress(Fault):  # the deletions are done and reported; only what is left stays unknown
            run.tally.after = backlog.measure(session, statements, cutoff, max(run.time_left() / 4, _LAST_LOOK))
    return ending


@contextmanager
def _exclusive(session: Session, lock: str | None) -> Generator[bool]:
    """Whether this run may go on: always without a lock, else if the lock is free (A-09).

    Behind a pooler this only looks whether somebody is running now; `_claim_and_delete` takes the lock for real.
    """
    if lock is None:
        yield True
        return
    with db.faults():
        if session.pooled:
            with db.transaction(session, backlog.MEASURING) as connection:
                alone = db.try_lock(connection, lock, for_transaction=True)
        else:
            alone = db.try_lock(session.connection, lock, for_transaction=False)
    try:
        yield alone
    finally:
        if alone and not session.pooled:
            db.unlock(session.connection, lock)


def _read_cutoff(connection: Connection, retention: timedelta) -> datetime:
    """The instant before which a row is expired: the server's now() minus the retention, in UTC (A-06)."""
    row = connection.execute(plan.CUTOFF, [retention]).fetchone()
    return cast("tuple[datetime]", row)[0].astimezone(UTC)


def _batches(run: _Run, session: Session, statements: Plan, cutoff: datetime) -> _Ending:
    """Batch after batch; what ends a run is looked at before each of them (A-11)."""
    limits = run.job.limits
    cursor: _Cursor | None = None
    took = timedelta(0)
    while True:
        if run.stop.requested:
            return _Ending(Outcome.STOPPED)
        if limits.max_batches is not None and run.tally.batches >= limits.max_batches:
            return _Ending(Outcome.LIMIT_REACHED)
        if run.time_left() <= took:  # another batch like the last would not finish in time
            return _Ending(Outcome.LIMIT_REACHED)
        began = run.clock.monotonic()
        try:
            batch = _claim_and_delete(run, session, statements, cutoff, cursor)
        except _LockTaken:
            return _Ending(Outcome.STOPPED if run.tally.batches else Outcome.SKIPPED)
        except _BatchFault as error:
            return _ending_of(run, error.fault, error.keys)
        took = timedelta(seconds=run.clock.monotonic() - began)
        if batch.size:
            run.tally.add(batch)
            run.observe(BatchDone(run.job.name, run.run_id, run.tally.batches, batch.deleted, took))
        if batch.size == limits.batch_size:
            cursor = batch.cursor
        elif cursor is None:
            return _Ending(Outcome.COMPLETED)  # from the oldest on there was less than a full batch
        else:
            cursor = None


def _claim_and_delete(
    run: _Run, session: Session, statements: Plan, cutoff: datetime, cursor: _Cursor | None
) -> _Batch:
    """One batch, one transaction: lock the root rows, delete their children and them, prove the count, commit."""
    policy, size = run.job.policy, run.job.limits.batch_size
    binds: dict[str, object] = {"cutoff": cutoff}
    claim = statements.claim_first(size)
    if cursor is not None:
        claim = statements.claim_next(size)
        binds |= {"after_expiry": cursor.expiry, "after_key": cursor.key}
    keys = ""
    try:
        timeout = min(_BATCH_TIMEOUT, run.time_left())
        with db.transaction(session, timeout, plan.PLANNER) as connection:
            if session.pooled and policy.lock is not None:
                _take(connection, policy.lock)
            connection.execute(statements.hold)
            _same_definition(run, connection)
            claimed, addresses, keys, last_expiry, last_key = cast(
                "tuple[int, str, str, str, str]", connection.execute(claim, binds).fetchone()
            )
            if claimed == 0:
                return _Batch(0, {}, None)
            _prove_count(claimed, at_most=size)
            _go_on_unless_forced_to_stop(run.stop)
            db.tighten(connection, min(_BATCH_TIMEOUT, run.time_left()))
            binds = {"cutoff": cutoff, "addresses": addresses, "keys": keys}
            counts = cast("tuple[int, ...]", connection.execute(statements.delete, binds).fetchone())
            _prove_deleted(counts[-1], claimed)
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except Fault as fault:
        raise _BatchFault(fault, _parse_keys(keys)) from None
    deleted = {str(table): rows for table, rows in zip(policy.tables, counts, strict=True)}
    return _Batch(claimed, deleted, _Cursor(last_expiry, last_key))


def _take(connection: Connection, lock: str) -> None:
    if not db.try_lock(connection, lock, for_transaction=True):
        raise _LockTaken


def _same_definition(run: _Run, connection: Connection) -> None:
    if catalog.fingerprint(connection, run.job.policy.tables) != run.fingerprint:
        raise Refusal(["the definition of a table changed while the run was on; look at the change, then run again"])


def _go_on_unless_forced_to_stop(stop: Stop) -> None:
    """A cancellation that arrived between two statements had nothing to cancel; this is where it is heard."""
    if stop.forced:
        raise Fault(FaultKind.CANCELLED, "stopped before anything of this batch was deleted")


def _prove_count(claimed: int, *, at_most: int) -> None:
    if claimed > at_most:
        raise Fault(FaultKind.CLAIM_MISMATCH, f"{claimed} rows claimed with a batch size of {at_most}")


def _prove_deleted(deleted: int, claimed: int) -> None:
    if deleted != claimed:
        raise Fault(
            FaultKind.CLAIM_MISMATCH,
            f"{claimed} rows claimed but {deleted} deleted; look for a BEFORE DELETE trigger that returns NULL "
            "and for row-level security",
        )


def _parse_keys(array: str) -> tuple[str, ...]:
    """The keys of a batch out of PostgreSQL's text for an array, by the client library's own reader."""
    if not array:
        return ()
    loader = Transformer().get_loader(types["text"].array_oid, Format.TEXT)
    return tuple(cast("list[str]", loader.load(array.encode())))


def _ending_of(run: _Run, fault: Fault, keys: tuple[str, ...]) -> _Ending:
    """A fault that we asked for ourselves, by a forced stop or by the run's own time limit, is no failure."""
    if run.stop.forced and fault.kind in {FaultKind.STATEMENT_TIMEOUT, FaultKind.CANCELLED}:
        return _Ending(Outcome.STOPPED)
    if run.stop.requested and run.tally.cutoff is None:  # it was still looking for its database
        return _Ending(Outcome.STOPPED)
    if fault.kind is FaultKind.STATEMENT_TIMEOUT and run.time_left() <= timedelta(0):
        return _Ending(Outcome.LIMIT_REACHED)
    batch = run.tally.batches + 1 if keys else None
    return _Ending(Outcome.FAILED, RunError(fault.kind, str(fault), fault.sqlstate, fault.constraint, keys, batch))


def _report(run: _Run, ending: _Ending, duration: timedelta) -> RunReport:
    """The result; a limit or a stop that came when nothing was left to do is a completed run (design section 1)."""
    tally = run.tally
    outcome = ending.outcome
    ended_early = outcome in {Outcome.LIMIT_REACHED, Outcome.STOPPED}
    if ended_early and tally.after is not None and tally.after.exact and tally.after.rows == 0:
        outcome, ended_early = Outcome.COMPLETED, False
    return RunReport(
        job=run.job.name,
        run_id=run.run_id,
        outcome=outcome,
        cutoff=tally.cutoff,
        deleted=dict(tally.deleted),
        batches=tally.batches,
        has_more=ended_early,
        backlog_before=tally.before,
        backlog_after=tally.after,
        duration=duration,
        error=ending.error,
    )
