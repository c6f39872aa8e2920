"""The result of a run as the object that `run --json` prints (design section 5)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pgretention.errors import FaultKind
from pgretention.report import Backlog, Outcome, RunError, RunReport

REPORT = RunReport(
    job="activity-retention",
    run_id="r1",
    outcome=Outcome.COMPLETED,
    cutoff=datetime(2025, 11, 30, 3, 0, 0, 1, tzinfo=UTC),
    deleted={"user_activity.action_events": 7, "user_activity.sessions": 2},
    batches=1,
    has_more=False,
    backlog_before=Backlog(2, exact=True, oldest_age=timedelta(days=400)),
    backlog_after=Backlog(0, exact=True, oldest_age=None),
    duration=timedelta(seconds=1, microseconds=500),
)


@pytest.mark.req("A-15")
def test_a_completed_run_as_json() -> None:
    assert json.loads(json.dumps(REPORT.as_json())) == {
        "job": "activity-retention",
        "run_id": "r1",
        "outcome": "completed",
        "cutoff": "2025-11-30T03:00:00.000001+00:00",
        "deleted": {"user_activity.action_events": 7, "user_activity.sessions": 2},
        "batches": 1,
        "has_more": False,
        "backlog_before": 2,
        "backlog_after": 0,
        "backlog_exact": True,
        "duration_seconds": 1.0005,
        "error": None,
    }


@pytest.mark.req("A-15")
def test_a_failed_run_as_json_says_why() -> None:
    error = RunError(FaultKind.FOREIGN_KEY, "a foreign key", "23503", "fk", ("a", "b"), 3)

    assert replace(REPORT, error=error).as_json()["error"] == {
        "kind": "foreign_key",
        "sqlstate": "23503",
        "constraint": "fk",
        "message": "a foreign key",
        "keys": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("before", "after", "exact"),
    [
        (Backlog(1, exact=True, oldest_age=None), Backlog(1, exact=False, oldest_age=None), False),
        (Backlog(1, exact=False, oldest_age=None), Backlog(1, exact=True, oldest_age=None), False),
        (Backlog(1, exact=True, oldest_age=None), None, True),
        (None, None, False),
    ],
)
def test_the_backlog_is_exact_when_everything_measured_was_counted(
    before: Backlog | None,
    after: Backlog | None,
    exact: bool,  # noqa: FBT001  a table of cases
) -> None:
    result = replace(REPORT, backlog_before=before, backlog_after=after).as_json()

    assert result["backlog_exact"] is exact
    assert result["backlog_after"] == (None if after is None else after.rows)


def test_a_run_that_never_got_so_far_has_neither_cutoff_nor_backlog() -> None:
    result = replace(REPORT, cutoff=None, backlog_before=None, backlog_after=None).as_json()

    assert (result["cutoff"], result["backlog_before"], result["backlog_after"]) == (None, None, None)
