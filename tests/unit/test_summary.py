from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from pgretention.errors import FaultKind
from pgretention.job import Limits
from pgretention.report import Outcome, RunError
from pgretention.sinks import summary
from tests.support.facts import (
    ABOUT,
    ACTIVITY,
    DRAINED,
    FOREIGN_KEY,
    GUEST,
    REASONS,
    RUN,
    SOME_LEFT,
    finished,
    held_elsewhere,
)


def lines(text: str) -> str:
    """The text of a test, with the run's id as its last line."""
    return f"{text.strip()}\n  run       {RUN}"


def test_a_drained_run_says_what_it_deleted_and_that_nothing_is_left() -> None:
    report = finished(ACTIVITY, rows=4000, batches=2, left=DRAINED).report
    assert summary.text(report, ACTIVITY.limits) == lines("""
activity-retention: completed
  deleted   12,000 user_activity.action_events
             8,000 user_activity.property_object_views
             4,000 user_activity.sessions
  in        2 batches, 12.3 s
  cutoff    2025-03-01 03:00:00 UTC
  left      nothing expired
""")


def test_a_run_that_found_nothing_says_so() -> None:
    assert summary.text(finished(GUEST, left=DRAINED).report) == lines("""
guest-favorites-cleanup: completed, nothing was expired
  cutoff    2025-03-01 03:00:00 UTC
  left      nothing expired
""")


def test_rows_that_a_drained_run_left_are_in_use_by_somebody_else() -> None:
    report = finished(GUEST, rows=10, batches=1, left=SOME_LEFT).report
    assert summary.text(report) == lines("""
guest-favorites-cleanup: completed
  deleted   10 favorites.favorites
  in        1 batch, 12.3 s
  cutoff    2025-03-01 03:00:00 UTC
  left      4,000 expired favorites.favorites, the oldest 380 days old, in use by somebody else
  next      the next run takes what is left
""")


def test_a_run_that_found_only_rows_in_use_does_not_say_that_nothing_was_expired() -> None:
    said = summary.text(finished(GUEST, left=SOME_LEFT).report)
    assert said.startswith("guest-favorites-cleanup: completed, nothing was deleted\n")


def test_a_run_that_reached_the_batch_limit_names_it_and_the_runs_still_needed() -> None:
    report = finished(ACTIVITY, Outcome.LIMIT_REACHED, rows=1500, batches=2, left=SOME_LEFT).report
    assert summary.text(report, Limits(750, timedelta(minutes=30), 2)) == lines("""
activity-retention: ended at a limit with rows left
  deleted   4,500 user_activity.action_events
            3,000 user_activity.property_object_views
            1,500 user_activity.sessions
  in        2 batches, 12.3 s
  cutoff    2025-03-01 03:00:00 UTC
  left      4,000 expired user_activity.sessions, the oldest 380 days old
  why       MaxBatchesPerRun (2) is reached
  next      the next run goes on from here; 3 more runs like this empty it
            should the backlog grow, raise MaxBatchesPerRun, MaxRunDuration or BatchSize
""")


def test_a_run_that_reached_the_time_limit_names_it_and_marks_an_estimate() -> None:
    report = finished(GUEST, Outcome.LIMIT_REACHED, rows=4000, batches=4, left=ABOUT, duration=timedelta(minutes=10))
    assert summary.text(report.report, GUEST.limits) == lines("""
guest-favorites-cleanup: ended at a limit with rows left
  deleted   4,000 favorites.favorites
  in        4 batches, 00:10:00
  cutoff    2025-03-01 03:00:00 UTC
  left      about 4,000 expired favorites.favorites
  why       MaxRunDuration (00:10:00) is reached
  next      the next run goes on from here; about 1 more run like this empties it
            should the backlog grow, raise MaxRunDuration
""")


def test_without_the_limits_of_the_job_the_setting_is_named_alone() -> None:
    report = finished(GUEST, Outcome.LIMIT_REACHED, rows=4000, batches=4, left=ABOUT).report
    assert "\n  why       MaxRunDuration is reached\n" in summary.text(report)


def test_a_stopped_run_says_that_it_was_asked_to() -> None:
    report = finished(GUEST, Outcome.STOPPED, rows=10, batches=1, left=SOME_LEFT).report
    assert summary.text(report) == lines("""
guest-favorites-cleanup: stopped with rows left
  deleted   10 favorites.favorites
  in        1 batch, 12.3 s
  cutoff    2025-03-01 03:00:00 UTC
  left      4,000 expired favorites.favorites, the oldest 380 days old
  why       a stop was asked for
  next      the next run goes on from here
""")


def test_a_skipped_run_says_who_does_the_work() -> None:
    assert summary.text(held_elsewhere(ACTIVITY).report) == lines("""
activity-retention: skipped, another run holds the lock
  lock      held by process 4711 (psql, role ann)
  next      nothing: the other run does the work; if there is none, look for a session that kept the lock
""")


@pytest.mark.req("A-07")
def test_a_refused_run_says_why() -> None:
    assert summary.text(finished(ACTIVITY, Outcome.REFUSED, error=REASONS).report) == lines(f"""
activity-retention: refused, nothing was deleted
  why       {REASONS.message}
  next      put that right and run again
""")


@pytest.mark.req("A-12")
def test_a_failed_run_says_what_stays_deleted_and_which_rows_failed() -> None:
    error = replace(FOREIGN_KEY, keys=tuple("abcde"))
    report = finished(GUEST, Outcome.FAILED, rows=10, batches=1, left=SOME_LEFT, error=error).report
    assert summary.text(report) == lines(f"""
guest-favorites-cleanup: failed; what is counted here stays deleted
  deleted   10 favorites.favorites
  in        1 batch, 12.3 s
  cutoff    2025-03-01 03:00:00 UTC
  left      4,000 expired favorites.favorites, the oldest 380 days old
  why       {error.message}
            SQLSTATE 23503, constraint invoices_session_id_fkey
  rows      a, b, c and 2 more; --json lists them all
  next      decide about the rows that still refer to this batch, or add their table to the policy
""")


def test_a_partial_run_names_the_rows_it_could_not_delete() -> None:
    report = finished(GUEST, Outcome.PARTIAL, rows=10, batches=1, left=SOME_LEFT, error=FOREIGN_KEY).report
    said = summary.text(report)
    assert said.startswith("guest-favorites-cleanup: deleted all but the rows below\n")
    assert "\n  rows      a1, b2\n" in said


def test_a_backlog_that_could_not_be_measured_is_called_unknown() -> None:
    report = finished(GUEST, Outcome.FAILED, rows=10, batches=1, left=SOME_LEFT, error=FOREIGN_KEY).report
    said = summary.text(replace(report, backlog_after=None))
    assert "\n  left      unknown, it could not be measured\n" in said


@pytest.mark.parametrize("kind", FaultKind)
def test_whatever_goes_wrong_there_is_something_to_do_about_it(kind: FaultKind) -> None:
    report = finished(GUEST, Outcome.FAILED, error=RunError(kind, "it went wrong")).report
    _, why, advice, _ = summary.text(report).splitlines()
    assert why == "  why       it went wrong"
    assert len(advice.removeprefix("  next      ")) > 20


def test_a_key_can_neither_break_a_line_nor_move_the_cursor() -> None:
    error = replace(FOREIGN_KEY, keys=("a\nb", "\x1b[2J", "ключ"))
    said = summary.text(finished(GUEST, Outcome.FAILED, error=error).report)
    assert r"  rows      a\nb, \x1b[2J, ключ" in said.splitlines()
