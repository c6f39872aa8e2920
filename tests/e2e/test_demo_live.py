"""`demo --serve`: a page with both jobs at work, until somebody ends it, and then nothing is left."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pgretention.config import HostPort
from pgretention.demo.server import free_port
from tests.support.command import Command
from tests.support.gates import until
from tests.support.rooms import left_in, room_of_its_own
from tests.support.scrapes import ask


@pytest.fixture
def bare() -> Iterator[Command]:
    command = Command({})
    yield command
    command.kill_all()


@pytest.fixture
def room() -> Iterator[Path]:
    with room_of_its_own() as room:
        yield room


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_shows_runs_at_work_and_leaves_nothing(bare: Command, room: Path, ending: signal.Signals) -> None:
    at = HostPort("127.0.0.1", free_port())
    kept = room / "history-of-somebody"
    process = bare.start("demo", "--serve", Http__Listen=str(at), TMPDIR=str(room), History__File=str(kept))
    running: list[dict[str, Any]] = []

    def deletes() -> bool:
        with suppress(ConnectionRefusedError):
            jobs = json.loads(ask(at, "/api/jobs").text)["jobs"]
            running[:] = [job["running"] for job in jobs if job["running"] and job["running"]["batches"]]
        return bool(running)

    until(deletes)
    assert f"/runs/{running[0]['run_id']}" in ask(at, "/").text
    process.send_signal(ending)
    ended = bare.end(process)
    assert ended.code == 0
    assert f"http://{at}/ shows both jobs at work" in ended.stdout
    assert ended.stdout.endswith("The server and its files are gone.\n")
    assert left_in(room) == []


def test_an_address_that_is_taken_is_said_before_anything_is_started(bare: Command, room: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = f"127.0.0.1:{somebody.getsockname()[1]}"
        ended = bare("demo", "--serve", Http__Listen=taken, TMPDIR=str(room))
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.problems == [
        f"Http:Listen: cannot listen on {taken}: Address already in use; choose another host:port, or off"
    ]
    assert left_in(room) == []


def test_without_an_address_there_is_nothing_to_show(bare: Command) -> None:
    ended = bare("demo", "--serve", Http__Listen="off")
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.problems == ["Http:Listen is off, and the page is what there is to see; give it host:port"]
