"""A PgBouncer for one test: in front of one database, on 127.0.0.1 only, gone with whoever started it.

It refuses to run as root, and runs as `nobody` then, the way a throw-away PostgreSQL does.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import ClientCursor, Connection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from pgretention.demo.account import server_account
from pgretention.demo.server import free_port
from pgretention.demo.watchdog import Watchdog
from tests.databases import WORKER, Database
from tests.support.gates import until

Mode = Literal["transaction", "session"]

_START = 'echo $$ && exec "$@" >>pgbouncer.log 2>&1'
"""A shell line: tell the watchdog the pid, then become the program."""


@cache
def installed() -> Path | None:
    """The program, also where it is not on an ordinary user's path; None where there is none."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    return None if found is None else Path(found)


@cache
def version() -> tuple[int, int]:
    """Major and minor version of the installed program; (0, 0) without one."""
    program = installed()
    if program is None:
        return 0, 0
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, cwd="/").stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])


def described() -> str:
    """The line for the header of the tests."""
    return "PgBouncer {}.{}".format(*version()) if installed() else "none (tests/db/test_pgbouncer.py is left out)"


class PgBouncer:
    """Listens at `dsn`, as the worker's role, and keeps at most `size` server connections, used in turn."""

    def __init__(self, database: Database, mode: Mode, size: int, settings: Mapping[str, str]) -> None:
        self.mode = mode
        self.size = size
        self._database = database
        self._settings = settings
        self._folder = Path(tempfile.gettempdir()) / f"pgbouncer-{secrets.token_hex(8)}"
        self._account = server_account()
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog = Watchdog(self._folder)

    @property
    def dsn(self) -> str:
        return make_conninfo(self._database.worker_dsn, port=self._port, sslmode="disable", gssencmode="disable")

    def start(self) -> None:
        """Write the configuration, which only this user may read, and listen."""
        self._folder.mkdir(mode=0o700)
        for name, text in {"pgbouncer.ini": self._configuration(), "users": self._users()}.items():
            (self._folder / name).write_text(text)
        self._account.take(self._folder)
        self.bring_up()

    def bring_up(self) -> None:
        """Start it, on the port it had if it ran before."""
        program = installed()
        assert program is not None
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _START, "pgbouncer", program, "pgbouncer.ini"],
            stdin=subprocess.DEVNULL,
            stdout=self._watchdog.pipe,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env={"PATH": os.defpath},
            start_new_session=True,
            user=self._account.user,
            group=self._account.group,
            extra_groups=self._account.groups,
        )
        until(self._listens)

    def kill(self) -> None:
        """End it as kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._watchdog.forget()

    def stop(self) -> None:
        """Leave nothing of it."""
        self.kill()
        self._watchdog.release()
        self._watchdog.wait()

    @contextmanager
    def console(self) -> Generator[Connection[TupleRow]]:
        """The administration console, which knows simple queries only."""
        dsn = make_conninfo(self.dsn, dbname="pgbouncer")
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None, cursor_factory=ClientCursor) as console:
            yield console

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "pgbouncer.log").read_text()
        with suppress(OSError), socket.create_connection((self._database.server.host, self._port)):
            return True
        return False

    def _users(self) -> str:
        return f'"{WORKER}" "{self._database.server.password}"\n'

    def _configuration(self) -> str:
        server = self._database.server
        settings = {
            "listen_addr": server.host,
            "listen_port": str(self._port),
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": "users",
            "admin_users": WORKER,
            "pool_mode": self.mode,
            "default_pool_size": str(self.size),
            "server_round_robin": "1",
            "server_login_retry": "1",
            **self._settings,
        }
        lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
        return f"[databases]\n{self._database.name} = host={server.host} port={server.port}\n[pgbouncer]\n{lines}\n"


@contextmanager
def pgbouncer(
    database: Database, mode: Mode, size: int, settings: Mapping[str, str] | None = None
) -> Generator[PgBouncer]:
    """One that answers; `settings` are those of its section [pgbouncer]."""
    bouncer = PgBouncer(database, mode, size, settings or {})
    try:
        bouncer.start()
        yield bouncer
    finally:
        bouncer.stop()
