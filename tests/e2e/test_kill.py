"""Whatever is killed or cut, and whenever: a batch is gone whole or not at all, and the next run does the rest."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.databases import Database
from tests.support import rows
from tests.support.command import Command, Ended
from tests.support.gates import Gate, until, workers
from tests.support.lines import Loses, line
from tests.support.locks import assert_nothing_is_held
from tests.support.planted import left, old_favorites, old_sessions
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS

Admin = Connection[TupleRow]

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"
TWO_A_BATCH = {"ActivityRetention__BatchSize": "2", "Favorites__GuestRetention__BatchSize": "2"}
IMPATIENT = {"ActivityRetention__MaxRunDuration": "8s"}
"""Leaves no time for the last retries of a connection that does not come back."""


def first_child(gate: Gate, _: list[UUID]) -> None:
    gate.before_deleting(EVENTS)


def last_session(gate: Gate, sessions: list[UUID]) -> None:
    gate.before_deleting(SESSIONS, sessions[3])


def commit(gate: Gate, sessions: list[UUID]) -> None:
    gate.before_commit(SESSIONS, sessions[3])


MOMENTS = {
    "as its first child is deleted": first_child,
    "as its last session is deleted": last_session,
    "as its deferred constraints are checked": commit,
}
"""Where in a run of two sessions a batch, with seven of them, something happens."""

EACH_MOMENT = pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS.keys())
Moment = Callable[[Gate, list[UUID]], None]


def start(command: Command, job: str = ACTIVITY, **settings: str) -> subprocess.Popen[str]:
    return command.start("run", job, "--json", "--log-format", "json", **TWO_A_BATCH, **settings)


def counted(ended: Ended, kind: str) -> int:
    """How many batches a run that failed in this way has reported; its exit code and log say the same."""
    result: dict[str, Any] = ended.result
    assert ended.code == 1
    assert (result["outcome"], result["error"]["kind"], result["has_more"]) == ("failed", kind, False)
    assert set(result["deleted"].values()) == {2 * result["batches"]}
    assert ended.log[-1]["level"] == "error"
    assert ended.log[-1]["kind"] == kind
    batches = result["batches"]
    assert isinstance(batches, int)
    return batches


def assert_went_on(ended: Ended, sessions: int) -> None:
    """The run lost its connection, once or more, and has deleted that many sessions all the same, two a batch."""
    result: dict[str, Any] = ended.result
    assert (ended.code, result["outcome"], result["error"]) == (0, "completed", None)
    assert result["deleted"] == dict.fromkeys(map(str, (EVENTS, VIEWS, SESSIONS)), sessions)
    assert result["batches"] == (sessions + 1) // 2
    assert {line["kind"] for line in ended.log if line["event"] == "retry"} == {"connection"}


def assert_the_next_run_finishes(command: Command, admin: Admin, sessions: int) -> None:
    """No backend is left, the lock is free, and a run takes exactly what is there still."""
    assert_nothing_is_held(admin)
    ended = command("run", ACTIVITY, "--json")
    assert (ended.code, ended.result["outcome"]) == (0, "completed")
    assert ended.result["deleted"] == dict.fromkeys(map(str, (EVENTS, VIEWS, SESSIONS)), sessions)
    assert left(admin) == set()


@pytest.mark.req("A-12", "H-04")
@EACH_MOMENT
def test_a_process_killed_in_a_batch_leaves_it_whole_or_takes_it_whole(
    command: Command, admin: Admin, gate: Gate, moment: Moment
) -> None:
    sessions = old_sessions(admin, 7)
    kept = rows.active_session(admin)
    moment(gate, sessions)
    process = start(command)
    gate.wait_for()
    process.kill()
    assert process.wait() == -signal.SIGKILL
    gate.open()
    until(lambda: workers(admin) == [])

    there = rows.ids(admin, SESSIONS) - {kept}
    assert there in [set(sessions[gone:]) for gone in (0, 2, 4)]
    assert rows.ids(admin, EVENTS, "session_id") == rows.ids(admin, VIEWS, "session_id") == there
    admin.execute("DELETE FROM user_activity.sessions WHERE id = %s", [kept])
    assert_the_next_run_finishes(command, admin, len(there))


@pytest.mark.req("A-09", "H-04")
def test_while_the_server_has_not_noticed_that_a_process_is_dead_no_other_one_deletes(
    command: Command, admin: Admin, gate: Gate
) -> None:
    sessions = old_sessions(admin, 5)
    gate.before_deleting(SESSIONS, sessions[1])
    process = start(command)
    gate.wait_for()
    process.kill()
    process.wait()

    meanwhile = command("run", ACTIVITY, "--json")

    assert (meanwhile.code, meanwhile.result["outcome"]) == (0, "skipped")
    assert left(admin) == set(sessions)
    gate.open()
    assert_the_next_run_finishes(command, admin, 5)


@pytest.mark.req("F-11", "F-12", "H-04")
def test_a_process_killed_in_a_batch_of_favorites_holds_back_no_other_one(
    command: Command, admin: Admin, gate: Gate
) -> None:
    favorites = old_favorites(admin, 7)
    gate.before_deleting(FAVORITES, favorites[3])
    process = start(command, GUESTS)
    gate.wait_for()
    process.kill()
    process.wait()

    meanwhile = command("run", GUESTS, "--json")
    assert meanwhile.result["deleted"] == {str(FAVORITES): 3}
    assert rows.ids(admin, FAVORITES) == set(favorites[2:4])  # what the dead one has locked
    gate.open()
    until(lambda: workers(admin) == [])

    assert rows.ids(admin, FAVORITES) == set(favorites[2:4])
    assert command("run", GUESTS, "--json").result["deleted"] == {str(FAVORITES): 2}


@pytest.mark.req("A-12", "A-16", "H-04")
@EACH_MOMENT
def test_a_run_whose_backend_is_terminated_in_a_batch_goes_on_by_itself_and_counts_each_row_once(
    command: Command, admin: Admin, gate: Gate, moment: Moment
) -> None:
    sessions = old_sessions(admin, 7)
    moment(gate, sessions)
    process = start(command)
    gate.wait_for()
    (worker,) = workers(admin)
    admin.execute("SELECT pg_terminate_backend(%s)", [worker])
    until(lambda: worker not in workers(admin))
    gate.open()

    assert_went_on(command.end(process), 7)
    assert left(admin) == set()
    assert_the_next_run_finishes(command, admin, 0)


@pytest.mark.req("A-12", "A-16", "H-04")
@EACH_MOMENT
def test_a_run_whose_server_crashes_in_a_batch_goes_on_when_it_is_back_and_counts_each_row_once(
    command: Command, database: Database, admin: Admin, gate: Gate, moment: Moment
) -> None:
    sessions = old_sessions(admin, 7)
    moment(gate, sessions)
    process = start(command)
    gate.wait_for()
    database.server.restart("immediate")

    assert_went_on(command.end(process), 7)
    admin = database.connect()
    assert left(admin) == set()
    assert_the_next_run_finishes(command, admin, 0)


@pytest.mark.req("A-12", "H-04")
@EACH_MOMENT
def test_a_connection_cut_in_a_batch_fails_the_run_and_the_server_leaves_no_half(
    command: Command, database: Database, admin: Admin, gate: Gate, moment: Moment
) -> None:
    sessions = old_sessions(admin, 7)
    moment(gate, sessions)
    with line(database) as wire:
        process = start(command, ConnectionStrings__UserActivity=wire.dsn, **IMPATIENT)
        gate.wait_for()
        wire.cut()
        ended = command.end(process)

    batches = counted(ended, "connection")
    gate.open()
    until(lambda: workers(admin) == [])
    assert left(admin) == set(sessions[2 * batches :])
    assert_the_next_run_finishes(command, admin, 7 - 2 * batches)


@pytest.mark.req("A-12", "A-15", "H-04")
@pytest.mark.parametrize(("loses", "gone"), [(Loses.ANSWER, 4), (Loses.QUESTION, 2)], ids=["answer", "question"])
def test_a_commit_that_nobody_answers_is_reported_as_unknown_and_not_counted(
    command: Command, database: Database, admin: Admin, loses: Loses, gone: int
) -> None:
    sessions = old_sessions(admin, 7)
    with line(database, loses, at_batch=2) as wire:
        ended = command.end(start(command, ConnectionStrings__UserActivity=wire.dsn))

    assert counted(ended, "commit_unknown") == 1
    assert {UUID(key) for key in ended.result["error"]["keys"]} == set(sessions[2:4])
    assert ended.log[-1]["batch_ids"] == ended.result["error"]["keys"]
    until(lambda: workers(admin) == [])
    assert left(admin) == set(sessions[gone:])
    assert_the_next_run_finishes(command, admin, 7 - gone)


@pytest.mark.req("F-11", "H-04")
def test_a_commit_of_favorites_that_nobody_answers_is_reported_as_unknown_and_not_counted(
    command: Command, database: Database, admin: Admin
) -> None:
    favorites = old_favorites(admin, 5)
    with line(database, Loses.ANSWER, at_batch=1) as wire:
        ended = command.end(start(command, GUESTS, ConnectionStrings__Favorites=wire.dsn))

    assert counted(ended, "commit_unknown") == 0
    assert rows.ids(admin, FAVORITES) == set(favorites[2:])
    assert command("run", GUESTS, "--json").result["deleted"] == {str(FAVORITES): 3}


@pytest.mark.req("A-15", "H-04")
def test_a_connection_lost_before_the_first_batch_leaves_nothing_in_doubt(
    command: Command, database: Database, admin: Admin
) -> None:
    sessions = old_sessions(admin, 3)
    with line(database, Loses.QUESTION, at_batch=0) as wire:  # the end of the transaction that takes the lock
        ended = command.end(start(command, ConnectionStrings__UserActivity=wire.dsn, **IMPATIENT))

    assert counted(ended, "connection") == 0
    assert left(admin) == set(sessions)
    assert_the_next_run_finishes(command, admin, 3)
