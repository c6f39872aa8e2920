"""A streaming replica of a throw-away server, with a name that pg_stat_replication shows."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from pgretention.demo.binaries import find_binaries
from pgretention.demo.server import ThrowawayServer
from tests.support.gates import until


class Standby(ThrowawayServer):
    """A running replica; it has the primary's data, roles and passwords."""

    def __init__(self, primary: ThrowawayServer, name: str, *, feedback: bool = False) -> None:
        settings = {
            "hot_standby": "on",
            "hot_standby_feedback": "on" if feedback else "off",
            "cluster_name": name,
            "max_prepared_transactions": "2",  # at least as many as the primary's
        }
        super().__init__(find_binaries(primary.version), settings)
        self.password = primary.password
        self.name = name
        self._primary = primary

    @classmethod
    def of(cls, primary: ThrowawayServer, name: str, *, feedback: bool = False) -> Standby:
        """A replica that streams by now; with `feedback` it tells the primary which rows its readers still see."""
        with psycopg.connect(primary.dsn(), autocommit=True) as connection:
            # Without a slot a replica that is paused loses its place when the next one makes a checkpoint.
            connection.execute("ALTER SYSTEM SET wal_keep_size = '128MB'")
            connection.execute("SELECT pg_reload_conf()")
        standby = cls(primary, name, feedback=feedback)
        try:
            standby._copy()
            standby._start_on_a_free_port()
        except BaseException:
            standby.stop()
            raise
        until(standby.streams)
        return standby

    def streams(self) -> bool:
        """Whether the primary sees it."""
        with psycopg.connect(self._primary.dsn()) as connection:
            seen = "SELECT count(*) FROM pg_stat_replication WHERE application_name = %s AND state = 'streaming'"
            return connection.execute(seen, [self.name]).fetchone() == (1,)

    def lag(self) -> float:
        """Seconds that it is behind, as the primary sees it."""
        with psycopg.connect(self._primary.dsn()) as connection:
            seen = """
                SELECT coalesce(extract(epoch FROM replay_lag), 0)::float8 FROM pg_stat_replication
                 WHERE application_name = %s
            """
            row = connection.execute(seen, [self.name]).fetchone()
            return float(row[0]) if row else 0.0

    def pause(self) -> None:
        """Replay no more of what comes."""
        self._execute("SELECT pg_wal_replay_pause()")
        until(lambda: self._execute("SELECT pg_get_wal_replay_pause_state()") == ("paused",))

    def resume(self) -> None:
        """Replay what has come, and what comes."""
        self._execute("SELECT pg_wal_replay_resume()")

    def freeze(self) -> None:
        """Every process of it stops where it is, and says nothing more."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """They go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), number)

    def _execute(self, query: str) -> tuple[object, ...] | None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            return connection.execute(query.encode()).fetchone()

    def _copy(self) -> None:
        self.folder.mkdir(mode=0o700)
        self._account.take(self.folder)
        if not self._account.can_run(self._binaries.path / "postgres"):
            self._bring_programs_here()
        source = make_conninfo(self._primary.dsn(), dbname=None)
        options = ("-X", "stream", "-R", "--checkpoint=fast", "--no-sync", "--dbname", source)
        self._process = self._spawn("pg_basebackup", "-D", "data", *options)
        failed = self._process.wait()
        self._forget_process()
        assert not failed, self._last_words("pg_basebackup")


@contextmanager
def archiver(primary: ThrowawayServer, folder: Path) -> Generator[None]:
    """pg_receivewal, which receives WAL and replays none of it."""
    program = find_binaries(primary.version).path / "pg_receivewal"
    process = subprocess.Popen([program, "-D", folder, "-d", make_conninfo(primary.dsn(), dbname=None)])
    try:
        yield
    finally:
        process.terminate()
        process.wait()
