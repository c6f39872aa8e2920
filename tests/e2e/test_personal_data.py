"""Nothing that a process emits shows what stands in a row, or a password: both streams, traces, pushes, pages (F-14).

The rows are planted with recognisable content, and triggers and the server's own errors quote it. Failures come first:
that is where others let it out. What `command` starts is looked at on both streams whatever a test asserts.
"""

from __future__ import annotations

from typing import LiteralString
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from pgretention.demo.server import free_port
from tests.databases import Database
from tests.support.command import Command, commands
from tests.support.ears import Ears, ears
from tests.support.planted import HIDDEN, plant
from tests.support.rows import FAVORITES, SESSIONS
from tests.support.triggers import on_delete
from tests.support.workers import ACTIVITY, GUESTS, Worker, just_now

Admin = Connection[TupleRow]

PASSWORD = "nobody-may-know"

FAILURES: dict[str, tuple[LiteralString, int]] = {
    "a message": ("RAISE 'gone: %', OLD", 1),
    "detail and hint": ("RAISE 'no' USING DETAIL = OLD::text, HINT = OLD::text", 1),
    "a constraint": ("RAISE 'no' USING CONSTRAINT = OLD::text, TABLE = OLD::text, SCHEMA = OLD::text", 1),
    "a foreign key": ("RAISE '%', OLD USING ERRCODE = '23503', DETAIL = OLD::text", 1),
    "a deadlock": ("RAISE '%', OLD USING ERRCODE = '40P01'", 1),
    "a conversion": ("PERFORM OLD::text::integer", 1),
    "a statement": ("EXECUTE format('SELECT %L FROM no_such_table', OLD)", 1),
    "warnings alone": ("RAISE WARNING '%', OLD", 0),
}
"""What a trigger does with each row, and the exit code of the run."""

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
    body, code = FAILURES[failure]
    on_delete(admin, TABLES[job], body)

    with ears() as into:
        ended = command("run", job, "--json", "--log-format", "json", "--log-level", "debug", **told_to(into))

    assert ended.code == code
    assert set(into.heard) == {"/v1/traces", f"/metrics/job/{job}"}
    assert_silent(into.heard)


@pytest.mark.req("F-14", "A-21", "A-23", "F-16")
def test_a_worker_whose_runs_fail_shows_no_row_on_its_pages(command: Command, admin: Admin) -> None:
    plant(admin)
    for table in TABLES.values():
        on_delete(admin, table, "RAISE '%', OLD USING DETAIL = OLD::text, CONSTRAINT = OLD::text")
    address = f"127.0.0.1:{free_port()}"

    with ears() as into:
        worker = Worker(command, "--log-level", "debug", Http__Listen=address, **just_now(), **told_to(into))
        worker.until_said("failed", job=ACTIVITY)
        worker.until_said("job failed", job=GUESTS)
        pages = {path: body_of(f"http://{address}{path}") for path in ("/metrics", "/livez", "/readyz", "/", "/api")}
        assert worker.end().code == 0

    assert b'pgretention_runs_total{job="guest-favorites-cleanup",outcome="failed"} 1' in pages["/metrics"]
    assert_silent(into.heard | pages)


def body_of(url: str) -> bytes:
    try:
        with urlopen(url, timeout=30) as response:
            return bytes(response.read())
    except HTTPError as error:
        return bytes(error.read())


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
