"""Our own processes, several at once, started again and again with limits drawn at random."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.command import Command
from tests.torture.accounts import ACTIVITY, GUESTS, Ended
from tests.torture.application import Tally
from tests.torture.wires import Wires

_PATIENCE = 120.0
"""Seconds after which a process that was asked to end, or whose run is over its limit, is called hung."""

_EVERY_MINUTE = {"ActivityRetention__RetentionSchedule": "* * * * *", "Favorites__GuestRetention__Cron": "* * * * *"}


@dataclass
class Live:
    """A process that runs, with the files it writes to, and what was done to it so far."""

    name: str
    words: tuple[str, ...]
    batch_size: int
    workers: int
    process: subprocess.Popen[str]
    stdout: IO[str]
    stderr: IO[str]
    hit: list[str] = field(default_factory=list)

    def send(self, which: signal.Signals) -> None:
        """A signal, noted before it can show; nothing when the process has just ended."""
        if self.process.poll() is None:
            self.hit.append(which.name)
            with suppress(ProcessLookupError):
                self.process.send_signal(which)

    def ended(self) -> Ended:
        texts = []
        for stream in self.stdout, self.stderr:
            stream.seek(0)
            texts.append(stream.read())
            stream.close()
        stdout, stderr = texts
        hit, code = tuple(self.hit), self.process.returncode
        return Ended(self.name, self.words, self.batch_size, code, hit, stdout, stderr, self.workers)


class Company:
    """All processes of ours, alive and ended; any thread may ask."""

    def __init__(self, command: Command, wires: Wires, tally: Tally, folder: Path) -> None:
        self.ended: list[Ended] = []
        self.hung: list[str] = []
        self._wires = wires
        self._tally = tally
        self._folder = folder
        self._live: list[Live] = []
        self._changing = threading.Lock()
        self._command = command

    @property
    def live(self) -> tuple[Live, ...]:
        with self._changing:
            return tuple(self._live)

    def start(self, words: tuple[str, ...], batch_size: int, workers: int, *, wired: bool, **settings: str) -> Live:
        """Start the command, directly or through the wires, as the leader of a process group of its own."""
        settings |= {
            "ActivityRetention__BatchSize": str(batch_size),
            "Favorites__GuestRetention__BatchSize": str(batch_size),
            "ActivityRetention__Workers": str(workers),
            "Favorites__GuestRetention__Workers": str(workers),
        }
        if wired:
            settings |= dict.fromkeys(
                ("ConnectionStrings__UserActivity", "ConnectionStrings__Favorites"), self._wires.dsn
            )
        with self._changing:
            name = f"{len(self.ended) + len(self._live) + 1}"
            stdout, stderr = (self._file(name, suffix) for suffix in ("out", "err"))
            process = self._command.start_into(
                stdout, stderr, *words, "--log-format", "json", "--log-level", "debug", **settings
            )
            live = Live(name, words, batch_size, workers, process, stdout, stderr)
            self._live.append(live)
        return live

    def wait(self, live: Live, at_most: float) -> Ended | None:
        """The process when it has ended within that many seconds."""
        try:
            live.process.wait(at_most)
        except subprocess.TimeoutExpired:
            return None
        ended = live.ended()
        with self._changing:
            self._live.remove(live)
            self.ended.append(ended)
        self._tally.add("exit codes", f"{live.words[0]} {ended.code}")
        return ended

    def end(self, live: Live) -> Ended:
        """Wait for the end with patience; a process that has none is hung, and killed."""
        ended = self.wait(live, _PATIENCE)
        if ended is None:
            self.hung.append(f"process {live.name} ({' '.join(live.words)}) did not end in {_PATIENCE:.0f} s")
            live.send(signal.SIGKILL)
            ended = self.wait(live, _PATIENCE)
        assert ended is not None
        return ended

    def _file(self, name: str, suffix: str) -> IO[str]:
        return (self._folder / f"{name}.{suffix}").open("w+")


class Replica(threading.Thread):
    """Starts one process after the other, until it is over; then the one that runs is asked to end."""

    def __init__(self, company: Company, seed: str, over: threading.Event) -> None:
        super().__init__(name=seed)
        self._company = company
        self._draw = random.Random(seed)
        self._over = over

    def run(self) -> None:
        while not self._over.is_set():
            wired = self._draw.random() < 0.5
            job = self._draw.choice([ACTIVITY, ACTIVITY, GUESTS])
            batch_size, workers = self._draw.choice([1, 2, 5, 20]), self._draw.choice([1, 2, 3])
            live = self._company.start(("run", job, "--json"), batch_size, workers, wired=wired, **self._limits())
            self._until_over(live)
            self._company.end(live)
            self._over.wait(self._draw.uniform(0.0, 1.5))

    def _limits(self) -> dict[str, str]:
        seconds = str(self._draw.choice([2, 5, 15, 30])) + "s"
        return {
            "ActivityRetention__MaxBatchesPerRun": str(self._draw.choice([3, 50, 1000])),
            "ActivityRetention__MaxRunDuration": seconds,
            "Favorites__GuestRetention__MaxRunDuration": seconds,
            "Host__ShutdownTimeout": self._draw.choice(["1s", "25s"]),
        }

    def _until_over(self, live: Live) -> None:
        began = time.monotonic()
        while live.process.poll() is None and time.monotonic() - began < _PATIENCE:
            if self._over.wait(0.05):
                live.send(signal.SIGTERM)
                return


class Resident(Replica):
    """The same with workers that stay for up to a minute and a half."""

    def run(self) -> None:
        while not self._over.is_set():
            wired = self._draw.random() < 0.5
            batch_size, workers = self._draw.choice([2, 20, 100]), self._draw.choice([1, 2, 3])
            settings = self._limits() | _EVERY_MINUTE | {"Http__Listen": "off"}
            live = self._company.start(("worker",), batch_size, workers, wired=wired, **settings)
            began, stays = time.monotonic(), self._draw.uniform(20, 90)
            while live.process.poll() is None and time.monotonic() - began < stays:
                if self._over.wait(0.05):
                    break
            live.send(signal.SIGTERM)
            self._company.end(live)
