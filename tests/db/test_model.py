"""Whatever the rows, the batch size and the limit: a run leaves exactly what a few lines of Python say it should."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.report import Fact, Outcome, RunStarted
from tests.databases import Database
from tests.support.model import AGES, NEVER, Activity, Child, Session, after_run
from tests.support.rows import allow_any_dates
from tests.support.runs import ACTIVITY, job, run

ENDS = st.one_of(
    st.none(), st.sampled_from([*AGES, *NEVER]), st.sampled_from(list(AGES)), st.sampled_from([-(10**9), -1, 0, 1])
)


@st.composite
def activities(draw: st.DrawFn) -> Activity:
    """Up to eight sessions, and events and views that may refer to each other within a session or across."""
    uuids = iter(draw(st.lists(st.uuids(), min_size=40, max_size=40, unique=True)))
    property_objects = draw(st.lists(st.uuids(), min_size=1, max_size=2))
    sessions = [
        Session(next(uuids), draw(st.sampled_from(["Inactive", "Inactive", "Active"])), draw(ENDS))
        for _ in range(draw(st.integers(0, 8)))
    ]
    if not sessions:
        return Activity()
    owners = st.sampled_from([session.id for session in sessions])
    objects = st.sampled_from(property_objects)
    view_ids = [next(uuids) for _ in range(draw(st.integers(0, 10)))]
    event_ids = [next(uuids) for _ in range(draw(st.integers(0, 10)))]
    to_event = st.sampled_from([None, *event_ids])
    to_view = st.sampled_from([None, *view_ids])
    return Activity(
        tuple(sessions),
        tuple(Child(key, draw(owners), draw(objects), draw(to_view)) for key in event_ids),
        tuple(Child(key, draw(owners), draw(objects), draw(to_event)) for key in view_ids),
    )


def write(admin: Connection[TupleRow], activity: Activity, cutoff: datetime) -> None:
    def instant(ends: str | int | None) -> object:
        return cutoff + timedelta(microseconds=ends) if isinstance(ends, int) else ends

    cursor = admin.cursor()
    cursor.executemany(
        """
        INSERT INTO user_activity.sessions (id, status, ended_at, started_at, last_activity_at, created_at)
        VALUES (%s, %s, %s, '2020-01-01', '2020-01-01', '2020-01-01')
        """,
        [(session.id, session.status, instant(session.ends)) for session in activity.sessions],
    )
    cursor.executemany(
        """
        INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
        VALUES (%s, %s, %s, '2020-01-01')
        """,
        [(view.id, view.session, view.property_object) for view in activity.views],
    )
    cursor.executemany(
        """
        INSERT INTO user_activity.action_events (id, session_id, event_type, property_object_view_id, occurred_at)
        VALUES (%s, %s, %s, %s, '2020-01-01')
        """,
        [(event.id, event.session, event.property_object.hex, event.refers_to) for event in activity.events],
    )
    cursor.executemany(
        "UPDATE user_activity.property_object_views SET apply_filter_event_id = %s WHERE id = %s",
        [(view.refers_to, view.id) for view in activity.views],
    )


def read(admin: Connection[TupleRow], before: Activity) -> Activity:
    """What is left, in the order of what was there before."""
    sessions = {row[0] for row in admin.execute("SELECT id FROM user_activity.sessions")}
    views = _children(
        admin,
        "SELECT id, session_id, property_object_id, apply_filter_event_id FROM user_activity.property_object_views",
    )
    events = _children(
        admin, "SELECT id, session_id, event_type::uuid, property_object_view_id FROM user_activity.action_events"
    )
    return Activity(
        tuple(session for session in before.sessions if session.id in sessions),
        tuple(events[event.id] for event in before.events if event.id in events),
        tuple(views[view.id] for view in before.views if view.id in views),
    )


def _children(admin: Connection[TupleRow], query: str) -> dict[UUID, Child]:
    return {row[0]: Child(*row) for row in admin.execute(query.encode())}


@pytest.mark.req("A-01", "A-04", "A-05", "A-10", "A-11", "A-18")
def test_a_run_leaves_exactly_what_the_model_says(database: Database) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as admin:
        allow_any_dates(admin)

        @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(activities(), st.integers(1, 5), st.none() | st.integers(1, 4))
        def check(before: Activity, batch_size: int, max_batches: int | None) -> None:
            admin.execute("TRUNCATE user_activity.sessions CASCADE")

            def insert(fact: Fact) -> None:
                if isinstance(fact, RunStarted):
                    write(admin, before, fact.cutoff)

            ran = run(database, job(ACTIVITY, batch_size=batch_size, max_batches=max_batches), on=insert)

            expected = after_run(before, max_batches and batch_size * max_batches)
            assert read(admin, before) == expected
            everything = after_run(before, None)
            drained = len(expected.sessions) == len(everything.sessions)
            assert ran.report.outcome is (Outcome.COMPLETED if drained else Outcome.LIMIT_REACHED)
            assert ran.report.has_more is not drained
            assert ran.report.backlog_after is not None
            assert ran.report.backlog_after.rows == len(expected.sessions) - len(everything.sessions)

        check()
