"""The tour on a real server: it passes, it says when something is wrong, and however it ends nothing is left."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgretention import app
from pgretention.app import Assignment
from pgretention.demo import data
from pgretention.demo.binaries import Binaries
from pgretention.demo.tour import run_once, tour
from pgretention.errors import FaultKind
from pgretention.report import Outcome, RunError, RunReport
from tests.support.gates import until
from tests.support.rooms import left_in, room_of_its_own


@pytest.fixture
def room() -> Iterator[Path]:
    with room_of_its_own() as room:
        yield room


def test_the_tour_passes_on_every_server_and_leaves_nothing(binaries: Binaries, room: Path) -> None:
    out = io.StringIO()
    sigterm = signal.getsignal(signal.SIGTERM)
    assert tour(out, amount=data.SMALL, binaries=binaries)
    assert signal.getsignal(signal.SIGTERM) is sigterm
    assert left_in(room) == []
    shown = out.getvalue()
    assert f"Starting {binaries}, on 127.0.0.1 alone" in shown
    assert 'GRANT USAGE ON SCHEMA "favorites" TO "pgretention_worker";' in shown
    for name in app.JOB_NAMES:
        assert f"== The plan of {name} ==" in shown
        assert re.search(rf"{name} +\d+ +\S+ +\d\.\d  completed", shown)
    assert "FOR UPDATE SKIP LOCKED" in shown
    assert "\nAll 13 checks hold.\n" in shown
    assert "\nNO " not in shown


def test_what_is_shown_holds_no_row_content_and_no_password(room: Path) -> None:
    passwords: list[str] = []

    def run(assignment: Assignment) -> RunReport:
        passwords.append(str(conninfo_to_dict(assignment.dsn)["password"]))
        return run_once(assignment)

    out = io.StringIO()
    assert tour(out, run=run, amount=data.SMALL)
    assert left_in(room) == []
    for content in (*passwords, "Mozilla", "call on Monday", "price_to"):
        assert content
        assert content not in out.getvalue()


@pytest.mark.req("F-06")
def test_the_runs_have_no_more_than_the_least_privileges(room: Path) -> None:
    def run(assignment: Assignment) -> RunReport:
        with psycopg.connect(assignment.dsn) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT note FROM favorites.favorites")
        return run_once(assignment)

    assert tour(io.StringIO(), run=run, amount=data.SMALL)
    assert left_in(room) == []


def test_a_row_too_many_is_told_and_makes_the_tour_fail(room: Path) -> None:
    def run(assignment: Assignment) -> RunReport:
        report = run_once(assignment)
        if report.job == "guest-favorites-cleanup":
            with psycopg.connect(assignment.dsn) as connection:
                connection.execute(
                    """DELETE FROM favorites.favorites WHERE id = (
                           SELECT id FROM favorites.favorites WHERE user_id IS NOT NULL LIMIT 1)"""
                )
        return report

    out = io.StringIO()
    assert not tour(out, run=run, amount=data.SMALL)
    assert left_in(room) == []
    assert re.search(r"NO  Untouched: favorites of accounts, however old +\d+ rows before, \d+ after", out.getvalue())
    assert "1 of 13 checks FAILED." in out.getvalue()


def test_a_run_that_does_nothing_is_told(room: Path) -> None:
    def run(assignment: Assignment) -> RunReport:
        if assignment.job.name == "guest-favorites-cleanup":
            return run_once(assignment)
        return app.refusal(assignment.job, FaultKind.REFUSED, "it was told not to")

    out = io.StringIO()
    assert not tour(out, run=run, amount=data.SMALL)
    assert left_in(room) == []
    assert "activity-retention: it was told not to" in out.getvalue()
    assert "All 13 checks hold." in out.getvalue()  # it deleted nothing, and says that it had no cutoff


def test_a_run_that_did_not_complete_makes_the_tour_fail_although_every_check_holds(room: Path) -> None:
    def run(assignment: Assignment) -> RunReport:
        error = RunError(FaultKind.CONNECTION, "the line went dead")
        return replace(run_once(assignment), outcome=Outcome.PARTIAL, error=error)

    out = io.StringIO()
    assert not tour(out, run=run, amount=data.SMALL)
    assert left_in(room) == []
    assert "guest-favorites-cleanup: the line went dead" in out.getvalue()


def test_a_failure_on_the_way_leaves_nothing(room: Path) -> None:
    def run(assignment: Assignment) -> RunReport:
        raise ZeroDivisionError(assignment.job.name)

    with pytest.raises(ZeroDivisionError):
        tour(io.StringIO(), run=run, amount=data.SMALL)
    assert left_in(room) == []


INTERRUPTED = "Interrupted: the server ends with this, and so do its files.\n"

# Whoever runs the tests in the background ignores Ctrl-C, and so would what they start.
COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from pgretention.cli import main
main()
"""

SMALL_TOUR = """
import io, os, signal, sys, threading
import psycopg
from pgretention.demo import data
from pgretention.demo.tour import run_once, tour

ending, moment = signal.Signals(int(sys.argv[1])), sys.argv[2]
signal.signal(signal.SIGINT, signal.default_int_handler)

class Out(io.StringIO):
    def write(self, text):
        sys.stdout.write(text)
        if moment in text:
            os.kill(os.getpid(), ending)

def run(assignment):
    if moment == "in the middle of a statement":
        threading.Timer(0.2, os.kill, (os.getpid(), ending)).start()
        with psycopg.connect(assignment.dsn) as connection:
            connection.execute("SELECT pg_sleep(600)")
    return run_once(assignment)

sys.exit(0 if tour(Out(), run=run, amount=data.SMALL) else 1)
"""
"""A tour that sends itself a signal: as soon as it has said something, or while it waits for the server."""


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def test_the_command_makes_the_whole_tour(room: Path) -> None:
    with started(COMMAND, "demo") as process:
        shown, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert left_in(room) == []
    assert "Loading 20,000 sessions, 60,000 views, 160,000 events, 50,000 favorites" in shown
    assert "All 13 checks hold." in shown


SIGNALS = pytest.mark.parametrize(
    "ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda ending: ending.name
)


def ended_by(ending: signal.Signals, process: subprocess.Popen[str], room: Path) -> bool:
    """Whether the process ended as it should by this signal, having cleaned up itself unless it was killed."""
    shown, errors = process.communicate()
    if ending is signal.SIGKILL:
        until(lambda: left_in(room) == [])
        return process.returncode == -ending
    return (process.returncode, errors, left_in(room)) == (1, "", []) and shown.endswith(INTERRUPTED)


@SIGNALS
@pytest.mark.parametrize("said", ["== A database", "Starting"], ids=["as the server starts", "as rows are loaded"])
def test_a_signal_ends_the_command_quietly_and_nothing_is_left(ending: signal.Signals, said: str, room: Path) -> None:
    with started(COMMAND, "demo") as process:
        assert process.stdout
        while not process.stdout.readline().startswith(said):
            assert process.poll() is None
        os.killpg(process.pid, ending)  # a terminal sends Ctrl-C to the whole group
        assert ended_by(ending, process, room)


@SIGNALS
@pytest.mark.parametrize("moment", ["== The runs", "in the middle of a statement", "All 13 checks hold"])
def test_a_signal_ends_the_tour_quietly_later_on_and_nothing_is_left(
    ending: signal.Signals, moment: str, room: Path
) -> None:
    with started(SMALL_TOUR, str(int(ending)), moment) as process:
        assert ended_by(ending, process, room)
