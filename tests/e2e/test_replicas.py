"""Several workers on one database: no row twice, no lock that stays behind, and whoever is killed is replaced."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tests.databases import WORKER, Database
from tests.support import rows
from tests.support.command import Command
from tests.support.gates import Gate, one, until, workers
from tests.support.planted import left, old_favorites, old_sessions
from tests.support.rows import EVENTS, FAVORITES, SESSIONS
from tests.support.triggers import on_delete
from tests.support.workers import ACTIVITY, GUESTS, Worker, every_minute, just_now

Admin = Connection[TupleRow]

TWO_A_BATCH = {"ActivityRetention__BatchSize": "2", "Favorites__GuestRetention__BatchSize": "2"}


@pytest.fixture
def deletions(admin: Admin) -> None:
    """Every deletion that is committed leaves a row, so that one which happened twice would be seen."""
    admin.execute("CREATE TABLE public.deletions (id uuid)")
    for table in SESSIONS, FAVORITES:
        on_delete(admin, table, "INSERT INTO public.deletions VALUES (OLD.id)")


def deleted_once(admin: Admin) -> object:
    """How many rows were deleted, none of them twice."""
    assert one(admin, "SELECT count(*) = count(DISTINCT id) FROM public.deletions") is True
    return one(admin, "SELECT count(*) FROM public.deletions")


def assert_no_lock_is_left(admin: Admin) -> None:
    until(lambda: workers(admin) == [])
    query = """
        SELECT count(*) FROM pg_locks
         WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    """
    assert one(admin, query) == 0


def until_one_holds(replicas: Sequence[Worker], gate: Gate) -> Worker:
    """Wait until one is in a batch, behind the gate, and the others have found the lock taken."""
    gate.wait_for()
    until(lambda: sum(bool(each.said("skipped")) for each in replicas) == len(replicas) - 1)
    (holder,) = [each for each in replicas if not each.said("skipped")]
    return holder


def totals(replica: Worker) -> list[int]:
    """The sessions that each of its runs deleted."""
    return [line["deleted_sessions"] for line in replica.said("completed")]


@pytest.mark.req("A-09", "H-01")
@pytest.mark.usefixtures("deletions")
def test_of_three_workers_whose_job_is_due_one_deletes_and_the_others_skip(
    command: Command, admin: Admin, gate: Gate
) -> None:
    old_sessions(admin, 7)
    gate.before_deleting(SESSIONS)
    replicas = [Worker(command, ACTIVITY, **TWO_A_BATCH, **just_now()) for _ in range(3)]
    holder = until_one_holds(replicas, gate)
    gate.open()
    holder.until_said("completed")

    assert [each.end().code for each in replicas] == [0, 0, 0]

    assert sorted(map(totals, replicas)) == [[], [], [7]]
    for each in replicas:
        if each is not holder:
            (skipped,) = each.said("skipped")
            assert (skipped["level"], skipped["reason"]) == ("info", "another run holds the lock")
            assert each.said("started") == []
    assert (deleted_once(admin), left(admin)) == (7, set())
    assert_no_lock_is_left(admin)


@pytest.mark.req("A-09", "H-04")
@pytest.mark.usefixtures("deletions")
def test_when_the_worker_that_holds_the_lock_is_killed_the_next_run_of_another_takes_the_rest(
    command: Command, admin: Admin, gate: Gate
) -> None:
    sessions = old_sessions(admin, 7)
    gate.before_deleting(SESSIONS, sessions[3])
    replicas = [Worker(command, ACTIVITY, **TWO_A_BATCH, **every_minute(next_in=15)) for _ in range(2)]
    holder = until_one_holds(replicas, gate)
    (other,) = [each for each in replicas if each is not holder]
    holder.process.kill()
    assert holder.ended().code == -signal.SIGKILL
    gate.open()
    until(lambda: workers(admin) == [])
    gone = 7 - len(left(admin))
    assert gone == deleted_once(admin)
    assert gone in {0, 2, 4}

    other.until_said("completed")

    assert other.end().code == 0
    assert totals(other) == [7 - gone]
    assert (deleted_once(admin), left(admin)) == (7, set())
    assert_no_lock_is_left(admin)


@pytest.mark.req("A-09", "A-16", "H-03", "H-04")
@pytest.mark.usefixtures("deletions")
def test_when_the_backend_that_holds_the_lock_is_terminated_no_row_goes_twice_and_the_lock_is_free_again(
    command: Command, admin: Admin, gate: Gate
) -> None:
    sessions = old_sessions(admin, 7)
    gate.before_deleting(SESSIONS, sessions[3])
    replicas = [Worker(command, ACTIVITY, **TWO_A_BATCH, **every_minute(next_in=15)) for _ in range(2)]
    holder = until_one_holds(replicas, gate)
    (backend,) = workers(admin)
    admin.execute("SELECT pg_terminate_backend(%s)", [backend])
    assert holder.until_said("retry")["kind"] == "connection"
    gate.open()

    holder.until_said("completed")
    old_sessions(admin, 3)
    for each in replicas:
        each.until_said("scheduled", times=3)  # at the start, and after each of two runs

    assert [each.end().code for each in replicas] == [0, 0]
    assert totals(holder)[0] == 7
    assert sum(totals(replicas[0]) + totals(replicas[1])) == 10
    assert (deleted_once(admin), left(admin)) == (10, set())
    assert_no_lock_is_left(admin)


@pytest.mark.req("A-09", "A-16", "H-03")
@pytest.mark.usefixtures("deletions")
def test_a_role_whose_idle_sessions_are_ended_after_a_second_keeps_its_lock_while_a_run_waits_for_another_try(
    command: Command, database: Database, admin: Admin
) -> None:
    for setting in "idle_session_timeout", "idle_in_transaction_session_timeout":
        admin.execute(
            sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = '1s'").format(
                sql.Identifier(WORKER), sql.Identifier(database.name), sql.Identifier(setting)
            )
        )
    old_sessions(admin, 5)
    application = database.connect()
    application.execute("BEGIN")
    application.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(sql.Identifier(EVENTS.schema, EVENTS.name)))
    holder = Worker(command, ACTIVITY, **TWO_A_BATCH, **just_now())
    waiting = holder.until_said("retry", attempt=2)
    assert (waiting["kind"], waiting["wait"] > 1) == ("lock_timeout", True)
    other = Worker(command, ACTIVITY, **TWO_A_BATCH, **just_now())
    other.until_said("skipped")
    holder.until_said("retry", attempt=3)
    application.execute("ROLLBACK")

    holder.until_said("completed")

    assert [each.end().code for each in (holder, other)] == [0, 0]
    assert (totals(holder), totals(other)) == ([5], [])
    assert {line["kind"] for line in holder.said("retry")} == {"lock_timeout"}
    assert (deleted_once(admin), left(admin)) == (5, set())
    assert_no_lock_is_left(admin)


@pytest.mark.req("F-05", "H-04")
@pytest.mark.usefixtures("deletions")
def test_four_workers_share_the_favorites_and_when_one_is_killed_nothing_goes_twice(
    command: Command, admin: Admin, gate: Gate
) -> None:
    for _ in range(12):
        old_favorites(admin, 28)
    gate.before_deleting(FAVORITES)
    settings = {"Favorites__GuestRetention__BatchSize": "7"}
    replicas = [Worker(command, GUESTS, **settings, **just_now()) for _ in range(4)]
    gate.wait_for(4)
    killed = replicas.pop()
    killed.process.kill()
    assert killed.ended().code == -signal.SIGKILL
    gate.open()
    counts = [replica.until_said("job completed")["deletedTotal"] for replica in replicas]
    assert [each.end().code for each in replicas] == [0, 0, 0]
    until(lambda: workers(admin) == [])

    of_the_dead = 336 - sum(counts) - len(rows.ids(admin, FAVORITES))
    assert of_the_dead in {0, 7}  # its batch, whole or not at all
    assert min(counts) >= 7
    assert deleted_once(admin) == sum(counts) + of_the_dead

    rest = Worker(command, GUESTS, **settings, **just_now())
    rest.until_said("job completed")
    assert rest.end().code == 0
    assert (deleted_once(admin), rows.ids(admin, FAVORITES)) == (336, set())


@pytest.mark.req("F-05", "H-01", "H-04")
@pytest.mark.usefixtures("deletions")
def test_workers_of_favorites_whose_server_restarts_share_what_is_left_at_their_next_run(
    command: Command, database: Database, admin: Admin, gate: Gate
) -> None:
    old_favorites(admin, 20)
    gate.before_deleting(FAVORITES)
    replicas = [Worker(command, GUESTS, **TWO_A_BATCH, **every_minute(next_in=15)) for _ in range(2)]
    gate.wait_for(2)
    database.server.restart("fast")
    failed = [replica.until_said("job failed") for replica in replicas]
    assert [(line["kind"], line["deletedTotal"]) for line in failed] == [("connection", 0)] * 2

    counts = [replica.until_said("job completed")["deletedTotal"] for replica in replicas]

    assert [each.end().code for each in replicas] == [0, 0]
    admin = database.connect()
    assert sum(counts) == deleted_once(admin) == 20
    assert rows.ids(admin, FAVORITES) == set()
