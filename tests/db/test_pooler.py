"""Behind a pooler: it is noticed, one run at a time is still kept, and nothing stays on a server connection."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.report import BatchDone, Fact, Outcome, RunFinished, RunStarted
from tests.databases import Database
from tests.support import rows
from tests.support.command import Command, commands
from tests.support.gates import Gate, one
from tests.support.locks import LOCK
from tests.support.planted import left, old_favorites, old_sessions
from tests.support.rows import FAVORITES, SESSIONS
from tests.support.runs import ACTIVITY, GUESTS, job, unwatched_run
from tests.support.transaction_pooler import TransactionPooler, transaction_pooler
from tests.support.triggers import drop, on_delete

Admin = Connection[TupleRow]


@pytest.fixture(params=[1, 3], ids=["one backend", "three backends"])
def pooler(database: Database, request: pytest.FixtureRequest) -> Iterator[TransactionPooler]:
    with transaction_pooler(database, request.param) as pooler:
        yield pooler


@pytest.fixture
def three(database: Database) -> Iterator[TransactionPooler]:
    with transaction_pooler(database, 3) as pooler:
        yield pooler


@pytest.fixture
def command(database: Database, three: TransactionPooler) -> Iterator[Command]:
    with commands(three.dsn, database.server.password) as command:
        yield command


def holders(admin: Admin) -> list[int]:
    """The backends that hold the job's advisory lock, whichever kind of it."""
    query = """
        SELECT pid FROM pg_locks
         WHERE locktype = 'advisory' AND granted AND objsubid = 1
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND classid::bigint << 32 | objid::bigint = hashtextextended(%s, 0)
    """
    return [row[0] for row in admin.execute(query, [LOCK])]


@pytest.mark.req("A-09")
def test_the_lock_is_held_inside_each_batch_by_the_backend_that_deletes_and_never_between_batches(
    admin: Admin, pooler: TransactionPooler, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 6)
    gate.before_deleting(SESSIONS, sessions[3])
    between: list[list[int]] = []

    def look(_: Fact) -> None:
        between.append(holders(admin))

    running = threads.submit(unwatched_run, pooler.dsn, job(ACTIVITY, batch_size=2), on=look)
    gate.wait_for()
    (deleting,) = (row[0] for row in admin.execute("SELECT pid FROM pg_locks WHERE classid = 4711 AND NOT granted"))
    during = holders(admin)
    gate.open()
    ran = running.result()

    assert during == [deleting]
    assert deleting in pooler.pids
    assert [type(fact) for fact in ran.facts] == [RunStarted, *[BatchDone] * 3, RunFinished]
    assert between == [[]] * 5
    assert ran.started.pooled is True
    assert (ran.report.outcome, ran.report.batches) == (Outcome.COMPLETED, 3)
    assert left(admin) == set()


@pytest.mark.req("A-09")
def test_a_second_run_meanwhile_is_skipped_whichever_way_it_comes(
    database: Database, admin: Admin, three: TransactionPooler, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 4)
    gate.before_deleting(SESSIONS, sessions[1])
    running = threads.submit(unwatched_run, three.dsn, job(ACTIVITY, batch_size=2))
    gate.wait_for()
    others = [unwatched_run(dsn, job(ACTIVITY)).report for dsn in (three.dsn, database.worker_dsn)]
    gate.open()

    assert [(report.outcome, report.batches) for report in others] == [(Outcome.SKIPPED, 0)] * 2
    assert running.result().report.batches == 2
    assert left(admin) == set()


@pytest.mark.req("A-09")
def test_a_run_through_a_pooler_is_skipped_while_one_without_is_on(
    database: Database, admin: Admin, three: TransactionPooler, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 4)
    gate.before_deleting(SESSIONS, sessions[1])
    running = threads.submit(unwatched_run, database.worker_dsn, job(ACTIVITY, batch_size=2))
    gate.wait_for()
    skipped = unwatched_run(three.dsn, job(ACTIVITY))
    gate.open()

    assert [type(fact) for fact in skipped.facts] == [RunFinished]
    assert skipped.report.outcome is Outcome.SKIPPED
    assert running.result().report.batches == 2


@pytest.mark.req("A-09")
@pytest.mark.parametrize(("fact", "batches"), [(RunStarted, 0), (BatchDone, 1)], ids=["the first", "a later"])
def test_a_run_that_loses_the_lock_to_another_before_a_batch_deletes_no_more(
    database: Database, admin: Admin, three: TransactionPooler, fact: type[Fact], batches: int
) -> None:
    sessions = old_sessions(admin, 6)
    other = database.connect()

    def take(said: Fact) -> None:
        if isinstance(said, fact):
            other.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [LOCK])

    report = unwatched_run(three.dsn, job(ACTIVITY, batch_size=2), on=take).report

    assert report.outcome is (Outcome.STOPPED if batches else Outcome.SKIPPED)
    assert (report.batches, report.error) == (batches, None)
    assert left(admin) == set(sessions[2 * batches :])


