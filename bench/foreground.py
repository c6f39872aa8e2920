"""An application beside a run: pgbench inserts events and reads ranges of sessions and events, 400 times a second.

A latency begins when the transaction should have begun, so that one which waits holds up the clock of the next as well.
What was due in a turn counts, however late it ended: those which the turn held up longest would be missing otherwise.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import psycopg

from pgretention.demo.binaries import Binaries

RATE = 400
"""Transactions a second."""

_MARK = "foreground"

_INSERT = f"""
\\set n random(:first, :last)
INSERT INTO user_activity.action_events (id, session_id, event_type, occurred_at)
VALUES (gen_random_uuid(), md5('session ' || :n)::uuid, '{_MARK}', now());
"""

_READ = """
\\set n random(:first, :last)
\\set days random(1, 360)
SELECT id, ended_at FROM user_activity.sessions
 WHERE status = 'Inactive' AND ended_at >= now() - :days * interval '1 day' ORDER BY ended_at LIMIT 50;
SELECT id, event_type FROM user_activity.action_events WHERE session_id = md5('session ' || :n)::uuid;
"""


_FEWEST = 5
"""With fewer transactions in a turn there was no load; what few rows show of a 99th percentile is another matter."""

_PATIENCE = 60.0
"""Seconds after a turn in which pgbench has to make up for what was due in it."""


class Load:
    """The load while inside, on young sessions of these numbers; its rows are gone afterwards, its latencies kept."""

    def __init__(self, binaries: Binaries, *, first: int, last: int) -> None:
        self._program = binaries.path / "pgbench"
        self._defines = [f"--define=first={first}", f"--define=last={last}"]
        self._done: list[tuple[float, float]] = []

    @contextmanager
    def __call__(self, dsn: str) -> Generator[None]:
        """Begin, and end."""
        with tempfile.TemporaryDirectory() as room:
            scripts = []
            for name, text in ("insert", _INSERT), ("read", _READ):
                Path(room, name).write_text(text)
                scripts.append(f"--file={name}")
            options = [f"--rate={RATE}", "--client=8", "--time=86400", "--no-vacuum", "--protocol=prepared", "--log"]
            said = Path(room, "said")
            command = [str(self._program), *options, *self._defines, *scripts, dsn]
            with said.open("w") as file:
                process = subprocess.Popen(command, cwd=room, stdout=file, stderr=file)
            try:
                _until_connected(dsn)
                yield
                _until_made_up(Path(room), time.time())
            finally:
                process.terminate()
                if process.wait() != -signal.SIGTERM:
                    raise RuntimeError(f"pgbench ended before its time: {said.read_text()}")
                self._done = list(_transactions(Path(room)))
        with psycopg.connect(dsn) as connection:
            connection.execute(f"DELETE FROM user_activity.action_events WHERE event_type = '{_MARK}'".encode())

    def latencies(self, began: float, ended: float) -> dict[str, float]:
        """Of the transactions that were due between two instants of the epoch."""
        found = [latency for due, latency in self._done if began <= due <= ended]
        if len(found) < _FEWEST:
            raise RuntimeError(f"pgbench did {len(found)} transactions of {ended - began:.1f} s")
        hundredths = quantiles(found, n=100)
        return {"p50_ms": hundredths[49], "p99_ms": hundredths[98], "max_ms": max(found)}


def _until_connected(dsn: str) -> None:
    """Wait for pgbench, which takes a moment to begin; some seconds in vain mean that it will say why itself."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(200):
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench' AND xact_start IS NOT NULL"
            ).fetchone()
            if row is not None and row[0] > 0:
                return
            time.sleep(0.01)


def _until_made_up(room: Path, instant: float) -> None:
    """Wait until pgbench, which takes up one transaction after the other, is at one that was due after this instant."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if any(due > instant for due, _ in _transactions(room)):
            return
        time.sleep(0.05)
    raise RuntimeError(f"pgbench did not make up within {_PATIENCE:.0f} s for what was due in the turn")


def _transactions(room: Path) -> Generator[tuple[float, float]]:
    """When each was due and how many milliseconds it took from then; the last line of a log may be cut off."""
    for log in room.glob("pgbench_log.*"):
        for line in log.read_text().splitlines()[:-1]:
            _, _, took, _, seconds, microseconds, _ = line.split()
            yield int(seconds) + int(microseconds) / 1e6 - int(took) / 1e6, int(took) / 1000
