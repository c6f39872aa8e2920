"""Children before parents inside a batch: every deletion is numbered, and the plan shows what makes it so (A-02)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.policy import Policy
from pgretention.report import Outcome
from tests.databases import Database
from tests.support import rows
from tests.support.explain import explain_batch, nodes
from tests.support.gates import one
from tests.support.rows import EVENTS, SESSIONS, VIEWS
from tests.support.runs import ACTIVITY, job, run
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]

REVERSED = replace(ACTIVITY, children=ACTIVITY.children[::-1])

either_order = pytest.mark.parametrize("policy", [ACTIVITY, REVERSED], ids=["as specified", "reversed"])


@pytest.mark.req("A-02")
@either_order
def test_every_child_goes_before_the_first_row_of_the_next_table(
    database: Database, admin: Admin, policy: Policy
) -> None:
    admin.execute("CREATE TABLE public.deletions (place bigserial, relation text, transaction xid8)")
    for table in policy.tables:
        on_delete(
            admin,
            table,
            "INSERT INTO public.deletions (relation, transaction)"
            " VALUES (TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME, pg_current_xact_id())",
        )
    for _ in range(30):
        session = rows.session(admin)
        view = rows.view(admin, session)
        event = rows.event(admin, session, property_object_view_id=view)
        rows.view(admin, session, apply_filter_event_id=event)

    ran = run(database, job(policy, batch_size=10))

    assert ran.report.outcome is Outcome.COMPLETED
    blocks = admin.execute("""
        SELECT relation, count(*), max(place) - min(place) + 1 FROM public.deletions
         GROUP BY transaction, relation ORDER BY min(place)
    """).fetchall()
    rows_per_batch = {str(EVENTS): 10, str(VIEWS): 20, str(SESSIONS): 10}
    batch = [(str(table), rows_per_batch[str(table)], rows_per_batch[str(table)]) for table in policy.tables]
    assert blocks == batch * 3, "one unbroken block of deletions a table, in policy order, in each batch"


@pytest.mark.req("A-02")
@either_order
def test_each_table_waits_for_the_count_of_the_one_before_as_a_one_time_filter(
    database: Database, policy: Policy
) -> None:
    plan = explain_batch(database, policy, batch_size=10).delete
    deletes = {
        f"{node['Schema']}.{node['Relation Name']}": node for node in nodes(plan) if node["Node Type"] == "ModifyTable"
    }

    assert list(deletes) == [str(table) for table in policy.tables]
    for place, table in enumerate(policy.tables):
        (below,) = [child for child in deletes[str(table)]["Plans"] if child["Parent Relationship"] == "Outer"]
        if place == 0:
            assert "One-Time Filter" not in below
        else:
            assert below["Node Type"] == "Result"
            assert ">= 0" in below["One-Time Filter"]


@pytest.mark.req("A-02")
def test_no_restrict_error_comes_from_a_batch_however_rows_refer_to_each_other(
    database: Database, admin: Admin
) -> None:
    sessions = [rows.session(admin) for _ in range(6)]
    views = [rows.view(admin, session) for session in sessions]
    events = [rows.event(admin, session, property_object_view_id=views[-1]) for session in sessions]
    for view, event in zip(views, reversed(events), strict=True):
        admin.execute(
            "UPDATE user_activity.property_object_views SET apply_filter_event_id = %s WHERE id = %s", [event, view]
        )

    ran = run(database, job(ACTIVITY, batch_size=2))

    assert ran.report.outcome is Outcome.COMPLETED
    assert [set(batch.deleted.values()) for batch in ran.batches] == [{2}, {2}, {2}]


@pytest.mark.req("A-18")
def test_after_every_batch_no_reference_dangles_in_either_direction(database: Database, admin: Admin) -> None:
    sessions = [rows.session(admin) for _ in range(4)]
    kept = rows.active_session(admin)
    kept_event = rows.event(admin, kept, payload='{"kept": true}')
    kept_view = rows.view(admin, kept, apply_filter_event_id=kept_event)
    for session in sessions:
        event = rows.event(admin, session, property_object_view_id=kept_view)
        view = rows.view(admin, session, apply_filter_event_id=kept_event)
        rows.event(admin, kept, property_object_view_id=view)
        rows.view(admin, kept, apply_filter_event_id=event)
    whole = "SELECT v, v.xmin, v.ctid FROM user_activity.property_object_views AS v WHERE id = %s"
    before = admin.execute(whole, [kept_view]).fetchall()
    dangling = """
        SELECT count(*) FROM user_activity.action_events AS e
          FULL JOIN user_activity.property_object_views AS v ON v.id = e.property_object_view_id
         WHERE (e.property_object_view_id IS NOT NULL AND v.id IS NULL)
            OR (v.apply_filter_event_id IS NOT NULL
                AND NOT EXISTS (SELECT FROM user_activity.action_events WHERE id = v.apply_filter_event_id))
    """

    ran = run(
        database,
        job(ACTIVITY, batch_size=1),
        on=lambda _: None if one(admin, dangling) == 0 else pytest.fail("dangles"),
    )

    assert ran.roots_per_batch == [1, 1, 1, 1]
    assert rows.ids(admin, EVENTS, "session_id") == rows.ids(admin, VIEWS, "session_id") == {kept}
    assert one(admin, "SELECT count(*) FROM user_activity.action_events") == 5
    assert admin.execute(whole, [kept_view]).fetchall() == before
