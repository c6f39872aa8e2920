"""The connections of one run that delete side by side: the first one, and others that come and go with it.

Each lane claims and deletes batches of its own; cutoff, limits, stop, counters and report are the run's. The first
connection holds the job's lock (see `exclusive`) and is the only one that is opened again when it is lost. A lane that
loses another one ends, and what it had claimed is done by the lanes that are left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pgretention import exclusive, recovery
from pgretention.batch import Barred, RolledBack
from pgretention.course import Course, Ending, Lane
from pgretention.errors import Fault, FaultKind
from pgretention.exclusive import Entry
from pgretention.report import Outcome, WorkerLost
from pgretention.session import Session, connect

Batches = Callable[[Lane, Session, Entry], Ending]
"""Batch after batch on one connection until an end; raises RolledBack when it is lost, Barred when it may not go on."""

_WORST_FIRST: Final = (
    Outcome.FAILED,
    Outcome.REFUSED,
    Outcome.PARTIAL,
    Outcome.SKIPPED,
    Outcome.STOPPED,
    Outcome.LIMIT_REACHED,
    Outcome.COMPLETED,
)


def side_by_side(run: Course, dsn: str, session: Session, entry: Entry, batches: Batches) -> Ending:
    """Delete in every lane, and give the worst of their endings.

    The first lane works on `session`, in this thread, each other one in a thread and on a connection to the same server
    of its own. When the first one ends or raises, the others end after their batch in flight, and have ended when this
    returns or raises. Raises what the first lane raises if all others are through; else the worst is how the run ends.
    """
    lead, *more = run.lanes
    lock = run.job.policy.lock
    others = [] if lock and session.pooled else more
    endings: list[Ending] = []
    try:
        with _beside(run, dsn, session, others, batches, endings):
            endings.append(batches(lead, session, entry))
        while all(ending.outcome is Outcome.COMPLETED for ending in endings) and run.frontier.goes_on():
            endings.append(batches(lead, session, entry))
    except Exception as error:
        if all(ending.outcome is Outcome.COMPLETED for ending in endings):
            raise
        if not isinstance(error, (RolledBack, Fault, Barred)):
            endings.append(recovery.end_of(error))
    return _worst(endings)


def _worst(endings: list[Ending]) -> Ending:
    """The ending that is told; answers to COMMIT that never came are the worst, with the keys of all of them."""
    errors = [ending.error for ending in endings if ending.error is not None]
    unknown = [error for error in errors if error.kind is FaultKind.COMMIT_UNKNOWN]
    if unknown:
        keys = tuple(key for error in unknown for key in error.keys)
        return Ending(Outcome.FAILED, replace(unknown[0], keys=keys))
    return min(endings, key=lambda ending: _WORST_FIRST.index(ending.outcome))


@contextmanager
def _beside(
    run: Course, dsn: str, session: Session, lanes: list[Lane], batches: Batches, endings: list[Ending]
) -> Generator[None]:
    if not lanes:
        yield
        return
    with exclusive.beside(session, run.job.policy.lock, run.run_id) as entry:
        threads = [
            threading.Thread(target=_lane, args=(lane, dsn, session, entry, batches, endings), daemon=True)
            for lane in lanes
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            run.gathering.set()
            for thread in threads:
                thread.join()
            run.gathering.clear()


def _lane(lane: Lane, dsn: str, lead: Session, entry: Entry, batches: Batches, endings: list[Ending]) -> None:
    run = lane.run

    def leaving() -> Fault | None:
        return Fault(FaultKind.CANCELLED, "no longer needed") if run.gathering.is_set() else run.given_up()

    try:
        with (
            connect(dsn, run.application_name, given_up=leaving, beside=lead) as session,
            run.stop.watching(session),
        ):
            ending: Ending | None = batches(lane, session, entry)
    except Barred:
        ending = None  # the first lane has lost its connection, or is about to see it
    except (RolledBack, Fault) as lost:
        ending = None
        if leaving() is None:
            fault = lost.fault if isinstance(lost, RolledBack) else lost
            run.say(WorkerLost(run.job.name, run.run_id, recovery.error_of(run, fault)))
    except Exception as error:  # noqa: BLE001  no thread may end without a word
        ending = recovery.end_of(error)
    if ending is not None:
        endings.append(ending)
        if ending.outcome is not Outcome.COMPLETED:
            run.gathering.set()
    lane.window.give_up()  # last, so that nobody takes up what this one failed at
