"""A run deletes and does nothing else: no row is written, and the counters of views are not even read."""

from __future__ import annotations

from collections import Counter

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.policy import Policy
from pgretention.report import Outcome
from tests.databases import WORKER, Database
from tests.support import rows
from tests.support.counters import table_counters
from tests.support.gates import one
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, STATS, VIEWS
from tests.support.runs import ACTIVITY, GUESTS, job, unwatched_run

Admin = Connection[TupleRow]


def fill(admin: Admin) -> None:
    for _ in range(5):
        session = rows.session(admin)
        view = rows.view(admin, session)
        rows.event(admin, session, property_object_view_id=view)
        rows.event(admin, rows.active_session(admin))
        rows.favorite(admin)
    admin.execute("""
        INSERT INTO user_activity.property_object_view_stats
        SELECT property_object_id, 17, '1 day' FROM user_activity.property_object_views
    """)


@pytest.mark.req("A-03")
def test_the_statistics_of_views_are_neither_read_nor_written(database: Database, admin: Admin) -> None:
    fill(admin)
    contents = f"SELECT *, xmin, xmax, ctid FROM {STATS} ORDER BY 1".encode()
    contents_before = admin.execute(contents).fetchall()
    before = table_counters(admin)

    report = unwatched_run(database.worker_dsn, job(ACTIVITY)).report

    after = table_counters(admin)
    assert after[str(STATS)] == before[str(STATS)]
    assert admin.execute(contents).fetchall() == contents_before
    assert report.deleted == {str(EVENTS): 5, str(VIEWS): 5, str(SESSIONS): 5}
    assert after[str(VIEWS)].written - before[str(VIEWS)].written == Counter(deleted=5), "the counters do count"
    assert after[str(VIEWS)].read != before[str(VIEWS)].read


@pytest.mark.req("A-03", "F-06")
def test_the_worker_s_role_could_not_touch_them_if_it_wanted_to(admin: Admin) -> None:
    able = "SELECT has_any_column_privilege(%s, %s, %s)"
    for privilege in "SELECT", "INSERT", "UPDATE", "REFERENCES":
        assert one(admin, able, WORKER, str(STATS), privilege) is False
    assert one(admin, "SELECT has_table_privilege(%s, %s, 'DELETE, TRUNCATE, TRIGGER')", WORKER, str(STATS)) is False


@pytest.mark.req("A-13", "F-10")
@pytest.mark.parametrize("policy", [ACTIVITY, GUESTS], ids=lambda policy: policy.name)
def test_no_row_of_any_table_is_written_but_the_deletions(database: Database, admin: Admin, policy: Policy) -> None:
    fill(admin)
    objects = "SELECT count(*) FROM pg_class"
    objects_before, before = one(admin, objects), table_counters(admin)

    report = unwatched_run(database.worker_dsn, job(policy, batch_size=2)).report

    after = table_counters(admin)
    written = {table: after[table].written - before[table].written for table in after}
    assert {table: counts for table, counts in written.items() if counts} == {
        table: Counter(deleted=rows) for table, rows in report.deleted.items()
    }
    assert set(report.deleted.values()) == {5}
    assert one(admin, objects) == objects_before


@pytest.mark.req("F-06")
@pytest.mark.parametrize("column", ["note", "anonymous_id", "created_at", "property_object_id"])
def test_favorites_are_cleaned_by_a_role_that_cannot_read_what_it_does_not_need(
    database: Database, admin: Admin, column: str
) -> None:
    assert one(admin, "SELECT has_column_privilege(%s, %s, %s, 'SELECT')", WORKER, str(FAVORITES), column) is False
    rows.favorite(admin, note="private")

    report = unwatched_run(database.worker_dsn, job(GUESTS)).report

    assert report.outcome is Outcome.COMPLETED
    assert report.deleted == {str(FAVORITES): 1}
