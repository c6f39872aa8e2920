from __future__ import annotations

import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgretention.clock import SystemClock
from pgretention.job import Job
from pgretention.report import (
    Backlog,
    CatchingUp,
    Fact,
    MissReason,
    Outcome,
    RetryAwaited,
    RunFinished,
    RunReport,
    RunScheduled,
    RunsMissed,
)
from pgretention.schedule import Schedule
from pgretention.sinks import logs
from pgretention.stop import Stop
from pgretention.worker import COUNTED, FIRST_WAIT, Again, Fires, Miss, Run, Turn, Wait, again, decide, fires, work
from tests.support.facts import ACTIVITY, FOREIGN_KEY, GUEST, NOW, RUN, UNREACHABLE, StandingClock, finished

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
DAILY = Schedule("0 3 * * *", "UTC")
HOURLY = Schedule("0 * * * *", "UTC")
EVERY_MINUTE = Schedule("* * * * *", "UTC")
YESTERDAY = NOW - DAY


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.req("H-01")
def test_before_the_next_run_is_due_there_is_nothing_but_to_wait_for_it() -> None:
    now = NOW - SECOND
    assert decide(DAILY, YESTERDAY, now, HOUR) == Turn(Wait(NOW), YESTERDAY)


@pytest.mark.req("A-08", "H-01")
@pytest.mark.parametrize("late", [timedelta(0), SECOND, HOUR])
def test_a_run_begins_when_it_is_due_or_up_to_the_grace_later(late: timedelta) -> None:
    assert decide(DAILY, YESTERDAY, NOW + late, HOUR) == Turn(Run(NOW), NOW + late)


def test_a_run_that_is_later_than_the_grace_is_missed() -> None:
    late = NOW + HOUR + timedelta(microseconds=1)
    assert decide(DAILY, YESTERDAY, late, HOUR) == Turn(Miss(Fires(1, NOW)), late)
    assert decide(DAILY, late, late, HOUR) == Turn(Wait(NOW + DAY), late)


def test_of_several_runs_that_passed_only_the_last_one_takes_place() -> None:
    now = NOW + 5 * HOUR + MINUTE
    assert decide(HOURLY, NOW, now, HOUR) == Turn(Run(NOW + 5 * HOUR), now)


def test_several_runs_of_which_the_last_is_too_late_are_missed_and_counted() -> None:
    now = NOW + 5 * HOUR + MINUTE
    assert decide(HOURLY, NOW, now, SECOND) == Turn(Miss(Fires(5, NOW + 5 * HOUR)), now)


def test_a_clock_that_is_set_back_by_more_than_a_minute_is_believed() -> None:
    """At 22:00 it was set eight hours ahead, and then back."""
    ahead = at("2026-03-02T06:00Z")
    now = at("2026-03-01T22:01Z")
    due = at("2026-03-02T03:00Z")
    assert decide(DAILY, ahead, now, HOUR) == Turn(Wait(due), now)
    assert decide(DAILY, now, due, HOUR).act == Run(due)


@pytest.mark.parametrize("back", [timedelta(microseconds=1), SECOND, MINUTE])
def test_a_clock_that_is_set_back_by_up_to_a_minute_starts_nothing_again(back: timedelta) -> None:
    began = NOW + SECOND / 2
    assert decide(DAILY, began, began - back, HOUR) == Turn(Wait(NOW + DAY), began)


def test_after_a_jump_of_years_the_count_says_at_least_and_the_last_instant_is_still_right() -> None:
    now = NOW + 36500 * DAY + SECOND
    assert fires(EVERY_MINUTE, NOW, now) == Fires(COUNTED, now - SECOND)
    assert decide(EVERY_MINUTE, NOW, now, MINUTE).act == Run(now - SECOND)
    assert fires(DAILY, NOW, now) == Fires(COUNTED, now - SECOND)
    assert fires(Schedule("0 3 29 2 *", "UTC"), NOW, now) == Fires(24, at("2124-02-29T03:00Z"))


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_count_is_exact_up_to_its_end(more: int) -> None:
    last = NOW + (COUNTED + more) * MINUTE
    assert fires(EVERY_MINUTE, NOW, last) == Fires(min(COUNTED, COUNTED + more), last)


def test_between_two_instants_without_a_run_none_is_counted() -> None:
    assert fires(DAILY, NOW, NOW + DAY - SECOND) is None
    assert fires(DAILY, NOW, NOW) is None
    assert fires(DAILY, NOW, YESTERDAY) is None


