"""Nothing that a process emits shows what stands in a row, or a password: both streams, traces, pushes, pages (F-14).

The rows are planted with recognisable content, and triggers and the server's own errors quote it. Failures come first:
that is where others let it out. What `command` starts is looked at on both streams whatever a test asserts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import LiteralString

import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from pgretention.config import HostPort
from pgretention.demo.server import free_port
from tests.databases import Database
from tests.support.command import Command, commands
from tests.support.ears import Ears, ears
from tests.support.gates import until
from tests.support.planted import HIDDEN, plant
from tests.support.rows import FAVORITES, SESSIONS
from tests.support.scrapes import ask
from tests.support.triggers import QUOTING, on_delete
from tests.support.workers import ACTIVITY, GUESTS, Worker, just_now

Admin = Connection[TupleRow]

PASSWORD = "nobody-may-know"

FAILURES: dict[str, LiteralString] = {
    name: QUOTING[name]
    for name in ("message", "detail, hint", "foreign key", "deadlock", "conversion", "dynamic statement")
} | {"constraint": "RAISE 'no' USING CONSTRAINT = OLD::text, TABLE = OLD::text, SCHEMA = OLD::text"}

TABLES = {ACTIVITY: SESSIONS, GUESTS: FAVORITES}

EVERY_COMMAND = (
    ("check",),
    ("check", "--json"),
    ("plan", GUESTS, "--explain"),
    ("plan", ACTIVITY),
    ("rehearse", GUESTS),
    ("rehearse", ACTIVITY, "--json"),
    ("run", GUESTS),
    ("run", ACTIVITY, "--json"),
    ("jobs",),
    ("config",),
)


def assert_silent(emitted: dict[str, bytes], *more: str) -> None:
    for text in (*HIDDEN, *more):
        for where, said in emitted.items():
            assert text.encode() not in said, f"{text!r} is told to {where}"


def told_to(into: Ears) -> dict[str, str]:
    """The settings that make a process talk as much as it can, and to whom."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": into.url, "Metrics__Pushgateway": into.url}


@pytest.mark.req("F-14", "A-21", "A-23", "F-16")
@pytest.mark.parametrize("failure", list(FAILURES))
@pytest.mark.parametrize("job", [ACTIVITY, GUESTS])
def test_a_run_whose_errors_quote_rows_shows_them_to_nobody(
    command: Command, admin: Admin, job: str, failure: str
) -> None:
    plant(admin)
    on_delete(admin, TABLES[job], FAILURES[failure])

    with ears() as into:
        ended = command("run", job, "--json", "--log-format", "json", "--log-level", "debug", **told_to(into))

    assert ended.code == 1
    assert set(into.heard) == {"/v1/traces", f"/metrics/job/{job}"}
    assert_silent(into.heard)


@pytest.mark.req("F-14", "A-21", "A-23", "F-16")
@pytest.mark.parametrize("job", [ACTIVITY, GUESTS])
def test_a_run_during_which_triggers_warn_of_rows_shows_them_to_nobody(
    command: Command, admin: Admin, job: str
) -> None:
    plant(admin)
    on_delete(admin, TABLES[job], "RAISE WARNING '%', OLD")

    with ears() as into:
        ended = command("run", job, "--json", "--log-format", "json", "--log-level", "debug", **told_to(into))

    assert ended.code == 0
    assert set(into.heard) == {"/v1/traces", f"/metrics/job/{job}"}
    assert_silent(into.heard)


@pytest.mark.req("F-14", "A-21", "A-23", "F-16")
def test_a_worker_whose_runs_fail_shows_no_row_on_its_pages_nor_in_its_history(
    command: Command, admin: Admin, tmp_path: Path
) -> None:
    plant(admin)
    for table in TABLES.values():
        on_delete(admin, table, "RAISE '%', OLD USING DETAIL = OLD::text, CONSTRAINT = OLD::text")
    address, file = HostPort("127.0.0.1", free_port()), tmp_path / "history"
    kept = {"Http__Listen": str(address), "History__File": str(file)}

    with ears() as into:
        worker = Worker(command, "--log-level", "debug", **kept, **just_now(), **told_to(into))
        worker.until_said("failed", job=ACTIVITY)
        worker.until_said("job failed", job=GUESTS)
        until(lambda: all(is_shown(address, job) for job in TABLES))
        paths = ["/metrics", "/livez", "/readyz", "/", "/api/jobs"]
        for job in TABLES:
            (run,) = json.loads(ask(address, f"/api/jobs/{job}/runs").text)["runs"]
            paths += [f"/jobs/{job}", f"/jobs/{job}/policy", f"/api/jobs/{job}/policy"]
            paths += [f"/runs/{run['run_id']}", f"/api/runs/{run['run_id']}"]
        pages = {path: ask(address, path).text.encode() for path in paths}
        assert worker.end().code == 0

    assert b'pgretention_runs_total{job="guest-favorites-cleanup",outcome="failed"} 1' in pages["/metrics"]
    assert_silent(into.heard | pages | {"the history": file.read_bytes()})


def is_shown(address: HostPort, job: str) -> bool:
    """Whether the page has heard of the run and seen the database."""
    policy, runs = (json.loads(ask(address, f"/api/jobs/{job}/{part}").text) for part in ("policy", "runs"))
    return policy["looked_at"] is not None and len(runs["runs"]) == 1


@pytest.mark.req("F-14", "H-05")
@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_a_password_that_is_wrong_is_shown_to_nobody(database: Database, words: tuple[str, ...]) -> None:
    wrong = make_conninfo(database.worker_dsn, password=PASSWORD)
    with commands(wrong, PASSWORD) as command, ears() as into:
        ended = command(*words, "--log-level", "debug", **told_to(into))

    assert ended.code == (0 if words[0] in {"jobs", "config"} else 1)
    assert_silent(into.heard, PASSWORD)


@pytest.mark.req("F-14", "H-05")
@pytest.mark.parametrize(
    "dsn", [f"postgresql://u:{PASSWORD}@[::1", f"host=x password='{PASSWORD}", f"passwrod={PASSWORD}"]
)
def test_a_password_in_a_connection_string_that_makes_no_sense_is_shown_to_nobody(dsn: str) -> None:
    with commands(dsn, PASSWORD) as command:
        for words in ("run", GUESTS, "--json"), ("check",), ("config",):
            assert command(*words).code == 2


@pytest.mark.req("F-14", "A-21")
@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_no_command_shows_what_stands_in_a_row(command: Command, admin: Admin, words: tuple[str, ...]) -> None:
    plant(admin)
    for table in TABLES.values():
        on_delete(admin, table, "RAISE WARNING '%', OLD")

    with ears() as into:
        ended = command(*words, "--log-level", "debug", **told_to(into))

    assert ended.code == 0
    assert_silent(into.heard)
