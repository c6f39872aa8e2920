"""Behind a real PgBouncer: runs delete exactly what is expired, and nothing of them stays on a server connection."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from pgretention.errors import FaultKind
from pgretention.job import Retries
from pgretention.report import BatchDone, Fact, Outcome, RetryAwaited
from pgretention.stop import Stop
from tests.databases import Database
from tests.support import rows
from tests.support.command import Command, commands
from tests.support.gates import Gate, one, until
from tests.support.pgbouncer import Mode, PgBouncer, pgbouncer, version
from tests.support.planted import expired, left, old_favorites, old_sessions, plant
from tests.support.rows import FAVORITES, SESSIONS
from tests.support.runs import ACTIVITY, GUESTS, job, unwatched_run
from tests.support.storm import DISTURBANCES, storm

Admin = Connection[TupleRow]

BATCHES = 12
"""More than psycopg sends before it prepares a statement on the server."""

PREPARED = [{"max_prepared_statements": "0"}, {"max_prepared_statements": "100"}] if version() >= (1, 21) else [{}]
"""PgBouncer follows prepared statements from 1.21 on, and older ones do not know the setting."""

HOLDERS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid <> 4711"
OPEN_TRANSACTIONS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
       AND backend_type = 'client backend'
"""
TWO_A_BATCH = {"ActivityRetention__BatchSize": "2"}


@pytest.fixture(params=["transaction", "session"])
def bouncer(database: Database, request: pytest.FixtureRequest) -> Iterator[PgBouncer]:
    with pgbouncer(database, request.param, 3) as bouncer:
        yield bouncer


@pytest.fixture
def command(database: Database, bouncer: PgBouncer) -> Iterator[Command]:
    with commands(bouncer.dsn, database.server.password) as command:
        yield command


def deleting(admin: Admin) -> int:
    """The backend that stands before the gate."""
    pid = one(admin, "SELECT pid FROM pg_locks WHERE classid = 4711 AND NOT granted")
    assert isinstance(pid, int)
    return pid


