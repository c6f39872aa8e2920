"""The worker as Kubernetes and Prometheus see it: a process that answers over HTTP."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.config import HostPort
from pgretention.demo.server import free_port
from pgretention.service import without_thread
from pgretention.stop import Stop
from tests.databases import Database
from tests.support import planted, rows
from tests.support.command import Command, until_heard
from tests.support.gates import Gate, until
from tests.support.planted import HIDDEN, expired, old_sessions, plant
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS
from tests.support.scrapes import Answer, ask, series

Admin = Connection[TupleRow]

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"
AT_START = {"Host__MisfireGrace": "1d"}
"""A daily job that was not run since its last time runs when the worker starts, and not again before tomorrow."""

PATHS = ("/livez", "/readyz", "/metrics")


def somewhere() -> HostPort:
    return HostPort("127.0.0.1", free_port())


def start(command: Command, at: HostPort, *jobs: str, **settings: str) -> subprocess.Popen[str]:
    listen = {"Http__Listen": str(at)}
    return command.start("worker", *jobs, "--log-format", "json", **AT_START, **listen, **settings)


def answers(at: HostPort, path: str = "/livez") -> Answer | None:
    """What is answered, if somebody listens by now."""
    with suppress(ConnectionRefusedError):
        return ask(at, path)
    return None


def until_it_says(at: HostPort, path: str, status: int) -> Answer:
    said: list[Answer] = []

    def so() -> bool:
        answer = answers(at, path)
        if answer is not None and answer.status == status:
            said.append(answer)
        return bool(said)

    until(so)
    return said[0]


def scrape(at: HostPort) -> dict[str, float]:
    answer = answers(at, "/metrics")
    return {} if answer is None else series(answer.text)


def of(values: Mapping[str, float], name: str, job: str, **labels: str) -> float:
    inside = ",".join(f'{label}="{value}"' for label, value in {"job": job, **labels}.items())
    return values.get(f"{name}{{{inside}}}", 0)


@pytest.mark.req("A-22", "F-15", "H-06")
def test_the_metrics_after_a_run_are_what_sql_counted_before_it(
    command: Command, database: Database, admin: Admin
) -> None:
    plant(admin)
    due = expired(admin)
    assert all(due.values())
    at = somewhere()
    worker = start(command, at, Favorites__GuestRetention__BatchSize="2")
    until_it_says(at, "/readyz", 200)
    until(lambda: all(of(scrape(at), "pgretention_runs_total", job, outcome="completed") for job in (ACTIVITY, GUESTS)))
    values = scrape(at)
    said = [ask(at, path) for path in (*PATHS, "/nowhere")]
    worker.terminate()
    ended = command.end(worker)

    assert ended.code == 0
    for job, tables in ((ACTIVITY, (EVENTS, VIEWS, SESSIONS)), (GUESTS, (FAVORITES,))):
        counted = {str(t): of(values, "pgretention_deleted_rows_total", job, table=str(t)) for t in tables}
        assert counted == {str(table): due[str(table)] for table in tables}
        assert of(values, "pgretention_backlog_rows", job) == of(values, "pgretention_drain_eta_seconds", job) == 0
        last = of(values, "pgretention_last_success_timestamp_seconds", job)
        assert 0 < last < of(values, "pgretention_next_run_timestamp_seconds", job)
    assert values["activity_retention_deleted_action_events_total"] == due[str(EVENTS)]
    assert values["activity_retention_deleted_property_object_views_total"] == due[str(VIEWS)]
    assert values["activity_retention_deleted_sessions_total"] == due[str(SESSIONS)]
    assert values["activity_retention_eligible_backlog"] == due[str(SESSIONS)]
    assert values["activity_retention_batches_processed_total"] == 1
    assert values["activity_retention_run_duration_seconds_count"] == 1
    assert values["favorites_guest_cleanup_deleted_total"] == due[str(FAVORITES)] == 5
    assert values["favorites_guest_cleanup_batches_total"] == 3
    assert values["favorites_guest_cleanup_run_duration_ms_count"] == 1
    assert values["favorites_guest_cleanup_backlog"] == values["favorites_guest_cleanup_errors_total"] == 0
    for answer in said:
        for secret in (*HIDDEN, database.server.password, "pgretention_worker", str(database.server.port)):
            assert secret not in answer.text + str(answer.headers)


@pytest.mark.req("A-22", "H-03", "H-06")
def test_without_its_database_a_worker_is_alive_not_ready_and_counts_what_failed(alone: Command) -> None:
    at = somewhere()
    worker = start(alone, at, GUESTS)
    until(lambda: of(scrape(at), "pgretention_errors_total", GUESTS, kind="connection") == 1)
    live, unready, values = ask(at, "/livez"), ask(at, "/readyz"), scrape(at)
    worker.terminate()
    ended = alone.end(worker)

    assert ended.code == 0
    assert (live.status, live.text) == (200, "ok")
    assert (unready.status, unready.text) == (503, f"database of {GUESTS} not seen yet")
    assert values["favorites_guest_cleanup_errors_total"] == 1
    assert of(values, "pgretention_last_success_timestamp_seconds", GUESTS) == 0
    assert of(values, "pgretention_next_run_timestamp_seconds", GUESTS) > 0
    assert not [name for name in values if name.startswith("activity_retention") or ACTIVITY in name]
    assert "database away" in [line["event"] for line in ended.log]


@pytest.mark.req("A-22")
def test_a_run_that_finds_the_lock_taken_is_counted_as_contention(command: Command, admin: Admin) -> None:
    admin.execute("SELECT pg_advisory_lock(hashtextextended('job:scheduled:activity-retention', 0))")
    at = somewhere()
    worker = start(command, at, ACTIVITY)
    until(lambda: scrape(at).get("activity_retention_lock_contention_total") == 1)
    assert of(scrape(at), "pgretention_runs_total", ACTIVITY, outcome="skipped") == 1
    worker.terminate()
    assert command.end(worker).code == 0


@pytest.mark.req("H-02", "H-06")
def test_a_worker_that_ends_its_batch_is_alive_but_no_longer_ready(command: Command, admin: Admin, gate: Gate) -> None:
    sessions = old_sessions(admin, 3)
    gate.before_deleting(SESSIONS, sessions[0])
    at = somewhere()
    worker = start(command, at, ACTIVITY, ActivityRetention__BatchSize="2")
    gate.wait_for()
    until_it_says(at, "/readyz", 200)
    counted = scrape(at)["activity_retention_deleted_sessions_total"]
    with socket.create_connection((at.host, at.port)):  # a client that holds its connection holds nobody up
        worker.terminate()
        until_heard(worker)
        assert until_it_says(at, "/readyz", 503).text == "stopping"
        assert ask(at, "/livez").text == "ok"
        gate.open()
        ended = command.end(worker)
    assert counted == 0, "nothing is committed while the gate is closed"
    assert ended.code == 0
    assert planted.left(admin) == set(sessions[2:])


@pytest.mark.req("H-05", "H-06")
def test_an_address_in_use_ends_the_worker_before_any_job_begins(command: Command, admin: Admin) -> None:
    favorite = planted.favorite(admin, rows.OLD)
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        at = HostPort("127.0.0.1", somebody.getsockname()[1])
        ended = command.end(start(command, at))
    assert ended.code == 2
    assert ended.problems == [
        f"Http:Listen: cannot listen on {at}: Address already in use; choose another host:port, or off"
    ]
    assert rows.ids(admin, FAVORITES) == {favorite}


@pytest.mark.req("H-06")
def test_the_log_says_where_the_worker_listens(alone: Command) -> None:
    at = somewhere()
    worker = start(alone, at, GUESTS)
    until_it_says(at, "/livez", 200)
    worker.terminate()
    assert [line["address"] for line in alone.end(worker).log if line["event"] == "listening"] == [str(at)]


def test_a_job_is_lost_when_no_thread_bears_its_name_and_no_stop_was_requested() -> None:
    stop, over = Stop(), threading.Event()
    thread = threading.Thread(target=over.wait, name=ACTIVITY)
    thread.start()
    assert without_thread([ACTIVITY], stop) == []
    assert without_thread([ACTIVITY, GUESTS], stop) == [f"{GUESTS} has no thread; restart the worker"]
    over.set()
    thread.join()
    assert without_thread([ACTIVITY], stop) == [f"{ACTIVITY} has no thread; restart the worker"]
    stop.request()
    assert without_thread([ACTIVITY], stop) == []
