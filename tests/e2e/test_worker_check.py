"""The worker looks before it deletes: a job in which a check finds an error does not run, the others do."""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from tests.support.command import Command
from tests.support.planted import old_favorites, old_sessions
from tests.support.rows import FAVORITES, SESSIONS, ids
from tests.support.workers import ACTIVITY, GUESTS, Worker, every_minute, just_now

Admin = Connection[TupleRow]

CASCADE = "CREATE TABLE public.notes (session uuid PRIMARY KEY REFERENCES user_activity.sessions ON DELETE CASCADE)"


def test_a_job_with_an_error_is_refused_until_it_is_put_right_and_the_other_one_goes_on(
    command: Command, admin: Admin
) -> None:
    old = set(old_sessions(admin, 2))
    old_favorites(admin, 2)
    admin.execute(CASCADE)
    worker = Worker(command, **every_minute(next_in=15))

    finding = worker.until_said("finding", job=ACTIVITY)
    assert (finding["level"], finding["severity"], finding["code"]) == ("error", "error", "undeclared-cascade")
    refused = worker.until_said("refused", job=ACTIVITY)
    assert "public.notes (session)" in refused["reasons"]
    assert "`pgretention check activity-retention`" in refused["reasons"]
    worker.until_said("job completed", job=GUESTS, deletedTotal=2)
    assert (ids(admin, SESSIONS), ids(admin, FAVORITES)) == (old, set())

    admin.execute(finding["fix"].encode())
    worker.until_said("completed", job=ACTIVITY, deleted_sessions=2)
    assert ids(admin, SESSIONS) == set()
    assert worker.end().code == 0


def test_what_is_no_error_is_told_and_keeps_nothing_from_running(command: Command, admin: Admin) -> None:
    old_sessions(admin, 2)
    admin.execute(CASCADE.replace("CASCADE", "RESTRICT").encode())
    worker = Worker(command, ACTIVITY, **just_now())

    finding = worker.until_said("finding", job=ACTIVITY)
    worker.until_said("completed", job=ACTIVITY, deleted_sessions=2)

    assert (finding["level"], finding["code"]) == ("warning", "undeclared-reference")
    assert worker.end().code == 0


def test_a_database_in_which_nothing_is_wrong_is_not_spoken_of(command: Command) -> None:
    worker = Worker(command, **just_now())
    worker.until_said("completed", job=ACTIVITY)
    worker.until_said("job completed", job=GUESTS)
    assert worker.end().code == 0
    assert worker.said("finding") == worker.said("check failed") == []
