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
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import cast

from psycopg.adapt import Transformer
from psycopg.postgres import types
from psycopg.pq import Format

from pgretention.course import Course, Ending, Lane
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.report import BatchResized, Limit, Outcome, RetryAwaited, RunError, TooLong
from pgretention.window import Claim

_PASSING = frozenset({FaultKind.CONNECTION, FaultKind.SERIALIZATION, FaultKind.DEADLOCK, FaultKind.LOCK_TIMEOUT})
_GIVEN_UP = frozenset({FaultKind.STATEMENT_TIMEOUT, FaultKind.CANCELLED, FaultKind.CONNECTION})


def after_rollback(lane: Lane, fault: Fault, claim: Claim | None) -> Ending | None:
    """What comes of a batch that was rolled back: the end of the run, or None to go on with another batch."""
    run = lane.run
    if run.stop.forced:
        return _ending_of(run, fault, claim)
    if claim is not None and (fault.kind is FaultKind.FOREIGN_KEY or _still_locked(lane, fault)):
        return _leave_out(run, fault, claim) if lane.window.refused(claim) else None
    if fault.kind is FaultKind.STATEMENT_TIMEOUT and run.time_left() > timedelta(0):
        return _with_fewer_rows(lane, fault, claim)
    return wait_or_end(lane, fault, claim)


def wait_or_end(lane: Lane, fault: Fault, claim: Claim | None = None) -> Ending | None:
    """What passes is tried again, None, after a wait, as often as the job allows; anything else ends the run."""
    run, retries = lane.run, lane.run.job.retries
    wait = retries.wait(lane.attempts + 1, random.random())  # noqa: S311  no secret hangs on it
    gives_up = lane.attempts >= retries.times or wait >= run.time_left() or run.stop.requested
    if fault.kind not in _PASSING or not fault.passing or gives_up:
        return _ending_of(run, fault, claim)
    lane.attempts += 1
    run.say(RetryAwaited(run.job.name, run.run_id, error_of(run, fault), lane.attempts, wait))
    return Ending(Outcome.STOPPED) if run.stop.wait(wait) else None


def end_of(error: Exception) -> Ending:
    """How a run ends on what no batch expects: a database that is not as it has to be, or a bug of ours."""
    if isinstance(error, Refusal):
        return Ending(Outcome.REFUSED, RunError(FaultKind.REFUSED, "; ".join(error.reasons)))
    place = traceback.extract_tb(error.__traceback__)[-1]
    words = f"unexpected {type(error).__name__} in {place.name}, please report it"
    return Ending(Outcome.FAILED, RunError(FaultKind.INTERNAL, words))


@contextmanager
def resizing(run: Course, reason: FaultKind | TooLong) -> Generator[None]:
    """Say so when batches have another size after this than before; not of one that is only divided."""
    before = run.frontier.fast
    yield
    now = run.frontier.fast
    if now != before:
        run.say(BatchResized(run.job.name, run.run_id, now, reason if now < before else None))


def _still_locked(lane: Lane, fault: Fault) -> bool:
    return fault.kind is FaultKind.LOCK_TIMEOUT and 0 < lane.run.job.retries.times <= lane.attempts


def _with_fewer_rows(lane: Lane, fault: Fault, claim: Claim | None) -> Ending | None:
    run, window = lane.run, lane.window
    rows = claim.rows if claim else window.size
    if rows == 1 and run.too_short:
        return Ending(Outcome.LIMIT_REACHED, limit=Limit.DURATION)  # the row need not be slow
    with resizing(run, fault.kind):
        left_out = window.too_slow(claim)
    if left_out and claim is not None:
        return _leave_out(run, fault, claim)
    return _ending_of(run, fault, claim) if run.frontier.hopeless else None


def _leave_out(run: Course, fault: Fault, claim: Claim) -> Ending | None:
    """The run goes on with the rest unless that is hopeless; keys are named where a row was found to be the one."""
    run.keep(claim.rows, error_of(run, fault, claim if claim.rows == 1 else None))
    return Ending(Outcome.PARTIAL) if run.frontier.hopeless else None


def _ending_of(run: Course, fault: Fault, claim: Claim | None) -> Ending:
    """A fault that we asked for ourselves, by a stop or by the run's own time limit, is no failure."""
    if run.stop.forced and fault.kind in _GIVEN_UP:
        return Ending(Outcome.STOPPED)
    if run.stop.requested and (run.cutoff is None or fault.kind is FaultKind.CANCELLED):  # it had no session yet
        return Ending(Outcome.STOPPED)
    if fault.kind is FaultKind.STATEMENT_TIMEOUT and run.time_left() <= timedelta(0):
        return Ending(Outcome.LIMIT_REACHED, limit=Limit.DURATION)
    return Ending(Outcome.FAILED, error_of(run, fault, claim))


def error_of(run: Course, fault: Fault, claim: Claim | None = None) -> RunError:
    """A fault as the report tells it, with the keys that were claimed."""
    keys = () if claim is None else _parse_keys(claim.keys)
    batch = run.batches + 1 if keys else None
    return RunError(fault.kind, str(fault), fault.sqlstate, fault.constraint, keys, batch)


def _parse_keys(array: str) -> tuple[str, ...]:
    """The keys of a batch out of PostgreSQL's text for an array, by the client library's own reader."""
    loader = Transformer().get_loader(types["text"].array_oid, Format.TEXT)
    return tuple(cast("list[str]", loader.load(array.encode())))
