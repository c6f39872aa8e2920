"""A run: batches of expired rows, each in one transaction, until drained, a limit, a stop or a failure.

What a run as a whole may be trusted with; why each line of a batch is there stands in `batch`:

- The cutoff is read once, from the server's clock, and bound in every statement. A run that lasts an hour deletes
  what was expired when it began, and no clock of this machine has a say (A-06).
- An exclusive job holds its advisory lock on the connection that deletes. Whoever loses the connection loses the lock
  and the ability to delete at the same instant (A-09). A new connection has to win the lock anew. Connections that
  delete beside it ask in every transaction whether it is still there: see `exclusive`.
- Counters, cursor, log and progress move after COMMIT has answered COMMIT, and not before. A COMMIT whose answer never
  came is neither counted nor tried again: the rows are gone or they are not, and the next run sees which.
- The frontier remembers the last claimed (expiry, key) within this run only. Without it each batch would walk again
  over the index entries of all batches before, which cannot be vacuumed while an old snapshot is open. Rows that
  were locked when it passed are found by starting once more from the oldest after a batch that was not full.
- What passes (a lost connection, a deadlock, a lock that is held) is tried again if the job says so, a bounded number
  of times, after waits that a stop cuts short (A-16). What is too slow is tried with fewer rows. What the database
  will never delete is found, named and left out, and the rest goes (A-17): see `window`.
- Waits happen between transactions, never inside one.
- Any other error ends the run. What was committed stays and is reported (A-12).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import partial

from pgretention import backlog, brakes, exclusive, recovery
from pgretention.batch import Barred, RolledBack, Target, aim, claim_and_delete
from pgretention.clock import Clock
from pgretention.course import NO_CONDITIONS, Conditions, Course, Ending, Lane, Observe
from pgretention.errors import Fault, FaultKind
from pgretention.exclusive import Entry, entered
from pgretention.job import Job
from pgretention.lanes import side_by_side
from pgretention.report import Limit, Outcome, RunFinished, RunReport, RunStarted, TooLong
from pgretention.session import Session, connect
from pgretention.stop import Stop
from pgretention.throttle import Governor

_LAST_LOOK = timedelta(milliseconds=250)
"""How long counting what is left may take when the run has used up its time."""


def run(
    job: Job,
    dsn: str,
    *,
    run_id: str,
    observe: Observe,
    stop: Stop,
    clock: Clock,
    conditions: Conditions = NO_CONDITIONS,
) -> RunReport:
    """Run the job once against the database at `dsn`, saying each fact to `observe` as it happens.

    Never raises for anything the database does: every way to end is an Outcome of the report, and what was committed
    before is in it (A-12, A-15). `observe` must not raise; it is called from several threads, but by one at a time.
    """
    began = clock.monotonic()
    deadline = began + job.limits.max_run_duration.total_seconds()
    this = Course(job, run_id, observe, stop, clock, deadline, conditions)
    try:
        ending = _sessions(this, dsn)
    except Exception as error:  # noqa: BLE001  a bug of ours must not lose the report of what is already deleted
        ending = recovery.end_of(error)
    report = this.report(ending, timedelta(seconds=clock.monotonic() - began))
    observe(RunFinished(report))
    return report


def _sessions(run: Course, dsn: str) -> Ending:
    """A session, and when that is lost another one, as long as the job's retries last."""
    while True:
        try:
            with (
                connect(dsn, run.application_name, given_up=run.given_up) as session,
                run.stop.watching(session),
            ):
                return _in_session(run, dsn, session)
        except RolledBack as lost:
            ending = recovery.wait_or_end(run.lanes[0], lost.fault, lost.claim)
        except Fault as fault:
            ending = recovery.wait_or_end(run.lanes[0], fault)
        if ending is not None:
            return ending


