"""Whether a database is there is seen on connections of its own, and told without waiting for it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from io import StringIO

import pytest
import structlog
from psycopg.conninfo import make_conninfo

from pgretention import readiness, web
from pgretention.clock import SystemClock
from pgretention.config import HostPort
from pgretention.demo.binaries import Binaries
from pgretention.demo.server import ThrowawayServer
from pgretention.errors import Fault
from pgretention.readiness import Away, Readiness, watching
from pgretention.session import Session, connect
from pgretention.sinks import logs
from pgretention.sinks.metrics import Metrics
from pgretention.stop import Stop
from tests.databases import Database
from tests.support.facts import ACTIVITY, GUEST, StandingClock
from tests.support.gates import one, until
from tests.support.rooms import room_of_its_own
from tests.support.scrapes import ask

SOON = timedelta(milliseconds=200)


@pytest.fixture(autouse=True)
def log() -> Iterator[StringIO]:
    stream = StringIO()
    logs.configure("json", "debug", stream)
    yield stream
    structlog.reset_defaults()


def events(log: StringIO) -> list[str]:
    return [json.loads(line)["event"] for line in log.getvalue().splitlines()]


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "readiness"]


def ready(state: Readiness) -> bool:
    return state.reasons() == []


@contextmanager
def silent_server() -> Generator[tuple[str, threading.Event]]:
    """Something that takes connections and says nothing: its connection string, and whether somebody has called."""
    called = threading.Event()
    callers: list[socket.socket] = []

    def take() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:  # shut down
                return
            callers.append(caller)
            called.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = threading.Thread(target=take)
        door.start()
        try:
            yield f"host=127.0.0.1 port={listener.getsockname()[1]} user=somebody password=nobody-may-know", called
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            door.join()
            for caller in callers:
                caller.close()


@pytest.mark.req("H-03")
def test_a_database_that_goes_away_and_comes_back_is_noticed_and_logged_once_each(
    binaries: Binaries, log: StringIO
) -> None:
    stop = Stop()
    with (
        room_of_its_own(),
        ThrowawayServer.start(binaries) as server,
        watching([(ACTIVITY.name, server.dsn())], stop=stop, clock=SystemClock(), every=SOON) as state,
    ):
        until(lambda: ready(state))
        assert events(log) == []
        server.shut_down()
        until(lambda: not ready(state))
        (reason,) = state.reasons()
        assert reason.startswith("database of activity-retention not seen for ")
        until(lambda: (away := state.away(ACTIVITY.name)) is not None and "cannot connect: " in str(away.why))
        assert state.away(GUEST.name) is None
        until(lambda: events(log) == ["database away"])
        server.bring_up()
        until(lambda: ready(state))
        assert state.away(ACTIVITY.name) is None
        until(lambda: events(log) == ["database away", "database back"])
        stop.request()
        assert state.reasons() == ["stopping"]
        said = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["level"], line["job"]) for line in said] == [("warning", ACTIVITY.name), ("info", ACTIVITY.name)]
    assert said[0]["kind"] == "connection"
    assert server.password not in log.getvalue()


def test_a_database_counts_as_there_for_ninety_seconds_after_it_was_last_seen(database: Database) -> None:
    clock = StandingClock()
    with watching([(GUEST.name, database.worker_dsn)], stop=Stop(), clock=clock) as state:
        until(lambda: ready(state))
        clock.wait(90)
        assert state.reasons() == []
        clock.wait(5)
        assert state.reasons() == ["database of guest-favorites-cleanup not seen for 95 s"]
        assert state.away(GUEST.name) == Away(timedelta(seconds=95), None)


@pytest.mark.req("H-03")
def test_the_probes_answer_while_a_database_takes_connections_and_says_nothing() -> None:
    metrics = Metrics([ACTIVITY], StandingClock())
    with (
        silent_server() as (dsn, called),
        watching([(ACTIVITY.name, dsn)], stop=Stop(), clock=SystemClock()) as state,
        web.serving(
            HostPort("127.0.0.1", 0),
            web.routes(dead=lambda: (), unready=state.reasons, metrics=metrics.exposition),
        ) as at,
    ):
        called.wait()
        answers = {path: ask(at, path) for path in ("/livez", "/readyz", "/metrics")}
        assert [thread.name for thread in watchers()] == ["readiness"], "it still waits for the database"
    assert {path: answer.status for path, answer in answers.items()} == {"/livez": 200, "/readyz": 503, "/metrics": 200}
    assert answers["/readyz"].text == "database of activity-retention not seen yet"


@pytest.mark.req("H-03")
def test_a_database_that_is_there_does_not_wait_for_one_that_is_silent(database: Database) -> None:
    with (
        silent_server() as (dsn, called),
        watching([(ACTIVITY.name, dsn), (GUEST.name, database.worker_dsn)], stop=Stop(), clock=SystemClock()) as state,
    ):
        called.wait()
        until(lambda: state.reasons() == ["database of activity-retention not seen yet"])


def test_a_stop_ends_a_look_at_once_even_at_a_silent_database_and_between_two_looks(database: Database) -> None:
    with silent_server() as (dsn, called):
        stop = Stop()
        jobs = [(ACTIVITY.name, dsn), (GUEST.name, database.worker_dsn)]
        with watching(jobs, stop=stop, clock=SystemClock(), every=timedelta(hours=1)):
            called.wait()
            stop.request()
            until(lambda: watchers() == [])


def test_jobs_on_one_database_share_one_look_and_are_both_named(database: Database) -> None:
    clock = StandingClock()
    jobs = [(ACTIVITY.name, database.worker_dsn), (GUEST.name, database.worker_dsn)]
    with watching(jobs, stop=Stop(), clock=clock) as state:
        assert len(watchers()) == 1
        until(lambda: ready(state))
        clock.wait(100)
        assert state.reasons() == ["database of activity-retention and guest-favorites-cleanup not seen for 100 s"]


def test_a_look_leaves_no_session_behind_and_is_not_taken_for_a_run(database: Database) -> None:
    admin = database.connect()
    with watching([(ACTIVITY.name, database.worker_dsn)], stop=Stop(), clock=SystemClock()) as state:
        until(lambda: ready(state))
        until(lambda: one(admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgret%'") == 0)


@pytest.mark.req("H-03", "H-05")
def test_why_a_database_is_away_is_in_the_log_and_no_secret_is_anywhere(database: Database, log: StringIO) -> None:
    dsn = make_conninfo(database.worker_dsn, password="guess-nobody-may-know")
    with watching([(ACTIVITY.name, dsn)], stop=Stop(), clock=SystemClock()) as state:
        until(lambda: events(log) == ["database away"])
        assert state.reasons() == ["database of activity-retention not seen yet"]
    assert "password authentication failed" in log.getvalue()
    assert "nobody-may-know" not in log.getvalue()


def test_whatever_goes_wrong_in_a_look_the_next_one_takes_place(
    database: Database, log: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles = [RuntimeError("can't start new thread"), OSError("a secret")]

    def dial(dsn: str, name: str, *, given_up: Callable[[], Fault | None]) -> AbstractContextManager[Session]:
        if troubles:
            raise troubles.pop()
        return connect(dsn, name, given_up=given_up)

    monkeypatch.setattr(readiness, "connect", dial)
    with watching([(GUEST.name, database.worker_dsn)], stop=Stop(), clock=SystemClock(), every=SOON) as state:
        until(lambda: ready(state))
        assert state.away(ACTIVITY.name) is None
        until(lambda: events(log) == ["database away", "database back"])
    assert "secret" not in log.getvalue()
