"""The limits of every transaction, the measuring of the backlog, and the lock that goes with the connection."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import LiteralString

import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention import backlog, db
from pgretention.errors import Fault, FaultKind
from pgretention.report import Backlog, BatchDone, Fact, Outcome, RunStarted
from pgretention.session import connect
from tests.databases import WORKER, Database
from tests.support import rows
from tests.support.gates import Gate, one, until, workers
from tests.support.rows import FAVORITES, SESSIONS
from tests.support.runs import ACTIVITY, GUESTS, job, run, unwatched_run
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]


OTHERWISE: dict[LiteralString, str] = {
    "statement_timeout": "2s",
    "lock_timeout": "1h",
    "idle_in_transaction_session_timeout": "0",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
}


def set_for_worker(database: Database, admin: Admin, setting: LiteralString, value: str) -> None:
    """What every later connection of the worker's role to this database starts with."""
    admin.execute(
        sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = {}").format(
            sql.Identifier(WORKER), sql.Identifier(database.name), sql.Identifier(setting), sql.Literal(value)
        )
    )


@pytest.mark.req("F-09", "A-12")
def test_every_limit_is_in_force_inside_the_transaction_of_a_batch(database: Database, admin: Admin) -> None:
    admin.execute("CREATE TABLE public.seen (name text, setting text)")
    on_delete(
        admin,
        FAVORITES,
        """
        INSERT INTO public.seen SELECT name, current_setting(name) FROM pg_settings
         WHERE name IN ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout',
                        'transaction_isolation', 'transaction_read_only')
        """,
    )
    for setting, value in OTHERWISE.items():
        set_for_worker(database, admin, setting, value)
    rows.favorite(admin)

    run(database, job(GUESTS, max_run_duration=timedelta(minutes=10)))

    assert dict(admin.execute("SELECT name, setting FROM public.seen").fetchall()) == {
        "lock_timeout": "10ms",  # by now it holds rows
        "statement_timeout": "1min",
        "idle_in_transaction_session_timeout": "1min",
        "transaction_isolation": "read committed",
        "transaction_read_only": "off",
    }


@pytest.mark.req("F-09")
def test_a_batch_is_not_cut_off_by_a_shorter_timeout_of_the_role(database: Database, admin: Admin) -> None:
    on_delete(admin, FAVORITES, "PERFORM pg_sleep(0.3)")
    set_for_worker(database, admin, "statement_timeout", "200ms")
    rows.favorite(admin)

    assert run(database, job(GUESTS)).report.deleted == {str(FAVORITES): 1}


@pytest.mark.req("F-09", "A-12")
def test_what_a_trigger_sets_does_not_hold_for_the_deferred_constraints(database: Database, admin: Admin) -> None:
    admin.execute("CREATE TABLE public.seen (name text, setting text)")
    on_delete(
        admin,
        FAVORITES,
        "PERFORM set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)",
    )
    admin.execute(
        """
        CREATE FUNCTION public.look() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            INSERT INTO public.seen SELECT name, current_setting(name) FROM pg_settings
             WHERE name IN ('lock_timeout', 'statement_timeout');
            RETURN OLD;
        END $$;
        CREATE CONSTRAINT TRIGGER look AFTER DELETE ON favorites.favorites DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION public.look();
        """
    )
    rows.favorite(admin)

    run(database, job(GUESTS, max_run_duration=timedelta(minutes=10)))

    seen: dict[str, str] = dict(admin.execute("SELECT name, setting FROM public.seen").fetchall())
    assert seen == {"lock_timeout": "10ms", "statement_timeout": "1min"}


@pytest.mark.req("A-12", "F-11")
def test_a_commit_during_which_a_pooler_loses_the_server_and_keeps_us_is_unknown(database: Database) -> None:
    with connect(database.dsn, "pgretention/test") as session:
        session.connection.execute(
            """
            CREATE TEMPORARY TABLE given (id int);
            CREATE FUNCTION pg_temp.lose() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE 'server conn crashed?' USING ERRCODE = '08P01'; END $$;
            CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON given DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION pg_temp.lose();
            """
        )
        with pytest.raises(Fault) as lost, db.transaction(session, timedelta(seconds=10)) as connection:
            connection.execute("INSERT INTO given VALUES (1)")
    assert lost.value.kind is FaultKind.COMMIT_UNKNOWN


@pytest.mark.parametrize(
    ("said", "environment", "then"),
    [
        ("", "", {"connect_timeout": "10", "keepalives_idle": "30", "tcp_user_timeout": "60000"}),
        (
            "connect_timeout=3 keepalives_idle=5 tcp_user_timeout=0",
            "",
            {"connect_timeout": "3", "keepalives_idle": "5", "tcp_user_timeout": "0"},
        ),
        ("", "7", {"connect_timeout": "7", "keepalives_idle": "30", "tcp_user_timeout": "60000"}),
    ],
)
def test_what_the_connection_string_or_libpq_s_environment_says_of_the_line_counts(
    database: Database, monkeypatch: pytest.MonkeyPatch, said: str, environment: str, then: dict[str, str]
) -> None:
    if environment:
        monkeypatch.setenv("PGCONNECT_TIMEOUT", environment)
    with connect(f"{database.worker_dsn} {said}", "pgretention/test") as session:
        info = session.connection.pgconn.info
        told = {option.keyword.decode(): (option.val or b"").decode() for option in info}
    assert {name: told[name] for name in then} == then


@pytest.mark.req("A-20")
def test_a_backlog_that_takes_too_long_to_count_is_estimated_and_says_so(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "MEASURING", timedelta(milliseconds=300))
    favorites = [rows.favorite(admin) for _ in range(50)]
    admin.execute("ANALYZE favorites.favorites")
    gate.before_locking(FAVORITES, min(favorites))
    gate.close_behind_the_catalog()

    def on(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            gate.open()

    running = threads.submit(unwatched_run, database.worker_dsn, job(GUESTS), on=on)
    gate.wait_for()
    ran = running.result()

    assert ran.started.backlog.exact is False
    assert ran.started.backlog.rows > 0
    assert ran.started.backlog.oldest_age is None
    assert ran.report.outcome is Outcome.COMPLETED
    assert ran.report.as_json()["backlog_exact"] is False
    assert ran.report.backlog_after == Backlog(0, exact=True, oldest_age=None)


@pytest.mark.req("A-09")
def test_whoever_loses_the_connection_loses_the_lock_and_the_run_ends(database: Database, admin: Admin) -> None:
    sessions = [rows.session(admin, f"2020-01-0{day}") for day in range(1, 4)]

    def on(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            admin.execute("SELECT pg_terminate_backend(%s)", workers(admin))
            until(lambda: one(admin, "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", ACTIVITY.lock) is True)

    report = run(database, job(ACTIVITY, batch_size=1), on=on).report

    assert (report.outcome, report.batches) == (Outcome.FAILED, 1)
    assert rows.ids(admin, SESSIONS) == set(sessions[1:])