schedules = st.builds(
    Schedule,
    st.sampled_from(["0 3 * * *", "30 2 * * *", "30 0 3 * * *", "0 * * * *", "*/20 * * * *", "17 */7 * * 1,4"]),
    st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Europe/Moscow"]),
)
starts = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  bounds have none
graces = st.timedeltas(SECOND, DAY)
leaps = st.timedeltas(timedelta(0), 3 * DAY) | st.timedeltas(timedelta(0), 2 * HOUR) | st.timedeltas(-MINUTE, MINUTE)


def one_by_one(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    found = []
    while (after := schedule.next_after(after)) <= until:
        found.append(after)
    return found


@pytest.mark.req("H-01")
@given(schedule=schedules, start=starts, grace=graces, moves=st.lists(leaps, max_size=12))
def test_whatever_the_clock_does_no_run_takes_place_twice_and_none_is_skipped_without_being_counted(
    schedule: Schedule, start: datetime, grace: timedelta, moves: list[timedelta]
) -> None:
    now, latest, accounted = start, start, start - grace
    ran: list[datetime] = []
    dealt_with: list[datetime] = []
    for move in moves:
        now = max(now + move, latest - MINUTE)  # the clock may go back, by a minute in all
        latest = max(latest, now)
        turn = decide(schedule, accounted, now, grace)
        due = one_by_one(schedule, accounted, turn.accounted)
        dealt_with += due
        match turn.act:
            case Wait(until):
                assert due == []
                assert until == schedule.next_after(accounted) > now
            case Run(last):
                assert last == due[-1]
                assert now - grace <= last <= now
                ran.append(last)
            case Miss(passed):
                assert passed == Fires(len(due), due[-1])
                assert due[-1] < now - grace
        assert turn.accounted >= accounted
        accounted = turn.accounted
        assert schedule.next_after(accounted) > now

    assert ran == sorted(set(ran))
    assert dealt_with == one_by_one(schedule, start - grace, accounted)


@given(schedule=schedules, start=starts, grace=graces, back=st.timedeltas(MINUTE + SECOND, 1000 * DAY))
def test_a_clock_set_back_by_more_than_a_minute_never_blocks(
    schedule: Schedule, start: datetime, grace: timedelta, back: timedelta
) -> None:
    turn = decide(schedule, start, start - back, grace)
    assert turn == Turn(Wait(schedule.next_after(start - back)), start - back)


@given(schedule=schedules, after=starts, length=st.timedeltas(timedelta(0), 60 * DAY))
@settings(max_examples=50)
def test_the_last_run_is_found_by_halving_just_as_by_going_one_by_one(
    schedule: Schedule, after: datetime, length: timedelta
) -> None:
    found = one_by_one(schedule, after, after + length)
    expected = Fires(min(len(found), COUNTED), found[-1]) if found else None
    assert fires(schedule, after, after + length) == expected


class Hurry(Stop):
    """A stop on which nobody waits: the clock has moved on instead."""

    def __init__(self, clock: StandingClock) -> None:
        super().__init__()
        self._clock = clock
        self._moving = threading.Lock()
        self.waits: list[timedelta] = []

    def wait(self, at_most: timedelta) -> bool:
        with self._moving:
            self._clock.at += at_most
            self.waits.append(at_most)
        return self.requested


def on(job: Job, schedule: Schedule) -> Job:
    return replace(job, schedule=schedule)


Watch = Callable[[Job], object]


class Night:
    """One worker on a clock of its own, which ends when each of its jobs has run so many times."""

    def __init__(self, start: datetime, runs: int) -> None:
        self.clock = StandingClock(start)
        self.stop = Hurry(self.clock)
        self.facts: list[Fact] = []
        self.began: list[tuple[str, datetime]] = []
        self._runs = runs

    def pass_by(self, jobs: Sequence[Job], meanwhile: Watch = lambda _: None, grace: timedelta = HOUR) -> None:
        def run(job: Job) -> RunReport:
            self.began.append((job.name, self.clock.at))
            counts = Counter(name for name, _ in self.began)
            if all(counts[job.name] >= self._runs for job in jobs):
                self.stop.request()
            came_of_it = meanwhile(job)
            return came_of_it if isinstance(came_of_it, RunReport) else finished(job).report

        left = work(jobs, run, stop=self.stop, clock=self.clock, observe=self.facts.append, grace=grace)
        assert left == []

    @property
    def times(self) -> list[datetime]:
        return [began for _, began in self.began]


@pytest.mark.req("A-08", "H-01")
def test_a_job_runs_at_every_instant_of_its_schedule_and_says_when_the_next_one_is() -> None:
    night = Night(NOW - 5 * HOUR, runs=3)
    moscow = on(ACTIVITY, Schedule("0 0 3 * * *", "Europe/Moscow"))

    night.pass_by([moscow])

    midnights = [at("2026-03-01T00:00Z") + number * DAY for number in range(3)]
    assert night.times == midnights
    assert night.facts == [RunScheduled(ACTIVITY.name, due, "Europe/Moscow") for due in midnights]


def test_the_wall_clock_is_read_at_least_every_minute() -> None:
    night = Night(NOW + SECOND / 2, runs=1)

    night.pass_by([on(GUEST, HOURLY)], grace=SECOND / 4)

    assert max(night.stop.waits) == MINUTE
    assert sum(night.stop.waits, timedelta(0)) == HOUR - SECOND / 2


@pytest.mark.req("H-01")
def test_what_came_due_within_the_grace_before_the_start_runs_at_the_start_and_the_next_one_is_told_before() -> None:
    night = Night(NOW + HOUR - SECOND, runs=2)

    night.pass_by([on(GUEST, DAILY)])

    assert night.times == [NOW + HOUR - SECOND, NOW + DAY]
    told = RunScheduled(GUEST.name, NOW + DAY, "UTC")
    assert night.facts == [CatchingUp(GUEST.name, NOW, "UTC", HOUR - SECOND), told, told]


def test_what_came_due_the_whole_grace_before_the_start_does_not_run() -> None:
    night = Night(NOW + HOUR, runs=1)
    night.pass_by([on(GUEST, DAILY)])
    assert night.times == [NOW + DAY]


def test_what_comes_due_during_a_run_is_missed_and_the_next_run_is_on_the_grid() -> None:
    night = Night(NOW + SECOND, runs=2)

    def take_long(_: Job) -> None:
        night.clock.at += timedelta(seconds=130)

    night.pass_by([on(GUEST, EVERY_MINUTE)], take_long, grace=SECOND / 2)

    assert night.times == [NOW + MINUTE, NOW + 4 * MINUTE]
    assert night.facts == [
        RunScheduled(GUEST.name, NOW + MINUTE, "UTC"),
        RunsMissed(GUEST.name, 2, NOW + 3 * MINUTE, MissReason.OVERLAP),
        RunScheduled(GUEST.name, NOW + 4 * MINUTE, "UTC"),
        RunsMissed(GUEST.name, 2, NOW + 6 * MINUTE, MissReason.OVERLAP),
    ]


class Jumping(Hurry):
    """After the first wait the clock is somewhere else."""

    def __init__(self, clock: StandingClock, jump: timedelta) -> None:
        super().__init__(clock)
        self._jump = jump

    def wait(self, at_most: timedelta) -> bool:
        if not self.waits:
            self._clock.at += self._jump
        return super().wait(at_most)


def test_a_process_that_slept_over_several_runs_makes_up_for_them_with_one() -> None:
    night = Night(NOW + MINUTE, runs=2)
    night.stop = Jumping(night.clock, 5 * HOUR)

    night.pass_by([on(GUEST, HOURLY)], grace=5 * MINUTE)

    assert night.times == [NOW + MINUTE, NOW + 5 * HOUR + 2 * MINUTE]


def test_a_process_that_slept_for_too_long_says_what_it_missed_and_goes_on() -> None:
    night = Night(NOW + MINUTE, runs=1)
    night.stop = Jumping(night.clock, 5 * HOUR)

    night.pass_by([on(GUEST, HOURLY)], grace=SECOND)

    assert night.times == [NOW + 6 * HOUR]
    assert night.facts == [
        RunScheduled(GUEST.name, NOW + HOUR, "UTC"),
        RunsMissed(GUEST.name, 5, NOW + 5 * HOUR, MissReason.LATE),
        RunScheduled(GUEST.name, NOW + 6 * HOUR, "UTC"),
    ]


def test_a_clock_that_goes_back_by_days_moves_the_next_run_back_with_it() -> None:
    night = Night(NOW + MINUTE, runs=1)
    night.stop = Jumping(night.clock, -3 * DAY)

    night.pass_by([on(GUEST, DAILY)], grace=SECOND)

    assert night.times == [NOW - 2 * DAY]
    assert night.facts == [RunScheduled(GUEST.name, due, "UTC") for due in (NOW + DAY, NOW - 2 * DAY)]


def test_a_clock_that_goes_back_by_seconds_while_a_job_runs_starts_it_only_once() -> None:
    night = Night(NOW - SECOND, runs=2)

    def go_back(_: Job) -> None:
        night.clock.at -= timedelta(seconds=30)

    night.pass_by([on(GUEST, DAILY)], go_back)

    assert night.times == [NOW, NOW + DAY]


def unreachable(job: Job) -> RunReport:
    return finished(job, Outcome.FAILED, error=UNREACHABLE).report


@pytest.mark.req("H-03")
def test_a_run_that_never_reached_its_database_takes_place_again_after_doubling_waits_within_the_grace() -> None:
    night = Night(NOW - SECOND, runs=5)

    night.pass_by([on(GUEST, DAILY)], unreachable, grace=timedelta(seconds=110))

    tries = [NOW + SECOND * seconds for seconds in (0, 15, 45, 105)]
    assert night.times == [*tries, NOW + DAY]
    waits = [fact for fact in night.facts if isinstance(fact, RetryAwaited)]
    assert waits == [
        RetryAwaited(GUEST.name, RUN, UNREACHABLE, attempt, timedelta(seconds=seconds))
        for attempt, seconds in ((1, 15), (2, 30), (3, 60))
    ]


@pytest.mark.req("H-03")
def test_a_run_that_reaches_its_database_at_last_does_not_take_place_again() -> None:
    night = Night(NOW - SECOND, runs=4)

    night.pass_by([on(GUEST, DAILY)], lambda job: unreachable(job) if len(night.began) < 3 else None)

    assert night.times == [NOW, NOW + 15 * SECOND, NOW + 45 * SECOND, NOW + DAY]


@pytest.mark.req("H-03")
def test_a_run_that_comes_due_before_the_next_attempt_takes_its_place_and_the_waits_begin_anew() -> None:
    night = Night(NOW + SECOND, runs=5)

    night.pass_by([on(GUEST, EVERY_MINUTE)], unreachable)

    assert night.times == [NOW + SECOND * seconds for seconds in (1, 16, 46, 60, 75)]


@pytest.mark.parametrize(
    "report",
    [
        finished(GUEST, Outcome.FAILED, error=FOREIGN_KEY),
        finished(GUEST, Outcome.REFUSED, error=UNREACHABLE),
        finished(GUEST, Outcome.FAILED, left=Backlog(1, exact=True, oldest_age=None), error=UNREACHABLE),
    ],
    ids=["another error", "refused", "connected before"],
)
def test_a_run_that_reached_its_database_or_failed_for_another_reason_waits_for_its_schedule(
    report: RunFinished,
) -> None:
    night = Night(NOW - SECOND, runs=2)

    night.pass_by([on(GUEST, DAILY)], lambda _: report.report)

    assert night.times == [NOW, NOW + DAY]


def test_a_clock_that_goes_back_by_seconds_before_another_attempt_starts_it_only_once() -> None:
    night = Night(NOW - SECOND, runs=3)

    def fail_once_and_go_back(job: Job) -> RunReport | None:
        if len(night.began) > 1:
            return None
        night.clock.at -= timedelta(seconds=30)
        return unreachable(job)

    night.pass_by([on(GUEST, DAILY)], fail_once_and_go_back)

    assert night.times == [NOW, NOW - 15 * SECOND, NOW + DAY]


def test_a_clock_that_goes_back_by_days_before_another_attempt_leaves_it_to_the_schedule() -> None:
    night = Night(NOW - SECOND, runs=2)

    def fail_and_go_back(job: Job) -> RunReport:
        night.clock.at -= 3 * DAY
        return unreachable(job)

    night.pass_by([on(GUEST, DAILY)], fail_and_go_back)

    assert night.times == [NOW, NOW - 2 * DAY]


def test_a_process_that_slept_past_the_grace_makes_no_other_attempt() -> None:
    night = Night(NOW + SECOND, runs=2)
    night.stop = Jumping(night.clock, 5 * HOUR)

    night.pass_by([on(GUEST, DAILY)], unreachable, grace=MINUTE)

    assert night.times == [NOW + SECOND, NOW + DAY]


@given(
    failed=st.integers(1, 12),
    late=st.timedeltas(timedelta(0), DAY),
    grace=st.timedeltas(SECOND, DAY),
    schedule=st.sampled_from([DAILY, HOURLY, EVERY_MINUTE]),
)
def test_another_attempt_is_never_later_than_the_grace_nor_than_the_next_run(
    failed: int, late: timedelta, grace: timedelta, schedule: Schedule
) -> None:
    now = NOW + late
    attempt = again(schedule, NOW, now, failed=failed, grace=grace, first_wait=FIRST_WAIT)
    at = now + FIRST_WAIT * 2 ** (failed - 1)
    if at - NOW <= grace and fires(schedule, now, at) is None:
        assert attempt == Again(NOW, at, failed + 1)
    else:
        assert attempt is None


@pytest.mark.req("H-02", "H-03")
def test_a_stop_wakes_a_job_that_waits_for_another_attempt() -> None:
    stop, clock = Waiting(1), SystemClock()
    just_over = clock.now() - MINUTE
    schedule = Schedule(f"{just_over.second} {just_over.minute} {just_over.hour} * * *", "UTC")

    assert left_when_stopped([on(GUEST, schedule)], unreachable, stop, clock) == []


@pytest.mark.req("F-14", "H-01")
def test_a_job_that_crashes_goes_on_is_logged_without_its_words_and_leaves_the_others_alone() -> None:
    log = io.StringIO()
    logs.configure("json", "info", log)
    night = Night(NOW + SECOND, runs=5)

    def crash(job: Job) -> None:
        if job.name == GUEST.name:
            raise RuntimeError("a note that nobody may read")

    night.pass_by([on(ACTIVITY, EVERY_MINUTE), on(GUEST, EVERY_MINUTE)], crash)

    names = [name for name, _ in night.began]
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert len(lines) == names.count(GUEST.name)
    told = {(line["level"], line["event"], line["job"], line["error_type"], line["place"]) for line in lines}
    assert told == {("error", "run crashed", GUEST.name, "RuntimeError", "crash")}
    assert "note" not in log.getvalue()


@pytest.mark.req("H-01")
def test_two_jobs_run_at_once_and_one_job_never_twice_at_once() -> None:
    both = threading.Barrier(2)
    running: list[str] = []
    twice: list[str] = []
    night = Night(NOW + SECOND, runs=5)

    def meet(job: Job) -> None:
        if job.name in running:
            twice.append(job.name)
        running.append(job.name)
        if len(night.began) <= 2:
            both.wait()  # breaks nothing only if the other one runs meanwhile
        running.remove(job.name)

    night.pass_by([on(ACTIVITY, EVERY_MINUTE), on(GUEST, EVERY_MINUTE)], meet)

    assert twice == []


def never(job: Job) -> RunReport:
    raise AssertionError(job.name)


class Waiting(Stop):
    """Tells when somebody has begun to wait."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self.all_wait = threading.Barrier(jobs + 1)

    def wait(self, at_most: timedelta) -> bool:
        self.all_wait.wait()
        return super().wait(at_most)


def left_when_stopped(
    jobs: Sequence[Job], run: Callable[[Job], RunReport], stop: Waiting, clock: SystemClock
) -> list[str]:
    """Stop a worker once all of these jobs wait; what it had to leave running."""
    left: list[list[str]] = []

    def wait_in_vain() -> None:
        left.append(work(jobs, run, stop=stop, clock=clock, observe=lambda _: None, grace=HOUR))

    thread = threading.Thread(target=wait_in_vain)
    thread.start()
    stop.all_wait.wait()
    stop.request()
    thread.join()
    (names,) = left
    return names


@pytest.mark.req("H-02")
def test_jobs_that_wait_for_their_schedule_end_at_once_on_a_stop() -> None:
    stop, clock = Waiting(2), SystemClock()
    far = Schedule(f"0 0 {(clock.now() + 12 * HOUR).hour} * * *", "UTC")

    assert left_when_stopped([on(ACTIVITY, far), on(GUEST, far)], never, stop, clock) == []


@pytest.mark.req("H-02")
def test_without_a_job_that_waits_or_runs_there_is_nothing_to_stay_for() -> None:
    stop = Stop()
    stop.request()
    assert work([GUEST], never, stop=stop, clock=StandingClock(), observe=lambda _: None, grace=HOUR) == []


class FastClock(StandingClock):
    """Four seconds pass between two looks at it."""

    def monotonic(self) -> float:
        self.wait(4)
        return self.seconds


@pytest.mark.req("H-02")
def test_a_run_that_does_not_end_although_it_was_told_to_give_up_is_left() -> None:
    stop, goes_on = Stop(), threading.Event()

    def hang(job: Job) -> RunReport:
        stop.force()
        goes_on.wait()
        return finished(job).report

    left = work([on(GUEST, DAILY)], hang, stop=stop, clock=FastClock(NOW), observe=lambda _: None, grace=HOUR)

    assert left == [GUEST.name]
    goes_on.set()