def gone(admin: Admin, backend: int) -> bool:
    return one(admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", backend) == 0


def assert_nothing_is_stranded(admin: Admin) -> None:
    """No transaction stays open, and no lock but that of the gate is held."""
    until(lambda: one(admin, OPEN_TRANSACTIONS) == 0)  # in session mode PgBouncer cleans up when a client has gone
    assert one(admin, HOLDERS) == 0


@pytest.mark.req("A-01", "A-09", "F-01")
@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("size", [1, 3])
def test_exactly_what_is_expired_goes_and_a_second_run_finds_nothing(
    database: Database, admin: Admin, mode: Mode, size: int
) -> None:
    plant(admin)
    before = expired(admin)
    everything = {table: len(rows.ids(admin, table)) for table in (*ACTIVITY.tables, *GUESTS.tables)}
    with pgbouncer(database, mode, size) as bouncer:
        first, second = (
            [unwatched_run(bouncer.dsn, job(policy, batch_size=2)) for policy in (ACTIVITY, GUESTS)] for _ in range(2)
        )

    deleted = {table: count for run in first for table, count in run.report.deleted.items()}
    assert {table: deleted[table] for table in before} == before
    assert all(before.values())
    for table, count in everything.items():
        assert len(rows.ids(admin, table)) == count - deleted[str(table)]
    assert set(expired(admin).values()) == {0}
    assert {run.report.outcome for run in (*first, *second)} == {Outcome.COMPLETED}
    assert {count for run in second for count in run.report.deleted.values()} == {0}
    assert {run.started.pooled for run in (*first, *second)} == {True}


def on_every_server_connection(bouncer: PgBouncer) -> dict[int, dict[str, object]]:
    """What the next client finds on each server connection of a pool, by backend."""
    found = {}
    with ExitStack() as held:
        for _ in range(bouncer.size):
            client = held.enter_context(psycopg.connect(bouncer.dsn, prepare_threshold=None))
            found.update(traces(client))  # its transaction stays open, so the next client gets another one
    assert len(found) == bouncer.size
    return found


def traces(client: Connection[TupleRow]) -> dict[int, dict[str, object]]:
    """The settings but for the name of the client, and what else can be left behind, of the backend in use."""
    client.execute("DO $$ BEGIN END $$")  # plpgsql brings settings of its own when it is first used
    pid = one(client, "SELECT pg_backend_pid()")
    assert isinstance(pid, int)
    settings = "SELECT name, setting FROM pg_settings WHERE name <> 'application_name'"
    return {
        pid: {
            **dict(client.execute(settings).fetchall()),
            "prepared": one(client, "SELECT count(*) FROM pg_prepared_statements"),
            "cursors": one(client, "SELECT count(*) FROM pg_cursors WHERE name <> ''"),
            "locks": one(
                client, "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
            ),
            "channels": one(client, "SELECT count(*) FROM pg_listening_channels()"),
        }
    }


@pytest.mark.req("A-09")
@pytest.mark.parametrize("settings", PREPARED, ids=str)
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_many_batches_need_no_prepared_statement_and_leave_each_server_connection_like_a_fresh_session(
    database: Database, admin: Admin, mode: Mode, settings: dict[str, str]
) -> None:
    old_sessions(admin, BATCHES)
    old_favorites(admin, BATCHES)
    with psycopg.connect(database.worker_dsn) as direct:
        (fresh,) = traces(direct).values()
    with pgbouncer(database, mode, 3, settings) as bouncer:
        before = on_every_server_connection(bouncer)
        ran = [unwatched_run(bouncer.dsn, job(policy, batch_size=1)) for policy in (ACTIVITY, GUESTS)]
        after = on_every_server_connection(bouncer)

    assert [(run.report.outcome, run.report.batches) for run in ran] == [(Outcome.COMPLETED, BATCHES)] * 2
    assert [len(run.facts) for run in ran] == [BATCHES + 2] * 2  # nothing was tried again
    assert after.keys() == before.keys()
    assert [found == fresh for found in after.values()] == [True] * 3
    assert_nothing_is_stranded(admin)


def test_what_a_client_does_leave_behind_in_transaction_mode_would_be_seen(database: Database) -> None:
    with pgbouncer(database, "transaction", 1) as bouncer:
        (before,) = on_every_server_connection(bouncer).values()
        with psycopg.connect(bouncer.dsn, autocommit=True, prepare_threshold=None) as careless:
            careless.execute("SET statement_timeout = '17s'")
            careless.execute("SELECT pg_advisory_lock(4710)")
            careless.execute("PREPARE left_behind AS SELECT 1")
        (after,) = on_every_server_connection(bouncer).values()

    assert {name for name in before if before[name] != after[name]} == {"statement_timeout", "locks", "prepared"}


@pytest.mark.req("A-09", "H-04")
def test_a_process_killed_in_a_batch_strands_no_lock_and_the_next_run_takes_the_rest(
    command: Command, admin: Admin, gate: Gate
) -> None:
    sessions = old_sessions(admin, 7)
    gate.before_deleting(SESSIONS, sessions[3])
    process = command.start("run", ACTIVITY.name, **TWO_A_BATCH)
    gate.wait_for()
    backend = deleting(admin)
    process.kill()
    process.wait()
    until(lambda: gone(admin, backend))  # while the gate is still closed: nothing goes on for a client that is dead

    assert_nothing_is_stranded(admin)
    assert left(admin) == set(sessions[2:])
    gate.open()
    ended = command("run", ACTIVITY.name, "--json")
    assert (ended.code, ended.result["outcome"], set(ended.result["deleted"].values())) == (0, "completed", {5})
    assert left(admin) == set()
    assert_nothing_is_stranded(admin)


@pytest.mark.req("A-09", "A-16")
@pytest.mark.parametrize("what", ["the server connection is terminated", "the pooler is killed"])
def test_a_run_goes_on_by_itself_when_in_a_batch(
    command: Command, bouncer: PgBouncer, admin: Admin, gate: Gate, what: str
) -> None:
    sessions = old_sessions(admin, 7)
    gate.before_deleting(SESSIONS, sessions[3])
    process = command.start("run", ACTIVITY.name, "--json", "--log-format", "json", **TWO_A_BATCH)
    gate.wait_for()
    backend = deleting(admin)
    if what == "the pooler is killed":
        bouncer.kill()
        until(lambda: gone(admin, backend))
        assert_nothing_is_stranded(admin)
        bouncer.bring_up()
    else:
        admin.execute("SELECT pg_terminate_backend(%s)", [backend])
        until(lambda: gone(admin, backend))
    gate.open()
    ended = command.end(process)

    assert (ended.code, ended.result["outcome"]) == (0, "completed"), ended.stderr
    assert set(ended.result["deleted"].values()) == {7}
    assert {line["kind"] for line in ended.log if line["event"] == "retry"} == {"connection"}
    assert left(admin) == set()
    assert_nothing_is_stranded(admin)


@pytest.mark.req("H-02")
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_forced_stop_reaches_the_batch_in_flight_through_a_pool_that_is_used_up(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor, mode: Mode
) -> None:
    sessions = old_sessions(admin, 5)
    gate.before_deleting(SESSIONS, sessions[3])
    stop = Stop()
    with pgbouncer(database, mode, 1) as bouncer:
        running = threads.submit(unwatched_run, bouncer.dsn, job(ACTIVITY, batch_size=2), stop=stop)
        gate.wait_for()
        stop.force()
        report = running.result().report  # while the gate is still closed

    assert (report.outcome, report.batches, report.error) == (Outcome.STOPPED, 1, None)
    assert left(admin) == set(sessions[2:])
    assert_nothing_is_stranded(admin)


@pytest.mark.req("A-09")
def test_a_second_run_of_an_exclusive_job_meanwhile_is_skipped(
    database: Database, bouncer: PgBouncer, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 4)
    gate.before_deleting(SESSIONS, sessions[1])
    running = threads.submit(unwatched_run, bouncer.dsn, job(ACTIVITY, batch_size=2))
    gate.wait_for()
    others = [unwatched_run(dsn, job(ACTIVITY)).report for dsn in (bouncer.dsn, database.worker_dsn)]
    gate.open()

    assert [(report.outcome, report.batches) for report in others] == [(Outcome.SKIPPED, 0)] * 2
    assert running.result().report.batches == 2
    assert left(admin) == set()


@pytest.mark.req("F-11")
def test_a_second_run_of_a_shared_job_takes_the_rows_that_the_first_has_not_locked(
    bouncer: PgBouncer, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    favorites = old_favorites(admin, 7)
    gate.before_deleting(FAVORITES, favorites[1])
    running = threads.submit(unwatched_run, bouncer.dsn, job(GUESTS, batch_size=2))
    gate.wait_for()
    other = unwatched_run(bouncer.dsn, job(GUESTS, batch_size=2)).report
    gate.open()

    assert (other.outcome, other.deleted) == (Outcome.COMPLETED, {str(FAVORITES): 5})
    assert running.result().report.deleted == {str(FAVORITES): 2}
    assert rows.ids(admin, FAVORITES) == set()


@pytest.mark.req("A-09", "F-11")
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_two_jobs_share_one_server_connection_and_both_end_well(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor, mode: Mode
) -> None:
    sessions = old_sessions(admin, 5)
    old_favorites(admin, 5)
    gate.before_deleting(SESSIONS, sessions[1])
    with (
        pgbouncer(database, mode, 1) as bouncer,
        bouncer.console() as console,
    ):
        first = threads.submit(unwatched_run, bouncer.dsn, job(ACTIVITY, batch_size=2))
        gate.wait_for()
        second = threads.submit(unwatched_run, bouncer.dsn, job(GUESTS, batch_size=2))
        until(lambda: waiting(console, database) == 1)
        gate.open()
        reports = [each.result().report for each in (first, second)]

    assert [(report.outcome, report.batches) for report in reports] == [(Outcome.COMPLETED, 3)] * 2
    assert left(admin) | rows.ids(admin, FAVORITES) == set()


def waiting(console: Connection[TupleRow], database: Database) -> int:
    """How many clients wait for a server connection."""
    pools = console.execute("SHOW POOLS")
    assert pools.description is not None
    names = [column.name for column in pools.description]
    found = [dict(zip(names, pool, strict=True)) for pool in pools.fetchall()]
    return sum(int(pool["cl_waiting"]) for pool in found if pool["database"] == database.name)


@pytest.mark.req("A-16")
def test_a_run_whose_pool_can_give_it_no_server_connection_in_time_tries_again(
    database: Database, admin: Admin, threads: ThreadPoolExecutor
) -> None:
    old_sessions(admin, 3)
    with pgbouncer(database, "transaction", 1, {"query_wait_timeout": "1"}) as bouncer:
        with psycopg.connect(bouncer.dsn, prepare_threshold=None) as greedy, bouncer.console() as console:
            greedy.execute("SELECT 1")
            persistent = replace(job(ACTIVITY), retries=Retries(times=3))
            running = threads.submit(unwatched_run, bouncer.dsn, persistent)
            until(lambda: waiting(console, database) == 1)
            until(lambda: waiting(console, database) == 0)  # it has been refused
        ran = running.result()

    tried_again = {(fact.error.kind, fact.error.sqlstate) for fact in ran.facts if isinstance(fact, RetryAwaited)}
    assert tried_again == {(FaultKind.CONNECTION, "08P01")}
    assert ran.report.outcome is Outcome.COMPLETED
    assert left(admin) == set()


def test_a_run_waits_while_the_pool_is_paused_and_goes_on_when_it_is_resumed(
    database: Database, admin: Admin, threads: ThreadPoolExecutor
) -> None:
    old_sessions(admin, 6)
    resumed: list[Future[None]] = []
    with pgbouncer(database, "transaction", 3) as bouncer, bouncer.console() as console:

        def resume() -> None:
            until(lambda: waiting(console, database) == 1)
            console.execute(f"RESUME {database.name}".encode())

        def pause(fact: Fact) -> None:
            if isinstance(fact, BatchDone) and fact.index == 1:
                console.execute(f"PAUSE {database.name}".encode())
                resumed.append(threads.submit(resume))

        report = unwatched_run(bouncer.dsn, job(ACTIVITY, batch_size=2), on=pause).report

    assert [each.result() for each in resumed] == [None]
    assert (report.outcome, report.batches) == (Outcome.COMPLETED, 3)
    assert left(admin) == set()


def test_startup_options_that_the_pooler_refuses_are_told_in_one_line(command: Command, bouncer: PgBouncer) -> None:
    dsn = make_conninfo(bouncer.dsn, options="-c statement_timeout=5s")
    settings = {
        "ConnectionStrings__UserActivity": dsn,
        "ActivityRetention__MaxRunDuration": "1s",
    }  # no time for retries
    plan, run = command("plan", ACTIVITY.name, **settings), command("run", ACTIVITY.name, "--json", **settings)

    (problem,) = plan.problems
    assert problem.startswith("cannot connect: ")
    assert "unsupported startup parameter" in problem
    assert run.result["error"]["message"] == problem
    assert (plan.code, run.code) == (1, 1)


@pytest.mark.req("A-21")
def test_the_log_says_that_the_lock_is_taken_in_each_transaction(command: Command, admin: Admin) -> None:
    old_sessions(admin, 1)
    ended = command("run", ACTIVITY.name, "--json", "--log-format", "json")

    assert ended.log[0]["lock"] == "transaction"
    assert set(ended.result["deleted"].values()) == {1}


@pytest.mark.req("A-09", "H-04")
@pytest.mark.parametrize("name", ["nothing", "terminate"])
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_whatever_disturbs_them_no_two_runs_delete_at_once(
    database: Database, admin: Admin, mode: Mode, name: str
) -> None:
    with pgbouncer(database, mode, 20) as bouncer:
        storm(admin, [database.worker_dsn, bouncer.dsn], DISTURBANCES[name])
