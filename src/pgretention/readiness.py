"""Whether the databases are there, seen through sessions that share nothing with those of the runs (H-03).

An answer says what was seen last and never waits, however long a database takes to say something.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from pgretention import db
from pgretention.clock import Clock
from pgretention.errors import Fault, FaultKind
from pgretention.session import connect
from pgretention.sinks import logs
from pgretention.sinks.log_names import INFO, WARNING
from pgretention.stop import Stop

LOOK_EVERY = timedelta(seconds=30)

_MISSED_LOOKS = 3
"""So many intervals a database may go unseen: one lost connection is no reason to take the worker for unready."""

_NAME = "pgretention-readiness"
_ANSWER_WITHIN = timedelta(seconds=5)
_ENDING_SECONDS = 1.0


@dataclass(slots=True)
class _Database:
    """A database, the jobs that clean it, when it was last seen by the monotonic clock, and why it was not since."""

    dsn: str
    jobs: list[str] = field(default_factory=list)
    seen: float | None = None
    fault: Fault | None = None

    def __str__(self) -> str:
        return f"database of {' and '.join(self.jobs)}"


@dataclass(frozen=True, slots=True)
class Away:
    """A database that does not count as there: for how long, None if it was never seen, and why as far as is known."""

    since: timedelta | None
    why: str | None


class Readiness:
    """What is known of the databases while they are being watched."""

    def __init__(self, databases: Sequence[_Database], stop: Stop, clock: Clock, every: timedelta) -> None:
        self._databases = databases
        self._stop = stop
        self._clock = clock
        self._every = every

    def reasons(self) -> list[str]:
        """Why no run could start now, a line each, naming jobs only; nothing when all is ready.

        A database counts as there for three intervals after it was last seen.
        """
        unseen = [why for database in self._databases if (why := self._unseen(database))]
        return [*(["stopping"] if self._stop.requested else []), *unseen]

    def away(self, job: str) -> Away | None:
        """Whether the database of a job does not count as there; None if it does, or nobody looked yet."""
        for database in self._databases:
            unseen_for = self._unseen_for(database)
            if job in database.jobs and unseen_for is not None and (database.fault or database.seen is not None):
                since = None if database.seen is None else timedelta(seconds=unseen_for)
                return Away(since, None if database.fault is None else str(database.fault))
        return None

    def _unseen(self, database: _Database) -> str | None:
        unseen_for = self._unseen_for(database)
        if unseen_for is None:
            return None
        return f"{database} not seen {'yet' if database.seen is None else f'for {unseen_for:.0f} s'}"

    def _unseen_for(self, database: _Database) -> float | None:
        """For how many seconds, infinitely many if it never was; None while it counts as there."""
        past = math.inf if database.seen is None else self._clock.monotonic() - database.seen
        return past if past > _MISSED_LOOKS * self._every.total_seconds() else None

    def watch(self, database: _Database) -> None:
        """Look at one database at once and then at every interval, until a stop is requested."""
        away = False
        while not self._stop.requested:
            database.fault = fault = self._look(database)
            if (fault is not None) is not away and not self._stop.requested:
                away = fault is not None
                _say(database, fault)
            self._stop.wait(self._every)

    def _look(self, database: _Database) -> Fault | None:
        """See the database, or say why not."""
        try:
            with (
                connect(database.dsn, _NAME, given_up=self._stop.given_up) as session,
                db.looking(session, _ANSWER_WITHIN) as connection,
            ):
                connection.execute("SELECT 1", prepare=False)
        except Fault as fault:
            return fault
        except Exception as error:  # noqa: BLE001  without file descriptors, say; the next look may be luckier
            return Fault(FaultKind.INTERNAL, f"unexpected {type(error).__qualname__}")
        database.seen = self._clock.monotonic()
        return None


@contextmanager
def watching(
    jobs: Iterable[tuple[str, str]], *, stop: Stop, clock: Clock, every: timedelta = LOOK_EVERY
) -> Generator[Readiness]:
    """While inside, look at the database of each job, given as name and connection string, every now and then.

    Each database has one thread, however many jobs clean it. The threads end at a stop; one that waits for a server
    which has stopped answering is left to end with the process.
    """
    databases: dict[str, _Database] = {}
    for name, dsn in jobs:
        databases.setdefault(dsn, _Database(dsn)).jobs.append(name)
    readiness = Readiness(tuple(databases.values()), stop, clock, every)
    threads = [
        threading.Thread(target=readiness.watch, args=(database,), name="readiness", daemon=True)
        for database in databases.values()
    ]
    for thread in threads:
        thread.start()
    try:
        yield readiness
    finally:
        stop.request()
        for thread in threads:
            thread.join(_ENDING_SECONDS)


def _say(database: _Database, fault: Fault | None) -> None:
    """Log that a database is away, or back."""
    for job in database.jobs:
        if fault is None:
            logs.say(INFO, "database back", job=job)
        else:
            logs.say(
                WARNING, "database away", job=job, kind=fault.kind.value, sqlstate=fault.sqlstate, error=str(fault)
            )
