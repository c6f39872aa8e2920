"""The worker as a service manager sees it: it runs what is due, survives what goes wrong, and ends when told."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import termios
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.databases import Database
from tests.support import rows
from tests.support.command import Command, states, until_heard
from tests.support.gates import Gate, until
from tests.support.locks import assert_nothing_is_held
from tests.support.planted import left, old_favorites, old_sessions
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS
from tests.support.workers import ACTIVITY, GUESTS, Worker, daily, every_minute, just_now, not_today, soon

Admin = Connection[TupleRow]

_PIPE = 4096
"""The smallest that a pipe can be, in bytes."""

TWO_A_BATCH = {"ActivityRetention__BatchSize": "2", "Favorites__GuestRetention__BatchSize": "2"}
EACH = pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT], ids=lambda ending: ending.name)


@pytest.mark.req("H-02")
@EACH
def test_an_idle_worker_ends_on_the_first_signal(alone: Command, ending: signal.Signals) -> None:
    worker = Worker(alone, **not_today())
    for job in ACTIVITY, GUESTS:
        worker.until_said("scheduled", job=job)

    ended = worker.end(ending)

    assert (ended.code, ended.stdout) == (0, "")
    events = [line["event"] for line in ended.log]
    assert events == ["worker started", "scheduled", "scheduled", "stopping", "worker ended"]
    assert ended.log[0]["jobs"] == [ACTIVITY, GUESTS]
    assert ended.log[0]["version"]
    assert {line["level"] for line in ended.log} == {"info"}


@pytest.mark.req("A-08", "H-01")
def test_the_next_run_is_told_at_the_start_in_the_zone_of_the_schedule_and_in_utc(alone: Command) -> None:
    tokyo = {"Favorites__GuestRetention__Cron": "30 15 * * *", "Favorites__GuestRetention__TimeZone": "Asia/Tokyo"}
    worker = Worker(alone, **tokyo)
    by_default = worker.until_said("scheduled", job=ACTIVITY)
    as_set = worker.until_said("scheduled", job=GUESTS)
    assert worker.end().code == 0

    for line, zone, local, utc in [
        (by_default, "Europe/Moscow", "03:00:00+03:00", "00:00:00+00:00"),
        (as_set, "Asia/Tokyo", "15:30:00+09:00", "06:30:00+00:00"),
    ]:
        assert line["zone"] == zone
        assert line["next_run"].partition("T")[2] == local
        assert line["next_run_utc"].partition("T")[2] == utc
        due = datetime.fromisoformat(line["next_run"])
        assert due == datetime.fromisoformat(line["next_run_utc"])
        said = datetime.fromisoformat(line["timestamp"])
        assert said < due <= said + timedelta(days=1)


@pytest.mark.req("A-08", "H-01")
def test_one_worker_runs_both_jobs_when_they_are_due(command: Command, admin: Admin) -> None:
    old_sessions(admin, 3)
    old_favorites(admin, 3)
    due = soon()
    worker = Worker(command, **daily(due))

    sessions = worker.until_said("completed", job=ACTIVITY)
    favorites = worker.until_said("job completed", job=GUESTS)
    again = [worker.until_said("scheduled", times=2, job=job) for job in (ACTIVITY, GUESTS)]
    ended = worker.end()

    assert ended.code == 0
    assert (sessions["deleted_sessions"], favorites["deletedTotal"]) == (3, 3)
    assert left(admin) == rows.ids(admin, FAVORITES) == set()
    first = [line for line in ended.log if line["event"] == "scheduled"][:2]
    assert [datetime.fromisoformat(line["next_run_utc"]) for line in first] == [due, due]
    assert [datetime.fromisoformat(line["next_run_utc"]) for line in again] == [due + timedelta(days=1)] * 2
    began = [line["timestamp"] for line in ended.log if line["event"] in {"started", "job started"}]
    assert all(datetime.fromisoformat(each) >= due for each in began)


@pytest.mark.req("H-01")
def test_what_came_due_while_no_worker_was_up_runs_at_the_start(command: Command, admin: Admin) -> None:
    old_favorites(admin, 3)
    worker = Worker(command, **just_now())
    assert worker.until_said("job completed")["deletedTotal"] == 3
    assert worker.end().code == 0
    assert rows.ids(admin, FAVORITES) == set()


@pytest.mark.req("H-02")
@EACH
def test_a_signal_during_a_batch_lets_it_commit_and_ends_the_worker(
    command: Command, admin: Admin, gate: Gate, ending: signal.Signals
) -> None:
    sessions = old_sessions(admin, 7)
    gate.before_deleting(SESSIONS, sessions[3])
    worker = Worker(command, ACTIVITY, **TWO_A_BATCH, **just_now())
    gate.wait_for()
    worker.process.send_signal(ending)
    until_heard(worker.process)
    gate.open()

    ended = worker.ended()

    assert ended.code == 0
    (completed,) = worker.said("completed")
    assert (completed["outcome"], completed["batches"], completed["has_more"]) == ("stopped", 2, True)
    assert ended.log[-1]["event"] == "worker ended"
    assert left(admin) == set(sessions[4:])
    assert_nothing_is_held(admin)


@pytest.mark.req("H-02")
def test_a_batch_that_outlasts_the_shutdown_timeout_is_cancelled_and_nothing_of_it_is_gone(
    command: Command, admin: Admin, gate: Gate
) -> None:
    sessions = old_sessions(admin, 7)
    gate.before_deleting(SESSIONS, sessions[3])
    worker = Worker(command, **TWO_A_BATCH, **just_now(), Host__ShutdownTimeout="1s")
    gate.wait_for()

    ended = worker.end()  # although the gate is still closed

    assert ended.code == 0
    (completed,) = worker.said("completed")
    assert (completed["outcome"], completed["batches"]) == ("stopped", 1)
    assert_nothing_is_held(admin)
    assert left(admin) == set(sessions[2:])


@pytest.mark.req("H-02")
def test_a_second_signal_does_not_wait_for_the_shutdown_timeout(command: Command, admin: Admin, gate: Gate) -> None:
    favorites = old_favorites(admin, 5)
    gate.before_deleting(FAVORITES, favorites[3])
    worker = Worker(command, **TWO_A_BATCH, **just_now(), Host__ShutdownTimeout="1h")
    gate.wait_for()
    worker.process.terminate()
    until_heard(worker.process)

    ended = worker.end()

    assert ended.code == 0
    assert rows.ids(admin, FAVORITES) == set(favorites[2:])


@pytest.mark.req("H-02")
def test_a_worker_that_gets_no_answer_while_connecting_ends_on_the_first_signal(alone: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"host=127.0.0.1 port={silent.getsockname()[1]}"
        worker = Worker(alone, GUESTS, ConnectionStrings__Favorites=dsn, **just_now())
        client, _ = silent.accept()
        with client:
            ended = worker.end()

    assert ended.code == 0
    (completed,) = worker.said("job completed")
    assert (completed["outcome"], completed["batches"]) == ("stopped", 0)


@pytest.mark.req("H-01")
def test_a_worker_that_was_suspended_over_its_time_runs_once_when_it_wakes(command: Command, admin: Admin) -> None:
    old_favorites(admin, 3)
    due = soon()
    worker = Worker(command, GUESTS, **daily(due))
    worker.until_said("scheduled")
    worker.process.send_signal(signal.SIGSTOP)
    until(lambda: datetime.now(UTC) > due + timedelta(seconds=1))
    worker.process.send_signal(signal.SIGCONT)
    worker.until_said("scheduled", times=2)

    ended = worker.end()

    assert ended.code == 0
    events = [line["event"] for line in ended.log]
    assert [event for event in events if event != "catching up"] == [  # which depends on how late it is
        "worker started",
        "scheduled",
        "job started",
        "batch deleted",
        "job completed",
        "scheduled",
        "stopping",
        "worker ended",
    ]
    assert rows.ids(admin, FAVORITES) == set()


@pytest.mark.req("H-01")
def test_a_job_that_fails_every_time_stops_neither_itself_nor_the_other(command: Command, admin: Admin) -> None:
    old_sessions(admin, 2)
    nobody = {"ConnectionStrings__Favorites": "host=127.0.0.1 port=1"}
    worker = Worker(command, **every_minute(next_in=6), **nobody)
    worker.until_said("job failed", job=GUESTS)
    assert worker.until_said("completed", job=ACTIVITY)["deleted_sessions"] == 2
    old_sessions(admin, 3)
    worker.until_said("job failed", times=2, job=GUESTS)
    assert worker.until_said("completed", times=2, job=ACTIVITY)["deleted_sessions"] == 3

    assert worker.end().code == 0
    assert left(admin) == set()


@pytest.mark.req("H-03")
def test_a_database_that_is_away_at_the_start_is_found_by_the_next_run(
    command: Command, database: Database, admin: Admin
) -> None:
    old_favorites(admin, 3)
    database.server.shut_down()
    try:
        worker = Worker(command, GUESTS, **every_minute(next_in=6))
        assert worker.until_said("job failed")["kind"] == "connection"
        worker.until_said("scheduled", times=2)
    finally:
        database.server.bring_up()

    assert worker.until_said("job completed")["deletedTotal"] == 3
    ended = worker.end()
    assert ended.code == 0
    assert rows.ids(database.connect(), FAVORITES) == set()


@pytest.mark.req("H-03")
def test_a_run_that_never_reached_its_database_takes_place_again_without_waiting_for_its_schedule(
    command: Command, database: Database, admin: Admin
) -> None:
    old_favorites(admin, 3)
    database.server.shut_down()
    try:
        worker = Worker(command, GUESTS, **just_now())
        retry = worker.until_said("job retry")
        assert (retry["attempt"], retry["kind"]) == (1, "connection")
    finally:
        database.server.bring_up()

    assert worker.until_said("job completed")["deletedTotal"] == 3
    assert worker.end().code == 0
    assert rows.ids(database.connect(), FAVORITES) == set()


@pytest.mark.req("A-16", "H-03")
def test_a_database_that_goes_away_while_the_worker_is_idle_and_is_back_before_the_retries_are_used_up_is_cleaned(
    command: Command, database: Database, admin: Admin
) -> None:
    old_sessions(admin, 3)
    worker = Worker(command, ACTIVITY, **daily(soon()))
    worker.until_said("scheduled")
    database.server.shut_down()
    try:
        worker.until_said("retry")
    finally:
        database.server.bring_up()

    assert worker.until_said("completed")["deleted_sessions"] == 3
    assert worker.end().code == 0
    assert left(database.connect()) == set()


@pytest.mark.req("H-01", "H-03", "H-04")
def test_a_worker_lives_through_a_crash_of_its_server_in_a_batch_and_the_next_run_takes_the_rest(
    command: Command, database: Database, admin: Admin, gate: Gate
) -> None:
    favorites = old_favorites(admin, 5)
    gate.before_deleting(FAVORITES, favorites[3])
    worker = Worker(command, GUESTS, **TWO_A_BATCH, **every_minute(next_in=8))
    gate.wait_for()
    database.server.restart("immediate")
    assert worker.until_said("job failed")["deletedTotal"] == 2

    assert worker.until_said("job completed")["deletedTotal"] == 3
    assert worker.end().code == 0
    assert rows.ids(database.connect(), FAVORITES) == set()


@pytest.mark.req("H-01")
def test_only_the_jobs_that_are_switched_on_run(command: Command, admin: Admin) -> None:
    sessions = old_sessions(admin, 2)
    old_favorites(admin, 2)
    off = {"ActivityRetention__Enabled": "false"}
    worker = Worker(command, **off, **just_now())
    worker.until_said("job completed", job=GUESTS)
    ended = worker.end()
    assert {line["job"] for line in ended.log if "job" in line} == {GUESTS}
    assert left(admin) == set(sessions)

    named = command("worker", ACTIVITY, **off, **just_now())

    assert (named.code, named.stdout) == (2, "")
    assert named.problems == [f"{ACTIVITY} is switched off; set ActivityRetention:Enabled to true to run it"]
    assert left(admin) == set(sessions)


def test_of_jobs_that_are_named_each_runs_once(command: Command, admin: Admin) -> None:
    old_sessions(admin, 2)
    named = Worker(command, ACTIVITY, ACTIVITY, **just_now())
    assert named.until_said("completed", job=ACTIVITY)["deleted_sessions"] == 2
    ended = named.end()
    assert {line["job"] for line in ended.log if "job" in line} == {ACTIVITY}
    assert len(named.said("started")) == 1


@pytest.mark.req("H-01")
def test_a_run_that_is_made_up_for_says_what_was_due_and_how_late_it_is(command: Command, admin: Admin) -> None:
    old_favorites(admin, 1)
    worker = Worker(command, GUESTS, **just_now())
    worker.until_said("job completed")
    ended = worker.end()

    (catching_up,) = worker.said("catching up")
    assert datetime.fromisoformat(catching_up["due"]) == datetime.fromisoformat(catching_up["due_utc"])
    assert 60 <= catching_up["late"] < 3600
    events = [line["event"] for line in ended.log]
    assert events.index("catching up") < events.index("job started")


@pytest.mark.req("H-02")
def test_a_worker_whose_log_nobody_reads_ends_all_the_same(command: Command, admin: Admin) -> None:
    """Its log is a pipe that is full."""
    favorites = [key for _ in range(10) for key in old_favorites(admin, 20)]
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as full:
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE)
        settings = just_now() | {"Http__Listen": "off", "Favorites__GuestRetention__BatchSize": "1"}
        process = command.start_into(full, full, "worker", GUESTS, Host__ShutdownTimeout="1s", **settings)
        until(lambda: waiting_in(read) > _PIPE - 300 and states(process.pid) <= {"S"})  # no room for another line
        process.terminate()
        code = process.wait()
    assert code == 1
    gone = len(favorites) - len(rows.ids(admin, FAVORITES))
    assert 0 < gone < len(favorites)


def waiting_in(pipe: int) -> int:
    """How many bytes are in a pipe that nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_log_that_cannot_be_written_stops_no_run(command: Command, admin: Admin) -> None:
    old_favorites(admin, 3)
    with Path("/dev/full").open("w") as full:
        settings = just_now() | {"Http__Listen": "off"}
        process = command.start_into(full, full, "worker", GUESTS, **settings)
        until(lambda: rows.ids(admin, FAVORITES) == set())
        process.terminate()
        assert command.end(process).code == 0


