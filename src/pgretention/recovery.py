"""What comes of a fault: another try after a wait, fewer rows, rows left out, or the end of the run.

- A lost connection, a deadlock, a serialization failure, a lock that is held: another try after a wait, as often as the
  job's retries allow (A-16). Rows of a batch that are still locked when these are used up are left out.
- A foreign key refuses: the rows it refuses are left out (A-17).
- A statement is too slow: half as many rows, and more again later.
- A stop, or the time limit of the run: the end, and no failure.
- Anything else, a COMMIT whose answer is lost included: the end.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import cast

from psycopg.adapt import Transformer
from psycopg.postgres import types
from psycopg.pq import Format

from pgretention.course import Course, Ending
from pgretention.errors import Fault, FaultKind
from pgretention.report import BatchResized, Outcome, RetryAwaited, RunError
from pgretention.window import Claim

_PASSING = frozenset({FaultKind.CONNECTION, FaultKind.SERIALIZATION, FaultKind.DEADLOCK, FaultKind.LOCK_TIMEOUT})
_GIVEN_UP = frozenset({FaultKind.STATEMENT_TIMEOUT, FaultKind.CANCELLED, FaultKind.CONNECTION})


def after_rollback(run: Course, fault: Fault, claim: Claim | None) -> Ending | None:
    """What comes of a batch that was rolled back: the end of the run, or None to go on with another batch."""
    if run.stop.forced:
        return _ending_of(run, fault, claim)
    if claim is not None and (fault.kind is FaultKind.FOREIGN_KEY or _still_locked(run, fault)):
        return _leave_out(run, fault, claim) if run.window.refused(claim) else None
    if fault.kind is FaultKind.STATEMENT_TIMEOUT and run.time_left() > timedelta(0):
        return _with_fewer_rows(run, fault, claim)
    return wait_or_end(run, fault, claim)


def wait_or_end(run: Course, fault: Fault, claim: Claim | None = None) -> Ending | None:
    """What passes is tried again, None, after a wait, as often as the job allows; anything else ends the run."""
    retries = run.job.retries
    wait = retries.wait(run.attempts + 1, random.random())  # noqa: S311  no secret hangs on it
    gives_up = run.attempts >= retries.times or wait >= run.time_left() or run.stop.requested
    if fault.kind not in _PASSING or gives_up:
        return _ending_of(run, fault, claim)
    run.attempts += 1
    run.observe(RetryAwaited(run.job.name, run.run_id, _error(run, fault, None), run.attempts, wait))
    return Ending(Outcome.STOPPED) if run.stop.wait(wait) else None


@contextmanager
def resizing(run: Course, reason: FaultKind | None = None) -> Generator[None]:
    """Say so when batches have another size after this than before; not of one that is only divided."""
    before = run.window.fast
    yield
    if run.window.fast != before:
        run.observe(BatchResized(run.job.name, run.run_id, run.window.fast, reason))


def _still_locked(run: Course, fault: Fault) -> bool:
    return fault.kind is FaultKind.LOCK_TIMEOUT and 0 < run.job.retries.times <= run.attempts


def _with_fewer_rows(run: Course, fault: Fault, claim: Claim | None) -> Ending | None:
    rows = claim.rows if claim else run.window.size
    if rows == 1 and run.too_short:
        return Ending(Outcome.LIMIT_REACHED)  # the row need not be slow
    with resizing(run, fault.kind):
        left_out = run.window.too_slow(claim)
    if left_out and claim is not None:
        return _leave_out(run, fault, claim)
    return _ending_of(run, fault, claim) if run.window.hopeless else None


def _leave_out(run: Course, fault: Fault, claim: Claim) -> Ending | None:
    """The run goes on with the rest unless that is hopeless; keys are named where a row was found to be the one."""
    run.keep(claim.rows, _error(run, fault, claim if claim.rows == 1 else None))
    return Ending(Outcome.PARTIAL) if run.window.hopeless else None


def _ending_of(run: Course, fault: Fault, claim: Claim | None) -> Ending:
    """A fault that we asked for ourselves, by a stop or by the run's own time limit, is no failure."""
    if run.stop.forced and fault.kind in _GIVEN_UP:
        return Ending(Outcome.STOPPED)
    if run.stop.requested and (run.cutoff is None or fault.kind is FaultKind.CANCELLED):  # it had no session yet
        return Ending(Outcome.STOPPED)
    if fault.kind is FaultKind.STATEMENT_TIMEOUT and run.time_left() <= timedelta(0):
        return Ending(Outcome.LIMIT_REACHED)
    return Ending(Outcome.FAILED, _error(run, fault, claim))


def _error(run: Course, fault: Fault, claim: Claim | None) -> RunError:
    keys = () if claim is None else _parse_keys(claim.keys)
    batch = run.batches + 1 if keys else None
    return RunError(fault.kind, str(fault), fault.sqlstate, fault.constraint, keys, batch)


def _parse_keys(array: str) -> tuple[str, ...]:
    """The keys of a batch out of PostgreSQL's text for an array, by the client library's own reader."""
    loader = Transformer().get_loader(types["text"].array_oid, Format.TEXT)
    return tuple(cast("list[str]", loader.load(array.encode())))
