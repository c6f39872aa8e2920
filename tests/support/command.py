"""The `pgretention` command as users and schedulers start it: a process with an environment that is made for it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pgretention
from tests.databases import Database
from tests.support.gates import until
from tests.support.planted import HIDDEN

Stream = int | IO[str]

PROGRAM = (sys.executable, "-m", "pgretention")

RESULT_KEYS = [
    "job",
    "run_id",
    "outcome",
    "cutoff",
    "deleted",
    "batches",
    "has_more",
    "backlog_before",
    "backlog_after",
    "backlog_exact",
    "duration_seconds",
    "error",
]
"""The keys of `run --json` in their order, typed out of the contract."""

CONSOLE_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ (debug  |info   |warning|error  ) [a-z-]+: .+")


@dataclass(frozen=True)
class Ended:
    """A command that is over: its exit code and what it left on its two streams."""

    code: int
    stdout: str
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        """The result of `run --json`, which is all there is on stdout: one object on one line."""
        assert self.stdout.endswith("}\n"), self
        assert self.stdout.count("\n") == 1, self
        return dict(json.loads(self.stdout))

    @property
    def log(self) -> list[dict[str, Any]]:
        """The log in JSON, which is all there is on stderr: one object on each line."""
        return [dict(json.loads(line)) for line in self.stderr.splitlines()]

    @property
    def problems(self) -> list[str]:
        """What is wrong, where that is all there is on stderr: one line each, marked as ours."""
        lines = self.stderr.splitlines()
        assert [line for line in lines if not line.startswith("pgretention: ")] == []
        return [line.removeprefix("pgretention: ") for line in lines]


@dataclass
class Command:
    """Starts the command with these settings in its environment, and with nothing of the environment of the tests.

    What ends is looked at: neither a traceback nor one of the `hidden` texts may be on either stream.
    """

    settings: Mapping[str, str]
    hidden: tuple[str, ...] = HIDDEN
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *words: str, **more: str) -> Ended:
        """Run the command to its end; further settings and variables by name."""
        return self.end(self.start(*words, **more))

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """Leave the command running, as the leader of a process group of its own."""
        return self.start_into(subprocess.PIPE, subprocess.PIPE, *words, **more)

    def start_into(self, stdout: Stream, stderr: Stream, *words: str, **more: str) -> subprocess.Popen[str]:
        """The same with other streams to write to."""
        process = subprocess.Popen(
            [*PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=self.environment(more),
            text=True,
            process_group=0,
        )
        self._started.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> Ended:
        """Wait for the end, and look at what is left of it."""
        stdout, stderr = process.communicate()
        ended = Ended(process.returncode, stdout or "", stderr or "")
        self.look_at(ended)
        return ended

    def look_at(self, ended: Ended) -> None:
        said = ended.stdout + ended.stderr
        assert "Traceback" not in said, said
        for text in self.hidden:
            assert text not in said, f"{text!r} is shown"

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        source = str(Path(pgretention.__file__).parents[1])
        return {"PATH": os.defpath, "HOME": "/nonexistent", "PYTHONPATH": source, **self.settings, **more}

    def kill_all(self) -> None:
        """Leave nothing running that this has started."""
        for process in self._started:
            with process:  # closes its pipes and waits
                process.kill()


@contextmanager
def commands(dsn: str, *secrets: str) -> Generator[Command]:
    """A command that works on one database with both jobs; the password is among the secrets."""
    command = Command(
        {"ConnectionStrings__UserActivity": dsn, "ConnectionStrings__Favorites": dsn}, (*HIDDEN, *secrets)
    )
    try:
        yield command
    finally:
        command.kill_all()


@contextmanager
def commands_on(database: Database) -> Generator[Command]:
    """A command that works as the worker's role."""
    with commands(database.worker_dsn, database.server.password) as command:
        yield command


def until_heard(process: subprocess.Popen[str]) -> None:
    """Until no signal is pending and every thread of the process is asleep again or has ended, whatever it did."""
    until(lambda: not _pending(process.pid) and states(process.pid) <= {"S", "Z"})


def _pending(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return any(int(pending, 16) for pending in re.findall(r"(?:Sig|Shd)Pnd:\s*(\w+)", status))


def states(pid: int) -> set[str]:
    """The states its threads are in: S asleep, T suspended, R running, Z ended (proc(5))."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            found.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return found
