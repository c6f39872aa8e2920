"""The worker: each job waits for its schedule, runs, and goes on whatever became of the run (H-01).

What a job does at an instant is decided by `decide`, which has no clock and no thread. The loop around it only waits,
a minute at the most, and then reads the wall clock anew: clocks are set, and processes are put to sleep.

- A run that came due while the process was down, asleep or skipped over by the clock is made up for as long as it is
  not later than the grace; several are made up for by one run, since a run deletes what all of them would have. When
  even the latest is too late, they are missed, and told.
- What came due within the grace before the start runs at the start. It may have run already, in another process; a
  second run does no harm.
- What comes due while the job's own run is on is missed, and told: no run waits in a queue, and none overlaps.
- A run that never reached its database takes place again after FIRST_WAIT, and after twice as long each time, for as
  long as it is not later than the grace and the next one is not due sooner (H-03).
- A clock that is set back by more than a minute is believed: the schedule goes on from there. By less, as a time
  server does it, nothing that has run runs again.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from pgretention.clock import Clock
from pgretention.errors import FaultKind
from pgretention.job import Job
from pgretention.report import (
    CatchingUp,
    Fact,
    MissReason,
    Outcome,
    RetryAwaited,
    RunError,
    RunReport,
    RunScheduled,
    RunsMissed,
)
from pgretention.schedule import Schedule
from pgretention.sinks import logs
from pgretention.sinks.log_names import ERROR
from pgretention.stop import Stop

LOOK_AGAIN = timedelta(minutes=1)
"""The longest wait before the wall clock is read anew."""

SET_BACK = timedelta(minutes=1)
"""How far the wall clock may go back without being believed."""

COUNTED = 1000
"""The count of missed runs ends here and means "at least"; after a jump of years there is no end to counting."""

FIRST_WAIT = timedelta(seconds=15)
"""Before a run that never reached its database takes place again for the first time."""

_ON_TIME = timedelta(seconds=5)
"""A run that begins later than this is one that is made up for."""

_LEAVE = 10.0
"""Seconds for a run to end after its statement was cancelled; one that has not by then hangs in the system."""

_GLANCE = 1.0
"""Seconds between two looks at whether the jobs have ended."""


@dataclass(frozen=True, slots=True)
class Fires:
    """Instants at which a schedule fired: how many, COUNTED at most, and the last of them in UTC."""

    count: int
    last: datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until`."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Run:
    """Run now, for what came due at `due` and for all that passed before it."""

    due: datetime


@dataclass(frozen=True, slots=True)
class Miss:
    """These came due too long ago."""

    fires: Fires


@dataclass(frozen=True, slots=True)
class Turn:
    """What a job does now; when it is done, everything up to `accounted` has run or is told to be missed."""

    act: Wait | Run | Miss
    accounted: datetime


@dataclass(frozen=True, slots=True)
class Again:
    """At `at`, attempt `attempt` (from 2) of what came due at `due`."""

    due: datetime
    at: datetime
    attempt: int

    def stands(self, now: datetime, grace: timedelta) -> bool:
        """Whether it may still take place: not when it is too late, nor when the clock makes `due` come due anew."""
        return -SET_BACK <= now - self.due <= grace


def again(
    schedule: Schedule, due: datetime, now: datetime, *, failed: int, grace: timedelta, first_wait: timedelta
) -> Again | None:
    """The next attempt of what came due at `due`, after `failed` of them never reached the database (H-03).

    None where that would be later than the grace, or where the schedule fires before.
    """
    at = now + first_wait * 2 ** (failed - 1)
    if at - due > grace or schedule.next_after(now) <= at:
        return None
    return Again(due, at, failed + 1)


def unreached(report: RunReport) -> RunError | None:
    """Why a run never reached its database; None when it did, or when something else is wrong with it."""
    lost = report.outcome is Outcome.FAILED and report.cutoff is None
    return report.error if lost and report.error and report.error.kind is FaultKind.CONNECTION else None


def decide(schedule: Schedule, accounted: datetime, now: datetime, grace: timedelta) -> Turn:
    """What a job does at `now` when everything up to `accounted` is dealt with; both are aware (H-01).

    `grace` is how late a run may still begin.
    """
    if accounted - now > SET_BACK:
        accounted = now
    passed = fires(schedule, accounted, now)
    if passed is None:
        return Turn(Wait(schedule.next_after(accounted)), accounted)
    return Turn(Run(passed.last) if now - passed.last <= grace else Miss(passed), now)


def fires(schedule: Schedule, after: datetime, until: datetime) -> Fires | None:
    """What a schedule has fired after one instant and up to another, that one included; None if it has not."""
    following = schedule.next_after(after)
    count, last = 0, following
    while following <= until and count < COUNTED:
        count, last = count + 1, following
        following = schedule.next_after(last)
    if count == 0:
        return None
    return Fires(count, last if following > until else _latest(schedule, following, until))


def _latest(schedule: Schedule, fire: datetime, until: datetime) -> datetime:
    """The last instant up to `until` at which a schedule fires; `fire` is an earlier one.

    Halves the time in between, however much that is. Instants are whole seconds, and minutes apart.
    """
    nothing_after = until
    while nothing_after - fire > timedelta(seconds=1):
        middle = fire + (nothing_after - fire) / 2
        following = schedule.next_after(middle)
        if following <= until:
            fire = following
        else:
            nothing_after = middle
    return fire


def work(
    jobs: Sequence[Job],
    run: Callable[[Job], RunReport],
    *,
    stop: Stop,
    clock: Clock,
    observe: Callable[[Fact], None],
    grace: timedelta,
    first_wait: timedelta = FIRST_WAIT,
) -> list[str]:
    """Call `run` with each of the jobs whenever it is due, each job in a thread of its own, until a stop (H-01, H-02).

    Returns when all have ended, at once when none is running. Where `stop` is forced and a run still does not end, it
    is left to die with the process; the names of such jobs are returned. Whatever `run` raises is logged, and the job
    goes on. `observe` must not raise.
    """
    threads = [
        threading.Thread(target=vigil.keep, name=job.name, daemon=True)
        for job in jobs
        for vigil in [_Vigil(job, run, stop, clock, observe, grace, first_wait)]
    ]
    for thread in threads:
        thread.start()
    leaving: float | None = None
    while running := [thread for thread in threads if thread.is_alive()]:
        if stop.forced:
            now = clock.monotonic()
            leaving = now + _LEAVE if leaving is None else leaving
            if now >= leaving:
                break
        running[0].join(_GLANCE)
    return [thread.name for thread in running]


class _Vigil:
    """Watches over the schedule of one job."""

    def __init__(
        self,
        job: Job,
        run: Callable[[Job], RunReport],
        stop: Stop,
        clock: Clock,
        observe: Callable[[Fact], None],
        grace: timedelta,
        first_wait: timedelta,
    ) -> None:
        self._job = job
        self._run = run
        self._stop = stop
        self._clock = clock
        self._observe = observe
        self._grace = grace
        self._first_wait = first_wait
        self._again: Again | None = None
        self._accounted = clock.now() - grace
        self._told: datetime | None = None

    def keep(self) -> None:
        """One turn after the other until a stop; nothing that goes wrong in one of them ends the job."""
        while not self._stop.requested:
            try:
                self._take_turn()
            except Exception as error:  # noqa: BLE001  a bug must not end the nights to come
                self._complain(error)
                self._stop.wait(LOOK_AGAIN)

    def _take_turn(self) -> None:
        now = self._clock.now()
        turn = decide(self._job.schedule, self._accounted, now, self._grace)
        self._accounted = turn.accounted
        match turn.act:
            case Wait(until):
                self._idle(now, until)
            case Run(due):
                if now - due > _ON_TIME:
                    self._observe(CatchingUp(self._job.name, due, self._job.schedule.zone, now - due))
                self._attempt(due, 1)
            case Miss(passed):
                self._miss(passed, MissReason.LATE)
            case _:
                assert_never(turn.act)

    def _idle(self, now: datetime, until: datetime) -> None:
        self._tell(until)
        if self._again is not None and not self._again.stands(now, self._grace):
            self._again = None
        if self._again is None:
            self._stop.wait(min(until - now, LOOK_AGAIN))
        elif now < self._again.at:
            self._stop.wait(min(until - now, self._again.at - now, LOOK_AGAIN))
        else:
            self._attempt(self._again.due, self._again.attempt)

    def _attempt(self, due: datetime, attempt: int) -> None:
        self._again = None
        if self._told is None:
            self._tell(self._job.schedule.next_after(self._clock.now()))
        try:
            report = self._run(self._job)
        finally:
            self._told = None
            self._account_for_the_run()
        error = unreached(report)
        if error is not None and not self._stop.requested:
            self._try_again(due, attempt, report.run_id, error)

    def _try_again(self, due: datetime, failed: int, run_id: str, error: RunError) -> None:
        now = self._clock.now()
        self._again = again(self._job.schedule, due, now, failed=failed, grace=self._grace, first_wait=self._first_wait)
        if self._again is not None:
            self._observe(RetryAwaited(self._job.name, run_id, error, failed, self._again.at - now))

    def _account_for_the_run(self) -> None:
        """What came due during the run is missed."""
        now = self._clock.now()
        passed = fires(self._job.schedule, self._accounted, now)
        self._accounted = max(self._accounted, now)
        if passed is not None:
            self._miss(passed, MissReason.OVERLAP)

    def _miss(self, passed: Fires, reason: MissReason) -> None:
        self._observe(RunsMissed(self._job.name, passed.count, passed.last, reason))

    def _complain(self, error: Exception) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1].name
        kind = type(error).__qualname__
        logs.say(ERROR, "run crashed", job=self._job.name, error_type=kind, place=place)

    def _tell(self, due: datetime) -> None:
        """Say when the next run is due: at the start, after each run, and when that has changed."""
        if due != self._told:
            self._told = due
            self._observe(RunScheduled(self._job.name, due, self._job.schedule.zone))
