"""The look at a database between runs: what the page shows of it, under the least privileges, changing nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention import app, preview
from pgretention.app import Assignment
from pgretention.clock import SystemClock
from pgretention.errors import Fault
from pgretention.preflight import Severity
from pgretention.report import Backlog
from pgretention.stop import Stop
from pgretention.survey import Survey, Surveys, survey, surveying
from tests.databases import WORKER, Database
from tests.support.gates import until
from tests.support.planted import expired, plant
from tests.support.rows import SESSIONS

Admin = Connection[TupleRow]


def assignment(database: Database, name: str = app.JOB_NAMES[0]) -> Assignment:
    return replace(app.default(name), dsn=database.worker_dsn)


def look(database: Database, name: str = app.JOB_NAMES[0]) -> Survey:
    return survey(assignment(database, name), SystemClock(), Stop())


@pytest.mark.parametrize("name", app.JOB_NAMES)
def test_it_counts_what_sql_counts_and_shows_the_statements_of_a_run(
    database: Database, admin: Admin, name: str
) -> None:
    plant(admin)
    due = expired(admin)
    seen = look(database, name)

    root = str(app.default(name).job.policy.root)
    assert seen.backlog is not None
    assert (seen.backlog.rows, seen.backlog.exact) == (due[root], True)
    assert seen.backlog.oldest_age is not None
    assert seen.backlog.oldest_age > timedelta(days=365)
    assert seen.statements == preview.look(assignment(database, name).job, database.worker_dsn).statements
    assert [finding for finding in seen.findings if finding.severity is Severity.ERROR] == []
    assert expired(admin) == due


def test_it_has_the_foreign_keys_of_others_too(database: Database, admin: Admin) -> None:
    admin.execute("CREATE TABLE public.notes (session uuid REFERENCES user_activity.sessions ON DELETE CASCADE)")
    seen = look(database)
    found = {(str(key.table), key.columns, str(key.references), key.on_delete, key.indexed) for key in seen.references}
    events, views = "user_activity.action_events", "user_activity.property_object_views"
    assert found == {
        (events, ("session_id",), str(SESSIONS), "RESTRICT", True),
        (views, ("session_id",), str(SESSIONS), "RESTRICT", True),
        (events, ("property_object_view_id",), views, "SET NULL", True),
        (views, ("apply_filter_event_id",), events, "SET NULL", True),
        ("public.notes", ("session",), str(SESSIONS), "CASCADE", False),
    }


def test_of_tables_that_are_not_what_the_policy_says_it_has_the_findings(database: Database, admin: Admin) -> None:
    admin.execute("CREATE TABLE public.notes (session uuid REFERENCES user_activity.sessions ON DELETE CASCADE)")
    seen = look(database)
    assert (seen.statements, seen.cutoff, seen.backlog) == ({}, None, None)
    assert {finding.code for finding in seen.findings} >= {"undeclared-cascade"}


def test_where_the_role_may_not_count_it_has_the_rest(database: Database, admin: Admin) -> None:
    admin.execute(f"REVOKE SELECT (ended_at) ON user_activity.sessions FROM {WORKER}".encode())
    seen = look(database)
    assert seen.backlog is None
    assert len(seen.statements) == 3
    assert "missing-privilege" in {finding.code for finding in seen.findings}


def test_an_empty_table_has_an_empty_backlog(database: Database) -> None:
    assert look(database).backlog == Backlog(0, exact=True, oldest_age=None)


def test_a_database_that_is_away_is_a_fault_in_words_without_its_address(database: Database) -> None:
    away = replace(assignment(database), dsn="host=127.0.0.1 port=1 user=u password=nobody-may-know")
    with pytest.raises(Fault) as fault:
        survey(away, SystemClock(), Stop())
    assert "nobody-may-know" not in str(fault.value)
    with surveying([away], clock=SystemClock(), stop=Stop()) as surveys:
        until(lambda: surveys.failed(away.job.name) is not None)
        assert surveys.of(away.job.name) is None
        assert str(surveys.failed(away.job.name)).startswith("cannot connect")


def test_it_looks_on_its_own_until_a_stop(database: Database) -> None:
    stop, both = Stop(), [assignment(database, name) for name in app.JOB_NAMES]
    with surveying(both, clock=SystemClock(), stop=stop) as surveys:
        until(lambda: all(surveys.of(name) is not None for name in app.JOB_NAMES))
    assert stop.requested
    assert [surveys.failed(name) for name in app.JOB_NAMES] == [None, None]


def test_what_was_seen_stays_when_a_later_look_fails(database: Database) -> None:
    stop = Stop()
    here = assignment(database)
    surveys = Surveys(SystemClock(), stop)
    surveys.look(here)
    surveys.look(replace(here, dsn="host=127.0.0.1 port=1"))
    assert surveys.of(here.job.name) is not None
    assert surveys.failed(here.job.name) is not None
    surveys.look(here)
    assert surveys.failed(here.job.name) is None
