"""What the page says of a job in trouble, and of one that is not: the word, whether it needs somebody, what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from pgretention.errors import FaultKind
from pgretention.job import Job
from pgretention.page import cards, runbooks
from pgretention.page.situation import Situation
from pgretention.page.verdict import Tone, Verdict, judge
from pgretention.preflight import Finding, Severity
from pgretention.readiness import Away
from pgretention.report import Backlog, Limit, MissReason, Outcome, RunError, RunScheduled, RunsMissed
from tests.page.states import (
    ACTIVITY,
    CASCADE,
    CASCADING,
    DAY,
    DRAINED,
    GUESTS,
    HOUR,
    NOW,
    REPLICA,
    SECOND,
    STATES,
    UNREACHABLE,
    Planted,
    overdue,
)


def situation(planted: Planted, job: Job = ACTIVITY) -> Situation:
    return planted.watched.situation(job)


def verdicts(state: str) -> tuple[Verdict, Verdict]:
    """Of activity-retention and of guest-favorites-cleanup."""
    planted = STATES[state]()
    return judge(situation(planted)), judge(situation(planted, GUESTS))


@pytest.mark.parametrize(
    ("state", "activity", "guests"),
    [
        ("nothing", ("Waiting", Tone.IDLE, None), ("Waiting", Tone.IDLE, None)),
        ("once", ("Fine", Tone.GOOD, None), ("Fine", Tone.GOOD, None)),
        ("fine", ("Fine", Tone.GOOD, None), ("Fine", Tone.GOOD, None)),
        ("much", ("Fine", Tone.GOOD, None), ("Fine", Tone.GOOD, None)),
        ("failing", ("Incomplete", Tone.WARNING, "run-fails"), ("Unreachable", Tone.BAD, "no-run")),
        ("refused", ("Refused", Tone.BAD, "run-refused"), ("Behind", Tone.WARNING, "backlog-grows")),
        ("running", ("Running", Tone.BUSY, None), ("Draining", Tone.BUSY, None)),
        ("held", ("Blocked", Tone.BAD, "lock-not-released"), ("Missed", Tone.WARNING, "no-run")),
        ("off", ("Dead", Tone.BAD, "no-run"), ("Elsewhere", Tone.IDLE, None)),
        ("ending", ("Stopping", Tone.IDLE, None), ("Stopping", Tone.IDLE, None)),
    ],
)
def test_each_state_has_its_verdict(
    state: str, activity: tuple[str, Tone, str | None], guests: tuple[str, Tone, str | None]
) -> None:
    assert [(each.word, each.tone, each.runbook) for each in verdicts(state)] == [activity, guests]


@pytest.mark.parametrize("state", STATES)
def test_whatever_needs_somebody_says_why_what_to_do_and_where_to_read_on(state: str) -> None:
    for verdict in verdicts(state):
        assert verdict.why.endswith(".")
        assert len(verdict.word.split()) == 1
        if verdict.needs_somebody:
            assert verdict.act.endswith(".")
            assert verdict.runbook is not None
            assert runbooks.runbook(verdict.runbook) is not None


def test_a_failure_says_the_error_its_remedy_and_when_it_tries_again() -> None:
    planted = Planted()
    planted.run(ACTIVITY, NOW - HOUR, Outcome.FAILED, batches=3, error=UNREACHABLE)
    verdict = judge(situation(planted))
    assert (verdict.word, verdict.tone, verdict.runbook) == ("Failing", Tone.BAD, "run-fails")
    assert verdict.why == "The last run failed after 17,532 rows: cannot connect: connection refused."
    assert verdict.act == "See that the server can be reached, and that user, password and database are right."


def test_a_failure_is_over_with_the_next_run_that_succeeds() -> None:
    planted = Planted()
    planted.run(ACTIVITY, NOW - DAY, Outcome.FAILED, error=UNREACHABLE)
    planted.run(ACTIVITY, NOW - HOUR, left=DRAINED)
    assert judge(situation(planted)).word == "Fine"


def test_an_error_that_a_look_finds_is_told_without_promising_that_a_run_would_be_refused() -> None:
    planted = STATES["fine"]()
    planted.seen(ACTIVITY, DRAINED, CASCADE, REPLICA)
    verdict = judge(situation(planted))
    assert (verdict.word, verdict.tone, verdict.runbook) == ("Unsound", Tone.WARNING, "run-refused")
    assert verdict.why.startswith("The last look at its database found an error: public.notes (session_id): ")
    planted.seen(ACTIVITY, DRAINED, REPLICA)
    verdict = judge(situation(planted))
    assert (verdict.word, verdict.tone) == ("Fine", Tone.GOOD)
    assert verdict.why.endswith(" Among the findings is 1 warning.")


@pytest.mark.req("A-20")
@pytest.mark.parametrize(
    ("job", "promise"),
    [(ACTIVITY, timedelta(hours=24, minutes=30)), (GUESTS, timedelta(days=1))],
    ids=lambda v: str(v)[:8],
)
def test_behind_is_what_is_older_than_is_promised(job: Job, promise: timedelta) -> None:
    planted = Planted()
    looked = timedelta(minutes=7)  # ago, and overdue goes on meanwhile
    for by, word in (promise - looked, "Waiting"), (promise - looked + SECOND, "Behind"):
        planted.seen(job, overdue(job, 5, by))
        assert judge(situation(planted, job)).word == word


@pytest.mark.parametrize(
    ("second", "why"), [(6000, "The backlog grew by 1,000 rows."), (5000, "The backlog does not fall.")]
)
@pytest.mark.parametrize(
    ("limit", "act"),
    [
        (Limit.BATCHES, "MaxBatchesPerRun, after 200 batches of 5,000: raise it or BatchSize, and restart the worker."),
        (Limit.DURATION, "MaxRunDuration, after 30 min: raise it or Workers, or see why batches are slow."),
    ],
)
def test_a_backlog_that_does_not_fall_names_the_limit_that_ends_the_runs(
    second: int, why: str, limit: Limit, act: str
) -> None:
    planted = Planted()
    for days, rows in (2, 5000), (1, second):
        left = overdue(ACTIVITY, rows, 9 * DAY)
        planted.run(ACTIVITY, NOW - days * DAY, Outcome.LIMIT_REACHED, left=left, limit=limit)
    verdict = judge(situation(planted))
    assert (verdict.word, verdict.act) == ("Behind", f"Runs end at {act}")
    assert verdict.why == f"The oldest row is 10 days overdue, and 1 day 30 min at most are promised. {why}"


def test_a_trigger_that_raises_is_named_with_where_its_words_are() -> None:
    planted = Planted()
    raised = RunError(FaultKind.DATABASE, "RaiseException: the server refused the statement", sqlstate="P0001")
    for hours in 3, 2, 1:
        planted.run(ACTIVITY, NOW - hours * HOUR, Outcome.FAILED, batches=0, error=raised)
    audit = Finding(Severity.WARNING, "trigger", "user_activity.sessions, trigger audit", "runs", "look")
    planted.seen(ACTIVITY, DRAINED, audit)
    verdict = judge(situation(planted))
    assert verdict.why == (
        "The last run failed after 0 rows: RaiseException: the server refused the statement (SQLSTATE P0001)."
        " So it has been for 3 runs, since Wed 2 Dec 2026 06:30:00 UTC."
    )
    assert verdict.act.startswith("A trigger raised that, probably user_activity.sessions, trigger audit: ")


def test_a_backlog_that_falls_catches_up_and_needs_nobody() -> None:
    planted = Planted()
    for days, rows in (2, 6000), (1, 4000):
        left = overdue(ACTIVITY, rows, 9 * DAY)
        planted.run(ACTIVITY, NOW - days * DAY, Outcome.LIMIT_REACHED, left=left, limit=Limit.BATCHES)
    now = situation(planted)
    assert (now.draining, now.eta) == (True, 2 * DAY)
    assert now.runs_left == 2
    assert judge(now).word == "Draining"
    assert judge(now).why.endswith("The backlog falls: about 2 more runs like the last one will empty it.")
    assert fact_texts(planted)["Drained"].startswith("after about 2 more runs; ")


def test_of_one_run_nobody_can_tell_the_pace() -> None:
    planted = Planted()
    left = overdue(ACTIVITY, 5000, 9 * DAY)
    planted.run(ACTIVITY, NOW - DAY, Outcome.LIMIT_REACHED, left=left, limit=Limit.DURATION)
    now = situation(planted)
    assert (now.draining, now.eta) == (None, None)
    assert judge(now).act.startswith(
        "After one more run it can be told whether the backlog falls. Runs end at MaxRunDur"
    )


A_RUN = "process 12 (pgretention/activity-retention/0b9e7d2c, role retention)"
SOMEBODY = "process 4711 (psql, role ann)"


@pytest.mark.parametrize(
    ("holders", "word_on_time", "word_late"),
    [(A_RUN, "Fine", "Elsewhere"), (SOMEBODY, "Blocked", "Blocked"), (None, "Fine", "Blocked")],
)
def test_whoever_holds_the_lock_is_another_worker_or_in_the_way(
    holders: str | None, word_on_time: str, word_late: str
) -> None:
    planted = Planted()
    planted.run(ACTIVITY, NOW - HOUR, Outcome.SKIPPED, batches=0, holders=holders)
    for by, word in (HOUR, word_on_time), (2 * DAY, word_late):
        planted.seen(ACTIVITY, overdue(ACTIVITY, 5, by))
        assert judge(situation(planted)).word == word


def test_a_run_of_another_worker_that_never_ends_is_in_the_way_after_a_night() -> None:
    planted = Planted()
    planted.seen(ACTIVITY, overdue(ACTIVITY, 5, 9 * DAY))
    for nights in 3, 2, 1:
        planted.run(ACTIVITY, NOW - nights * DAY, Outcome.SKIPPED, batches=0, holders=A_RUN)
    verdict = judge(situation(planted))
    assert (verdict.word, verdict.tone, verdict.runbook) == ("Blocked", Tone.BAD, "lock-not-released")


@pytest.mark.parametrize(("before", "left"), [(900, 0), (500, 10)])
def test_what_came_after_a_run_that_left_little_is_not_said_to_drain(before: int, left: int) -> None:
    planted = Planted()
    for days, rows in (3, before), (2, left):
        backlog = overdue(ACTIVITY, rows, HOUR) if rows else DRAINED
        planted.run(ACTIVITY, NOW - days * DAY, left=backlog)
    planted.planned()
    planted.seen(ACTIVITY, overdue(ACTIVITY, 2_000_000, 35 * DAY))
    now = situation(planted)
    assert (now.draining, now.eta) == (None, None)
    verdict = judge(now)
    assert (verdict.word, verdict.runbook) == ("Behind", "backlog-grows")
    assert left or "It is due at Thu 3 Dec 2026 00:00:00 UTC." in verdict.act


def test_a_backlog_that_grows_is_behind_although_nobody_can_tell_how_old_it_is() -> None:
    planted = Planted()
    for days, rows in (2, 4_000_000), (1, 5_000_000):
        left = Backlog(rows, exact=False, oldest_age=None)
        planted.run(GUESTS, NOW - days * DAY, Outcome.LIMIT_REACHED, left=left, limit=Limit.DURATION)
    verdict = judge(situation(planted, GUESTS))
    assert (verdict.word, verdict.needs_somebody) == ("Behind", True)
    assert verdict.why.endswith("The backlog grew by 1,000,000 rows.")


def test_overdue_goes_on_while_nobody_looks() -> None:
    planted = Planted()
    left = overdue(ACTIVITY, 5, 20 * HOUR)
    planted.run(ACTIVITY, NOW - 3 * DAY, left=left)
    planted.unseen[ACTIVITY.name] = "cannot connect: connection refused"
    assert situation(planted).overdue == 3 * DAY + 20 * HOUR
    assert fact_texts(planted)["Backlog"].endswith("; to look again failed: cannot connect: connection refused")
    assert judge(situation(planted)).word == "Behind"


def test_a_refusal_whose_reason_is_gone_at_a_later_look_says_so() -> None:
    planted = Planted()
    planted.run(ACTIVITY, NOW - HOUR, Outcome.REFUSED, batches=0, error=CASCADING)
    planted.seen(ACTIVITY, DRAINED, CASCADE)
    assert judge(situation(planted)).act.startswith("Put right what the findings say")
    planted.seen(ACTIVITY, DRAINED)
    assert judge(situation(planted)).act == "It seems to be put right since: the next run will show."


def test_a_job_that_nobody_runs_here_claims_nothing_of_its_backlog() -> None:
    planted = STATES["off"]()
    elsewhere = situation(planted, GUESTS)
    assert (elsewhere.measured, elsewhere.overdue, elsewhere.draining) == (None, None, None)
    assert [fact.name for fact in cards.card(elsewhere).facts] == ["Database"]


def test_what_came_due_while_a_run_was_on_is_said() -> None:
    planted = Planted()
    planted.run(ACTIVITY, NOW - HOUR, left=DRAINED)
    planted.tell(NOW - HOUR, RunsMissed(ACTIVITY.name, 2, NOW - HOUR, MissReason.OVERLAP))
    verdict = judge(situation(planted))
    assert (verdict.word, verdict.tone) == ("Fine", Tone.GOOD)
    assert verdict.why.endswith(" 2 runs came due while it was still on, and did not take place.")


def test_while_a_run_is_on_the_next_one_comes_after_it() -> None:
    planted = Planted()
    planted.tell(NOW, RunScheduled(ACTIVITY.name, NOW - HOUR, "UTC"))
    planted.begin(ACTIVITY, NOW - HOUR)
    assert fact_texts(planted)["Next run"].startswith("after this one")


def test_a_database_that_is_away_comes_before_what_the_last_run_said() -> None:
    planted = STATES["fine"]()
    planted.run(ACTIVITY, NOW - HOUR, Outcome.FAILED, batches=0, error=UNREACHABLE)
    assert judge(situation(planted)).word == "Failing"
    planted.away[ACTIVITY.name] = Away(5 * HOUR, "cannot connect: connection refused")
    verdict = judge(situation(planted))
    assert (verdict.word, verdict.why) == (
        "Unreachable",
        "Its database was not seen for 5 h: cannot connect: connection refused.",
    )


def test_a_job_that_is_switched_off_names_its_switch() -> None:
    off = replace(situation(STATES["fine"]()), job=replace(ACTIVITY, enabled=False), here=False)
    verdict = judge(off)
    assert (verdict.word, verdict.act) == (
        "Off",
        "To run it, set ActivityRetention:Enabled to true and restart the worker.",
    )


def fact_texts(planted: Planted, job: Job = ACTIVITY) -> dict[str, str]:
    return {fact.name: f"{fact.text}; {fact.more}" for fact in cards.card(situation(planted, job)).facts}


def test_a_card_says_what_is_next_what_was_last_and_how_the_promise_is_kept() -> None:
    assert fact_texts(STATES["fine"]()) == {
        "Next run": "in 14 h; Thu 3 Dec 2026 03:00:00 Europe/Moscow (Thu 3 Dec 2026 00:00:00 UTC)",
        "Last run": "completed; 7 h ago, 46,752 rows of 3 tables in 8 batches in 9.0 s",
        "Backlog": "412 rows; expired as of 7 min ago",
        "Oldest expired row": "6 h overdue; at most 1 day 30 min are promised",
        "Drained": "by the next run; the last one left nothing",
        "Database": "host=db.internal dbname=app user=retention; ",
    }


@pytest.mark.parametrize("plant", [Planted, STATES["nothing"]])
def test_a_card_of_which_nothing_is_known_says_so(plant: Callable[[], Planted]) -> None:
    texts = fact_texts(plant())
    assert texts["Last run"] == "none yet; since this worker started"
    assert texts["Backlog"].startswith("not known yet")


def test_what_was_measured_last_counts_whoever_measured_it() -> None:
    planted = Planted()
    planted.seen(ACTIVITY, Backlog(7, exact=True, oldest_age=None))
    planted.run(ACTIVITY, NOW - DAY, left=DRAINED)
    assert fact_texts(planted)["Backlog"] == "7 rows; expired as of 7 min ago"
    planted.run(ACTIVITY, NOW - timedelta(minutes=1), left=DRAINED)
    assert fact_texts(planted)["Backlog"] == "0 rows; expired as of 60 s ago"
    planted.begin(ACTIVITY, NOW - timedelta(seconds=20), backlog=90)
    assert fact_texts(planted)["Backlog"] == "90 rows; expired as of 20 s ago"


def test_the_next_run_of_a_schedule_in_utc_is_said_once() -> None:
    planted = Planted()
    planted.tell(NOW, RunScheduled(GUESTS.name, NOW + HOUR, "UTC"))
    assert fact_texts(planted, GUESTS)["Next run"] == "in 60 min; Wed 2 Dec 2026 10:30:00 UTC"