@pytest.mark.req("H-05")
def test_a_worker_without_a_job_or_with_an_unknown_one_is_exit_2(alone: Command) -> None:
    off = {"ActivityRetention__Enabled": "false", "Favorites__GuestRetention__Enabled": "false"}

    nothing = alone("worker", **off)
    unknown = alone("worker", ACTIVITY, "guest-favorites-clean")

    assert nothing.code == unknown.code == 2
    (line,) = nothing.problems
    assert line.startswith("every job is switched off: set ActivityRetention:Enabled or Favorites:GuestRetention:Enabl")
    assert unknown.problems == [f"no job is called guest-favorites-clean; did you mean {GUESTS}?"]


@pytest.mark.req("A-07", "A-08", "F-04", "H-05")
@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("ActivityRetention__RetentionSchedule", "0 3 31 2 *", "no such date"),
        ("ActivityRetention__RetentionSchedule", "0 3 30 2 *", "no such date"),
        ("ActivityRetention__RetentionSchedule", "'0 0 3 * * *'", "the quotes are part of the value"),
        ("Favorites__GuestRetention__Cron", '"0 3 * * *"', "the quotes are part of the value"),
        ("Favorites__GuestRetention__Cron", "@daily", "@daily"),
        ("Favorites__GuestRetention__Cron", "0 24 * * *", "hour"),
        ("Favorites__GuestRetention__Cron", "", "empty"),
        ("Favorites__GuestRetention__TimeZone", "CST", "full IANA name"),
        ("Favorites__GuestRetention__TimeZone", "EST5EDT", "full IANA name"),
        ("ActivityRetention__TimeZone", "MSK", "full IANA name"),
        ("Host__ShutdownTimeout", "25", "duration"),
        ("Host__MisfireGrace", "-1h", "duration"),
    ],
)
def test_a_worker_that_could_never_run_as_told_does_not_start(
    alone: Command, setting: str, value: str, why: str
) -> None:
    both = {setting: value, "ActivityRetention__BatchSize": "0"}

    ended = alone("worker", **both)

    assert (ended.code, ended.stdout) == (2, "")
    batch, wrong = sorted(ended.problems, key=lambda line: setting in line)
    assert "ActivityRetention:BatchSize" in batch
    assert setting.replace("__", ":") in wrong
    assert why in wrong


@pytest.mark.req("A-01", "A-02")
def test_what_a_worker_deletes_is_what_a_run_deletes(command: Command, admin: Admin) -> None:
    old_sessions(admin, 4)
    kept = rows.active_session(admin)
    worker = Worker(command, ACTIVITY, **just_now())

    completed = worker.until_said("completed")
    assert worker.end().code == 0

    names = [f"deleted_{table.name}" for table in (EVENTS, VIEWS, SESSIONS)]
    assert [completed[name] for name in names] == [4, 4, 4]
    assert rows.ids(admin, SESSIONS) == {kept}


def test_ctrl_c_reaches_the_whole_process_group_and_the_worker_still_ends_well(alone: Command) -> None:
    worker = Worker(alone, **not_today())
    worker.until_said("scheduled", times=2)
    os.killpg(worker.process.pid, signal.SIGINT)
    assert worker.ended().code == 0
