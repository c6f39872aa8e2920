"""SIGTERM and Ctrl-C: the first ends a run after the batch in hand, the second at once, and neither leaves a half."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.databases import Database
from tests.support import rows
from tests.support.command import PROGRAM, Command, Ended, states, until_heard
from tests.support.gates import Gate, until
from tests.support.lines import line
from tests.support.locks import assert_nothing_is_held
from tests.support.planted import left, old_favorites, old_sessions
from tests.support.rows import FAVORITES, SESSIONS

Admin = Connection[TupleRow]

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"
TWO_A_BATCH = {"ActivityRetention__BatchSize": "2", "Favorites__GuestRetention__BatchSize": "2"}

EACH = pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT], ids=lambda ending: ending.name)


def start(command: Command, job: str, **settings: str) -> subprocess.Popen[str]:
    words = ("run", job, "--json", "--log-format", "json", "--log-level", "debug")
    return command.start(*words, **TWO_A_BATCH, **settings)


def events(ended: Ended) -> list[str]:
    return [line["event"] for line in ended.log]


@pytest.mark.req("A-11", "A-15")
@EACH
def test_a_signal_during_a_batch_lets_it_commit_and_no_further_one_begin(
    command: Command, admin: Admin, gate: Gate, ending: signal.Signals
) -> None:
    sessions = old_sessions(admin, 7)
    gate.before_deleting(SESSIONS, sessions[3])
    process = start(command, ACTIVITY)
    gate.wait_for()
    process.send_signal(ending)
    until_heard(process)
    gate.open()

    ended = command.end(process)

    assert ended.code == 0
    assert (ended.result["outcome"], ended.result["error"]) == ("stopped", None)
    assert (ended.result["batches"], ended.result["has_more"], ended.result["backlog_after"]) == (2, True, 3)
    assert set(ended.result["deleted"].values()) == {4}
    assert events(ended) == ["started", "batch", "stopping", "batch", "completed"]
    assert ended.log[-1]["outcome"] == "stopped"
    assert left(admin) == set(sessions[4:])
    assert_nothing_is_held(admin)


@pytest.mark.req("F-09")
def test_a_signal_lets_a_batch_of_favorites_commit_and_no_further_one_begin(
    command: Command, admin: Admin, gate: Gate
) -> None:
    favorites = old_favorites(admin, 7)
    gate.before_deleting(FAVORITES, favorites[1])
    process = start(command, GUESTS)
    gate.wait_for()
    process.terminate()
    until_heard(process)
    gate.open()

    ended = command.end(process)

    assert (ended.code, ended.result["outcome"], ended.result["batches"]) == (0, "stopped", 1)
    assert rows.ids(admin, FAVORITES) == set(favorites[2:])


@pytest.mark.req("A-11")
def test_a_signal_during_the_last_batch_is_a_completed_run(command: Command, admin: Admin, gate: Gate) -> None:
    sessions = old_sessions(admin, 4)
    gate.before_deleting(SESSIONS, sessions[3])
    process = start(command, ACTIVITY)
    gate.wait_for()
    process.terminate()
    until_heard(process)
    gate.open()

    ended = command.end(process)

    assert ended.code == 0
    assert (ended.result["outcome"], ended.result["batches"], ended.result["has_more"]) == ("completed", 2, False)
    assert left(admin) == set()


@pytest.mark.req("A-11", "A-12")
@pytest.mark.parametrize(
    "signals",
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGINT, signal.SIGTERM),
    ],
    ids=lambda signals: "+".join(each.name for each in signals),
)
def test_a_second_signal_cancels_the_batch_on_the_server_and_nothing_of_it_is_gone(
    command: Command, admin: Admin, gate: Gate, signals: tuple[signal.Signals, ...]
) -> None:
    sessions = old_sessions(admin, 7)
    gate.before_deleting(SESSIONS, sessions[3])
    process = start(command, ACTIVITY)
    gate.wait_for()
    process.send_signal(signals[0])
    until_heard(process)
    process.send_signal(signals[1])

    ended = command.end(process)  # although the gate is still closed

    assert ended.code == 0
    assert (ended.result["outcome"], ended.result["error"]) == ("stopped", None)
    assert (ended.result["batches"], ended.result["has_more"]) == (1, True)
    assert set(ended.result["deleted"].values()) == {2}
    assert events(ended) == ["started", "batch", "stopping", "cancelling what is in flight", "completed"]
    assert_nothing_is_held(admin)
    assert left(admin) == set(sessions[2:])


@pytest.mark.req("A-12", "F-09", "F-11")
def test_a_second_signal_cancels_a_batch_of_favorites_and_the_next_run_takes_all(
    command: Command, admin: Admin, gate: Gate
) -> None:
    favorites = old_favorites(admin, 5)
    gate.before_deleting(FAVORITES, favorites[0])
    process = start(command, GUESTS)
    gate.wait_for()
    process.send_signal(signal.SIGINT)
    until_heard(process)
    process.send_signal(signal.SIGINT)

    ended = command.end(process)

    assert (ended.code, ended.result["outcome"], ended.result["batches"]) == (0, "stopped", 0)
    assert rows.ids(admin, FAVORITES) == set(favorites)
    gate.open()
    assert command("run", GUESTS, "--json").result["deleted"] == {str(FAVORITES): 5}


@pytest.mark.req("A-12")
def test_a_second_signal_while_a_batch_commits_leaves_it_whole(command: Command, admin: Admin, gate: Gate) -> None:
    sessions = old_sessions(admin, 5)
    gate.before_commit(SESSIONS, sessions[3])
    process = start(command, ACTIVITY)
    gate.wait_for()
    process.terminate()
    until_heard(process)
    process.terminate()

    ended = command.end(process)

    assert (ended.code, ended.result["outcome"], ended.result["batches"]) == (0, "stopped", 1)
    assert_nothing_is_held(admin)
    assert left(admin) == set(sessions[2:])


@pytest.mark.req("A-11")
def test_a_run_that_is_suspended_and_resumed_goes_on_to_its_end(command: Command, admin: Admin, gate: Gate) -> None:
    sessions = old_sessions(admin, 5)
    gate.before_deleting(SESSIONS, sessions[1])
    process = start(command, ACTIVITY)
    gate.wait_for()
    process.send_signal(signal.SIGSTOP)
    until(lambda: states(process.pid) == {"T"})
    time.sleep(0.5)  # whoever waits for something with a time limit is past it when the process wakes
    process.send_signal(signal.SIGCONT)
    gate.open()

    ended = command.end(process)

    assert (ended.code, ended.result["outcome"], ended.result["batches"]) == (0, "completed", 3)
    assert left(admin) == set()


@pytest.mark.req("A-11")
@pytest.mark.parametrize("held", [b"", b"SELECT count(*)", b"FOR UPDATE"], ids=["connecting", "counting", "claiming"])
@EACH
def test_a_signal_before_the_first_batch_is_over_is_heard(
    command: Command, database: Database, admin: Admin, ending: signal.Signals, held: bytes
) -> None:
    sessions = old_sessions(admin, 3)
    with line(database, stalls_at=held) as slow:
        process = start(command, ACTIVITY, ConnectionStrings__UserActivity=slow.dsn)
        slow.wait_for_stall()
        process.send_signal(ending)
        until_heard(process)
        slow.go_on()
        ended = command.end(process)

    batches = 1 if held == b"FOR UPDATE" else 0
    assert (ended.code, ended.result["outcome"], ended.result["batches"]) == (0, "stopped", batches)
    assert (ended.result["has_more"], ended.result["error"]) == (True, None)
    assert left(admin) == set(sessions[2 * batches :])
    assert_nothing_is_held(admin)


@pytest.mark.req("H-02")
@EACH
@pytest.mark.parametrize("words", [("run", GUESTS, "--json"), ("worker", GUESTS)], ids=["run", "worker"])
def test_a_signal_that_comes_while_the_program_is_being_loaded_ends_it_well(
    command: Command, admin: Admin, words: tuple[str, ...], ending: signal.Signals
) -> None:
    favorites = old_favorites(admin, 3)
    process = command.start(*words)
    until(lambda: held_back(process, ending))
    process.send_signal(ending)

    ended = command.end(process)

    assert ended.code == 0
    assert "stopping" in ended.stderr
    assert rows.ids(admin, FAVORITES) == set(favorites)


def held_back(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Whether the process holds that signal back by now (proc(5))."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (blocked,) = re.findall(r"SigBlk:\s*(\w+)", status)
    return bool(int(blocked, 16) >> (number - 1) & 1)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@EACH
def test_a_command_that_has_nothing_to_finish_is_ended_by_a_signal(
    alone: Command, listener: socket.socket, ending: signal.Signals
) -> None:
    port = listener.getsockname()[1]
    process = alone.start("plan", GUESTS, ConnectionStrings__Favorites=f"host=127.0.0.1 port={port}")
    client, _ = listener.accept()
    with client:
        process.send_signal(ending)
        ended = alone.end(process)

    assert ended.code == (1 if ending is signal.SIGINT else -ending)
    assert ended.stdout == ""


@pytest.mark.req("A-11")
def test_two_signals_while_connecting_in_vain_end_the_run_as_stopped(alone: Command, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    process = alone.start("run", GUESTS, "--json", ConnectionStrings__Favorites=f"host=127.0.0.1 port={port}")
    client, _ = listener.accept()
    with client:
        process.terminate()
        until_heard(process)
        process.terminate()
        ended = alone.end(process)

    assert (ended.code, ended.result["outcome"], ended.result["batches"]) == (0, "stopped", 0)


@pytest.mark.req("A-11")
def test_ctrl_c_reaches_the_whole_process_group_and_the_run_still_ends_well(
    command: Command, admin: Admin, gate: Gate
) -> None:
    sessions = old_sessions(admin, 5)
    gate.before_deleting(SESSIONS, sessions[1])
    process = start(command, ACTIVITY)
    gate.wait_for()
    os.killpg(process.pid, signal.SIGINT)
    until_heard(process)
    gate.open()

    ended = command.end(process)

    assert (ended.code, ended.result["outcome"], ended.result["batches"]) == (0, "stopped", 1)
    assert left(admin) == set(sessions[2:])


class Terminal:
    """A terminal with the command in its foreground; what is typed and shown there is ours to write and read."""

    def __init__(self, command: Command, *words: str, **more: str) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 100))
        name = os.ttyname(theirs)
        # A leader of a session that opens a terminal gets it as its own; only the result goes to a pipe.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", 'exec 0<>"$0" 2>&0; exec "$@"', name, *PROGRAM, *words],
            stdout=subprocess.PIPE,
            env=command.environment({"TERM": "xterm", **more}),
            text=True,
            start_new_session=True,
        )
        self._theirs = theirs
        self.shown = ""

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def until_shown(self, text: str) -> None:
        while text not in self.shown:
            self.shown += os.read(self._ours, 65536).decode(errors="replace")

    def end(self) -> tuple[int, dict[str, Any]]:
        """Its exit code and result; goes on reading what is shown, as whoever shows it waits for that."""
        while self._process.poll() is None:
            ready, _, _ = select.select([self._ours], [], [], 0.01)
            if ready:
                self.shown += os.read(self._ours, 65536).decode(errors="replace")
        assert self._process.stdout is not None
        return self._process.returncode, json.loads(self._process.stdout.read())

    def close(self) -> None:
        with self._process as process:
            process.kill()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(command: Command) -> Iterator[Callable[[str], Terminal]]:
    opened: list[Terminal] = []

    def run(job: str) -> Terminal:
        opened.append(Terminal(command, "run", job, "--json", **TWO_A_BATCH))
        return opened[-1]

    yield run
    for each in opened:
        each.close()


CTRL_C = b"\x03"


@pytest.mark.req("A-11")
def test_ctrl_c_at_a_terminal_is_confirmed_at_once_and_ends_the_run_after_the_batch(
    terminal: Callable[[str], Terminal], admin: Admin, gate: Gate
) -> None:
    sessions = old_sessions(admin, 5)
    gate.before_deleting(SESSIONS, sessions[1])
    at = terminal(ACTIVITY)
    gate.wait_for()
    at.type(CTRL_C)
    at.until_shown("stopping after this batch")
    gate.open()

    code, result = at.end()

    assert (code, result["outcome"], result["batches"]) == (0, "stopped", 1)
    assert left(admin) == set(sessions[2:])


@pytest.mark.req("A-11", "A-12")
def test_a_second_ctrl_c_at_a_terminal_ends_the_run_at_once(
    terminal: Callable[[str], Terminal], admin: Admin, gate: Gate
) -> None:
    sessions = old_sessions(admin, 5)
    gate.before_deleting(SESSIONS, sessions[1])
    at = terminal(ACTIVITY)
    gate.wait_for()
    at.type(CTRL_C)
    at.until_shown("stopping after this batch")
    at.type(CTRL_C)

    code, result = at.end()

    assert (code, result["outcome"], result["batches"]) == (0, "stopped", 0)
    assert "Traceback" not in at.shown
    assert left(admin) == set(sessions)
    assert_nothing_is_held(admin)
