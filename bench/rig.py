"""The server that is measured on, and a turn on it: the same rows in the same state for whoever comes next.

Each turn works on a copy of its database, read into shared memory, after a checkpoint; none follows while it is on, and
autovacuum is off. Afterwards exactly the expired rows must be gone, or the turn counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from bench import process
from bench.contenders import Contender, Task
from bench.data import Dataset, Fingerprint, fill, fingerprint
from bench.process import Used
from pgretention.demo.binaries import Binaries
from pgretention.demo.server import ThrowawayServer

SETTINGS = MappingProxyType(
    {
        "fsync": "on",
        "shared_buffers": "2GB",
        "max_wal_size": "32GB",
        "min_wal_size": "4GB",
        "checkpoint_timeout": "1h",
        "autovacuum": "off",
    }
)
"""What is not PostgreSQL's default."""

_TURN = sql.Identifier("turn")

Beside = Callable[[str], AbstractContextManager[object]]
"""What goes on beside a turn, given the database it is on; begins before and ends after it."""


class WrongRows(Exception):
    """A contender deleted too much or too little."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a contender used, and how many bytes of WAL the server wrote meanwhile."""

    used: Used
    wal_bytes: int


class Rig:
    """A server with the databases that turns are copied from; each is filled when it is first asked for."""

    def __init__(self, server: ThrowawayServer, binaries: Binaries) -> None:
        self.server = server
        self.binaries = binaries
        self._filled: dict[str, Fingerprint] = {}

    @classmethod
    @contextmanager
    def up(cls, binaries: Binaries) -> Generator[Rig]:
        """A server of its own, gone at the end."""
        with ThrowawayServer.start(binaries, SETTINGS) as server:
            yield cls(server, binaries)

    def connect(self, name: str = "postgres") -> Connection[TupleRow]:
        """A superuser's connection in autocommit."""
        return psycopg.connect(self.server.dsn(name), autocommit=True)

    def turn(
        self,
        contender: Contender,
        data: Dataset,
        *,
        batch_size: int | None = None,
        pause_ms: int = 0,
        beside: Beside = nullcontext,
    ) -> Turn:
        """Let a contender delete what is expired; raises WrongRows when something else was deleted or is left."""
        task = Task(
            contender.path,
            contender.workers,
            data.tables.job,
            self.server.dsn("turn"),
            batch_size or data.tables.batch_size,
            pause_ms,
        )
        with self.copy(data) as admin:
            with beside(task.dsn):
                before = _wal(admin)
                used = process.run(task)
                wal_bytes = _wal(admin) - before
            left = fingerprint(admin, data.tables)
        if left != self._filled[data.name]:
            raise WrongRows(f"{contender.name}: {left} is left where {self._filled[data.name]} should be")
        return Turn(used, wal_bytes)

    @contextmanager
    def copy(self, data: Dataset) -> Generator[Connection[TupleRow]]:
        """A database of its own with these rows for one turn, and a connection to it."""
        if data.name not in self._filled:
            self._fill(data)
        with self.connect() as server:
            server.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(_TURN, sql.Identifier(data.name))
            )
        try:
            with self.connect("turn") as admin:
                admin.execute("SELECT pg_prewarm(oid) FROM pg_class WHERE relkind IN ('r', 'i')")
                admin.execute("CHECKPOINT")
                yield admin
        finally:
            with self.connect() as server:
                server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(_TURN))

    def forget(self, data: Dataset) -> None:
        """Drop the database that copies were made from."""
        if self._filled.pop(data.name, None) is not None:
            with self.connect() as server:
                server.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(data.name)))

    def _fill(self, data: Dataset) -> None:
        with self.connect() as server:
            server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(data.name)))
        with self.connect(data.name) as connection:
            self._filled[data.name] = fill(connection, data)


def _wal(admin: Connection[TupleRow]) -> int:
    ((written,),) = admin.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchall()
    return int(written)