@pytest.mark.req("A-09")
def test_a_run_needs_no_two_transactions_on_the_same_backend(admin: Admin, three: TransactionPooler) -> None:
    old_sessions(admin, 9)
    old_favorites(admin, 9)

    ran = [unwatched_run(three.dsn, job(policy, batch_size=1)) for policy in (ACTIVITY, GUESTS)]

    assert [each.report.outcome for each in ran] == [Outcome.COMPLETED] * 2
    assert [each.report.batches for each in ran] == [9, 9]
    assert [each.started.pooled for each in ran] == [True, True]
    assert set(three.used) == set(three.pids)
    assert left(admin) | rows.ids(admin, FAVORITES) == set()


Traces = dict[str, object]


def traces(pooler: TransactionPooler) -> Traces:
    """All that a client can leave behind on the one backend of a pooler, as the next client finds it."""
    with psycopg.connect(pooler.dsn, autocommit=True, prepare_threshold=None) as connection:
        assert one(connection, "SELECT pg_backend_pid()") == pooler.pids[0]
        connection.execute("DO $$ BEGIN END $$")  # plpgsql brings settings of its own when it is first used
        return {
            "settings": dict(connection.execute("SELECT name, setting FROM pg_settings").fetchall()),
            **{
                name: connection.execute(query.encode()).fetchall()
                for name, query in {
                    "prepared": "SELECT name FROM pg_prepared_statements",
                    "cursors": "SELECT name FROM pg_cursors WHERE name <> ''",
                    "locks": "SELECT locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
                    "temporary": "SELECT relname FROM pg_class WHERE relpersistence = 't'",
                    "channels": "SELECT pg_listening_channels()",
                }.items()
            },
        }


@pytest.mark.req("A-09")
def test_nothing_is_left_behind_on_a_server_connection_however_a_run_ends(database: Database, admin: Admin) -> None:
    sessions = old_sessions(admin, 24)
    with transaction_pooler(database, backends=1) as pooler:
        before = traces(pooler)
        poison = on_delete(admin, SESSIONS, "RAISE 'no'", key=sessions[8])

        failed = unwatched_run(pooler.dsn, job(ACTIVITY, batch_size=1)).report
        after_a_failure = traces(pooler)
        drop(admin, SESSIONS, poison)
        limited = unwatched_run(pooler.dsn, job(ACTIVITY, batch_size=1, max_batches=8)).report
        after_a_limit = traces(pooler)
        completed = unwatched_run(pooler.dsn, job(ACTIVITY, batch_size=1)).report
        after_completion = traces(pooler)

        assert [report.outcome for report in (failed, limited, completed)] == [
            Outcome.FAILED,
            Outcome.LIMIT_REACHED,
            Outcome.COMPLETED,
        ]
        assert [report.batches for report in (failed, limited, completed)] == [8, 8, 8]
        assert after_a_failure == after_a_limit == after_completion == before
        assert not any(left_behind for name, left_behind in before.items() if name != "settings")


@pytest.mark.req("A-09")
def test_what_a_client_does_leave_behind_would_be_seen(database: Database) -> None:
    with transaction_pooler(database, backends=1) as pooler:
        before = traces(pooler)
        with psycopg.connect(pooler.dsn, autocommit=True, prepare_threshold=0) as careless:
            careless.execute("SET statement_timeout = '17s'")
            careless.execute("SELECT pg_advisory_lock(%s)", [4711])
        after = traces(pooler)

    assert {name for name in before if before[name] != after[name]} == {"settings", "prepared", "locks"}


@pytest.mark.req("A-09", "A-21")
def test_the_log_and_the_plan_say_where_the_lock_is_taken(command: Command, database: Database, admin: Admin) -> None:
    old_sessions(admin, 2)
    direct = {"ConnectionStrings__UserActivity": database.worker_dsn}

    pooled = command("run", ACTIVITY.name, "--json", "--log-format", "json")
    without = command("run", ACTIVITY.name, "--json", "--log-format", "json", **direct)

    assert [ended.log[0]["lock"] for ended in (pooled, without)] == ["transaction", "session"]
    assert set(pooled.result["deleted"].values()) == {2}
    taken = f"{LOCK}, taken in every batch's transaction, since a pooler is in between"
    assert taken in command("plan", ACTIVITY.name).stdout
    assert taken not in command("plan", ACTIVITY.name, **direct).stdout
