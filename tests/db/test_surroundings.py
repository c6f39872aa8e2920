"""The settings of the role, the process and the database have no say in which rows go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.policy import Equals, Policy, Table
from pgretention.report import Fact, Outcome, RunStarted
from pgretention.schema import grants
from tests.databases import WORKER, Database
from tests.support import rows
from tests.support.gates import one
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS
from tests.support.runs import ACTIVITY, GUESTS, YEAR, job, run

Admin = Connection[TupleRow]

MICROSECOND = timedelta(microseconds=1)


def set_for_worker(admin: Admin, name: str, value: str) -> None:
    """What every later connection of the worker's role to this database starts with."""
    admin.execute(
        sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = {}").format(
            sql.Identifier(WORKER),
            sql.Identifier(admin.info.dbname),
            sql.Identifier(name),
            sql.SQL(", ").join(map(sql.Literal, value.split(", "))),
        )
    )


def reset_for_worker(admin: Admin) -> None:
    admin.execute(
        sql.SQL("ALTER ROLE {} IN DATABASE {} RESET ALL").format(
            sql.Identifier(WORKER), sql.Identifier(admin.info.dbname)
        )
    )


def run_at_the_boundary(database: Database, admin: Admin) -> None:
    """Run both jobs over rows around the cutoff, and prove that exactly those before it go."""
    kept_sessions: set[object] = {rows.active_session(admin)}
    kept_favorites: set[object] = {rows.favorite(admin, user_id=uuid4())}
    for ended_at in "0044-03-15 BC", "2020-01-01":
        rows.event(admin, rows.session(admin, ended_at))
        rows.favorite(admin, ended_at)
    for never in "infinity", "-infinity", "24989-01-01":
        kept_sessions.add(rows.session(admin, never))
        kept_favorites.add(rows.favorite(admin, never))

    def insert(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            insert_one = rows.session if fact.job == ACTIVITY.name else rows.favorite
            kept = kept_sessions if fact.job == ACTIVITY.name else kept_favorites
            insert_one(admin, fact.cutoff - MICROSECOND)
            kept |= {insert_one(admin, fact.cutoff), insert_one(admin, fact.cutoff + MICROSECOND)}

    for policy in ACTIVITY, GUESTS:
        ran = run(database, job(policy, batch_size=2), on=insert)
        assert ran.report.outcome is Outcome.COMPLETED, ran.report.error
        assert ran.report.deleted[str(policy.root)] == 3
        assert ran.started.backlog.rows == 2
        assert ran.started.backlog.exact
        assert one(
            admin, "SELECT now() - %s BETWEEN '0' AND interval '5 minutes'", ran.started.cutoff + policy.retention
        )
    assert rows.ids(admin, SESSIONS) == kept_sessions
    assert rows.ids(admin, FAVORITES) == kept_favorites
    admin.execute("TRUNCATE user_activity.sessions, favorites.favorites CASCADE")


@pytest.mark.req("A-04", "A-06", "F-03")
@pytest.mark.parametrize(
    ("name", "values"),
    {
        "timezone": ["America/New_York", "Asia/Tokyo", "Pacific/Kiritimati"],
        "datestyle": ["German, DMY", "SQL, MDY", "Postgres, DMY"],
        "intervalstyle": ["sql_standard", "iso_8601", "postgres_verbose"],
        "default_transaction_isolation": ["serializable", "repeatable read"],
        "default_transaction_read_only": ["on"],
        "default_transaction_deferrable": ["on"],
        "row_security": ["off"],
        "synchronous_commit": ["off"],
        "standard_conforming_strings": ["off"],
        "client_encoding": ["LATIN1", "SQL_ASCII"],
        "bytea_output": ["escape"],
        "extra_float_digits": ["-15"],
        "array_nulls": ["off"],
        "statement_timeout": ["2s"],
        "search_path": ["", "decoy, public"],
    }.items(),
)
def test_what_goes_does_not_depend_on_a_setting_of_the_role(
    database: Database, admin: Admin, name: str, values: list[str]
) -> None:
    admin.execute("CREATE SCHEMA decoy")
    admin.execute("CREATE TABLE decoy.sessions AS TABLE user_activity.sessions")
    for value in values:
        set_for_worker(admin, name, value)
        run_at_the_boundary(database, admin)


@pytest.mark.req("A-06")
@pytest.mark.parametrize(
    ("name", "value"), [("PGTZ", "Asia/Tokyo"), ("PGDATESTYLE", "German"), ("PGCLIENTENCODING", "LATIN1")]
)
def test_what_goes_does_not_depend_on_libpq_s_environment(
    database: Database, admin: Admin, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    run_at_the_boundary(database, admin)


@pytest.fixture
def zone_of_the_process(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.req("A-06")
@pytest.mark.usefixtures("zone_of_the_process")
@pytest.mark.parametrize("zone_of_the_process", ["Asia/Shanghai", "America/Los_Angeles"], indirect=True)
def test_what_goes_does_not_depend_on_the_zone_of_the_process(database: Database, admin: Admin) -> None:
    run_at_the_boundary(database, admin)


@pytest.mark.req("A-06")
def test_a_day_of_retention_is_24_hours_where_the_zone_of_the_role_changes_its_clocks(
    database: Database, admin: Admin
) -> None:
    zone = ZoneInfo("America/New_York")
    now = one(admin, "SELECT now()")
    assert isinstance(now, datetime)
    offset = now.astimezone(zone).utcoffset()
    days = next(n for n in range(1, 365) if (now - timedelta(days=n)).astimezone(zone).utcoffset() != offset)
    set_for_worker(admin, "timezone", zone.key)
    for policy in activity_retention.policy(timedelta(days=days)), guest_favorites_cleanup.policy(timedelta(days=days)):
        before = one(admin, "SELECT now()")
        ran = run(database, job(policy))
        after = one(admin, "SELECT now()")
        assert isinstance(before, datetime)
        assert isinstance(after, datetime)
        assert before <= ran.started.cutoff + timedelta(days=days) <= after
        assert ran.started.cutoff.utcoffset() == timedelta(0)


PLANNER = {
    "enable_bitmapscan": "off",
    "enable_hashagg": "off",
    "enable_hashjoin": "off",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "enable_mergejoin": "off",
    "enable_nestloop": "off",
    "enable_seqscan": "off",
    "enable_sort": "off",
    "enable_tidscan": "off",
    "plan_cache_mode": "force_custom_plan",
    "jit_above_cost": "0",
    "from_collapse_limit": "1",
    "work_mem": "64kB",
    "random_page_cost": "1000000",
    "parallel_setup_cost": "0",
    "min_parallel_table_scan_size": "0",
}


@pytest.mark.req("A-01", "A-02", "A-10", "A-18")
def test_a_batch_is_the_same_rows_under_every_planner_setting(database: Database, admin: Admin) -> None:
    def oldest_ten_go() -> None:
        admin.execute("TRUNCATE user_activity.sessions CASCADE")
        sessions = [rows.session(admin, f"2020-01-{day:02}") for day in range(1, 26)]
        for session in sessions:
            view = rows.view(admin, session)
            rows.event(admin, session, property_object_view_id=view)
        ran = run(database, job(ACTIVITY, batch_size=10, max_batches=1))
        assert ran.report.deleted == dict.fromkeys(map(str, (EVENTS, VIEWS, SESSIONS)), 10)
        assert rows.ids(admin, SESSIONS) == set(sessions[10:])
        assert rows.ids(admin, VIEWS, "session_id") == rows.ids(admin, EVENTS, "session_id") == set(sessions[10:])

    for name, value in PLANNER.items():  # each alone
        set_for_worker(admin, name, value)
        oldest_ten_go()
        reset_for_worker(admin)
    for name in "enable_hashjoin", "enable_mergejoin", "enable_hashagg", "enable_sort", "enable_material":
        set_for_worker(admin, name, "off")
    oldest_ten_go()
    for name, value in PLANNER.items():
        set_for_worker(admin, name, value)
    oldest_ten_go()


@pytest.mark.req("A-04")
def test_operators_and_functions_of_others_on_the_search_path_are_not_called(database: Database, admin: Admin) -> None:
    """Whoever may create objects in a schema on the path could otherwise have a say in what is expired."""
    admin.execute("""
        CREATE SCHEMA evil;
        GRANT USAGE ON SCHEMA evil TO PUBLIC;
        CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '3000-01-01' $$;
        CREATE FUNCTION evil.yes(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
        CREATE FUNCTION evil.yes(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
        CREATE OPERATOR evil.< (FUNCTION = evil.yes, LEFTARG = timestamptz, RIGHTARG = timestamptz);
        CREATE OPERATOR evil.= (FUNCTION = evil.yes, LEFTARG = text, RIGHTARG = text);
    """)
    set_for_worker(admin, "search_path", "evil, pg_catalog")
    rows.allow_any_dates(admin)
    kept = {rows.session(admin, "now"), rows.active_session(admin, id=uuid4()), rows.session(admin, status="Active")}

    run(database, job(ACTIVITY))

    assert rows.ids(admin, SESSIONS) == kept


@pytest.mark.req("A-04")
def test_an_operator_in_public_that_fits_the_guard_s_column_better_is_not_called(
    database: Database, admin: Admin
) -> None:
    """PostgreSQL has no varchar = varchar of its own, so one in `public` wins without any change of the search path."""
    admin.execute("""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (id uuid PRIMARY KEY, status varchar NOT NULL, ended_at timestamptz);
        CREATE FUNCTION public.yes(varchar, varchar) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
        CREATE OPERATOR public.= (FUNCTION = public.yes, LEFTARG = varchar, RIGHTARG = varchar);
    """)
    orders = Table("shop", "orders")
    policy = Policy("orders", orders, "id", "ended_at", (Equals("status", "Done"),), YEAR)
    admin.execute(grants([policy], WORKER).encode())
    rows.insert(admin, orders, status="Done", ended_at=rows.OLD)
    kept: set[object] = {rows.insert(admin, orders, status="Open", ended_at=rows.OLD)}

    run(database, job(policy))

    assert rows.ids(admin, orders) == kept


@pytest.mark.req("A-09")
def test_a_function_in_public_does_not_take_the_place_of_the_one_that_makes_the_lock_s_number(
    database: Database, admin: Admin
) -> None:
    admin.execute("""
        CREATE FUNCTION public.hashtextextended(text, integer) RETURNS bigint LANGUAGE sql
        AS $$ SELECT (random() * 1e15)::bigint $$
    """)
    admin.execute("SELECT pg_advisory_lock(pg_catalog.hashtextextended(%s, 0::bigint))", [ACTIVITY.lock])

    assert run(database, job(ACTIVITY)).report.outcome is Outcome.SKIPPED


@pytest.mark.req("A-09")
def test_the_number_of_the_lock_is_pinned(database: Database, admin: Admin) -> None:
    """Replicas of different versions of this program have to meet at the same number."""
    admin.execute("SELECT pg_advisory_lock(%s)", [151273445684309749])

    assert run(database, job(ACTIVITY)).report.outcome is Outcome.SKIPPED