def _in_session(run: Course, dsn: str, session: Session) -> Ending:
    with entered(session, run.job.policy.lock) as entry:
        if entry is None and not run.entered:
            return _elsewhere(run, session)
        if entry is None:  # by a run that came in between, or still by the connection that we lost
            raise Fault(
                FaultKind.CONNECTION, "the connection was lost and with it the lock, which is held elsewhere now"
            )
        run.entered = True
        # A later session goes on with the same.
        target = run.target if run.target and run.begun else _begin(run, session)
        try:
            ending = side_by_side(run, dsn, session, entry, partial(_batches, target))
        except Barred:
            return _elsewhere(run, session)
    if not run.stop.forced and not session.connection.closed:
        with suppress(Fault):  # the deletions are done and reported; only what is left stays unknown
            within = max(run.time_left() / 4, _LAST_LOOK)
            run.after = backlog.measure(session, target.statements, target.cutoff, within)
    return ending


def _elsewhere(run: Course, session: Session) -> Ending:
    """Another run of the job is on."""
    run.holders = exclusive.holders(session, run.job.policy.lock) if run.job.policy.lock else None
    return Ending(Outcome.STOPPED if run.batches else Outcome.SKIPPED)


def _begin(run: Course, session: Session) -> Target:
    """What the run deletes; raises Refusal where that would not be what the policy says, or where a brake holds."""
    policy = run.job.policy
    if run.conditions.admit is not None:
        run.conditions.admit(session)
    earliest = run.clock.now()
    run.target = target = aim(session, policy)
    apart = brakes.apart(target.cutoff + policy.retention, earliest, run.clock)
    run.before = backlog.measure(session, target.statements, target.cutoff, run.time_left() / 4)
    brakes.hold(run, session, target, apart)
    run.begun = True
    run.observe(
        RunStarted(
            job=run.job.name,
            run_id=run.run_id,
            cutoff=target.cutoff,
            retention=policy.retention,
            batch_size=run.job.limits.batch_size,
            backlog=run.before,
            pooled=session.pooled,
        )
    )
    return target


def _batches(target: Target, lane: Lane, session: Session, entry: Entry) -> Ending:
    """Batch after batch; what ends a run is looked at before each of them (A-11).

    Raises RolledBack when the connection is lost, and Barred when the run may delete no longer.
    """
    run, window = lane.run, lane.window
    governor = Governor(lane, session)
    while True:
        waited = None if _limit(lane) else governor.wait()
        if waited is not None:
            return waited
        began = run.clock.monotonic()
        try:
            with window.claiming() as asking:
                ending = _limit(lane)
                if ending is not None:
                    return ending
                began = run.clock.monotonic()
                batch = claim_and_delete(
                    session,
                    target,
                    asking,
                    entry=entry,
                    time=run.time_for,
                    forced=lambda: run.stop.forced,
                )
        except RolledBack as error:
            if error.fault.kind is FaultKind.CONNECTION:
                raise
            governor.after(timedelta(seconds=run.clock.monotonic() - began))
            ending = recovery.after_rollback(lane, error.fault, error.claim)
            if ending is not None:
                return ending
            continue
        if batch.claim is not None:
            lane.took = timedelta(seconds=run.clock.monotonic() - began)
            run.add(batch, lane.took)
            with recovery.resizing(run, TooLong.BATCH_DURATION):
                window.deleted(batch.claim, lane.took)
            governor.after(lane.took)
        if not window.divided:
            lane.attempts = 0


def _limit(lane: Lane) -> Ending | None:
    """What ends a run between two batches."""
    run = lane.run
    if lane.window.through or run.gathering.is_set():  # then how the run ends is for another lane to say
        return Ending(Outcome.COMPLETED)
    if run.stop.requested:
        return Ending(Outcome.STOPPED)
    if lane.window.used_up:
        return Ending(Outcome.LIMIT_REACHED, limit=Limit.BATCHES)
    if run.time_left() <= lane.took:  # another batch like the last would not finish in time
        return Ending(Outcome.LIMIT_REACHED, limit=Limit.DURATION)
    return None
