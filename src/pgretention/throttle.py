"""How fast: the waits between batches for the sake of others, as the job's `Pace` asks for them.

Every wait happens between two transactions, on a connection that holds nothing but the job's lock, and ends at once on
a stop. A run whose time would be over before the wait is ends at its limit instead.

- A pause lies between any two batches.
- What a batch made the server write, its WAL, is spread over time: at 20 MB a second a batch that wrote 40 MB within
  half a second is followed by a wait of one and a half. What others write meanwhile counts as the batch's, so that a
  busy server is spared more.
- Nothing is deleted while a streaming replica is too far behind in replaying (pg_stat_replication, chapter 27.2).

How large a batch is, so that it takes no longer than it should, is for `window` to say.
"""

from __future__ import annotations

from datetime import timedelta
from importlib.resources import files
from typing import Final, cast

from pgretention import backlog, db
from pgretention.course import Course, Ending
from pgretention.errors import Refusal
from pgretention.report import Outcome, ReplicaBehind, Throttle, Throttled
from pgretention.session import Session

LOOK_AGAIN: Final = timedelta(seconds=1)
"""Between two looks at a replica, and at whether the run is to end."""

_NOTHING: Final = timedelta(0)
_WAL: Final = "SELECT (pg_current_wal_insert_lsn() - '0/0')::int8"


class Governor:
    """Holds one connection of a run back between its batches."""

    def __init__(self, run: Course, session: Session) -> None:
        self._run = run
        self._pace = run.job.pace
        self._session = session
        self._written = 0
        self._owed = {Throttle.BATCH_PAUSE: _NOTHING, Throttle.WAL: _NOTHING}

    def wait(self) -> Ending | None:
        """Before a batch: wait as long as it takes; the end of the run where its time would be over by then.

        Raises Fault, and Refusal where the role cannot see how far replicas are.
        """
        for reason, owed in self._owed.items():
            if owed >= self._run.time_left():
                return Ending(Outcome.LIMIT_REACHED)
            self._sleep(owed, reason)
            self._owed[reason] = _NOTHING
        ending = self._wait_for_replicas(self._pace.replica_lag) if self._pace.replica_lag is not None else None
        if self._pace.wal_rate is not None:
            self._written = self._wal()
        return ending

    def committed(self, took: timedelta) -> None:
        """A batch is committed: what has to be waited for before the next one. Raises Fault."""
        self._owed[Throttle.BATCH_PAUSE] = self._pace.pause
        if self._pace.wal_rate is not None:
            spread = timedelta(seconds=(self._wal() - self._written) / self._pace.wal_rate)
            self._owed[Throttle.WAL] = max(spread - took - self._pace.pause, _NOTHING)

    def _wait_for_replicas(self, limit: timedelta) -> Ending | None:
        told = False
        while not self._called_off:
            replica, lag = self._furthest_behind()
            if lag <= limit:
                return None
            if not told:
                self._run.say(ReplicaBehind(self._run.job.name, self._run.run_id, replica, lag, limit))
                told = True
            if self._run.time_left() <= LOOK_AGAIN:
                return Ending(Outcome.LIMIT_REACHED)
            self._sleep(LOOK_AGAIN, Throttle.REPLICA_LAG)
        return None

    @property
    def _called_off(self) -> bool:
        return self._run.stop.requested or self._run.gathering.is_set()

    def _sleep(self, length: timedelta, reason: Throttle) -> None:
        until = self._run.clock.monotonic() + length.total_seconds()
        began = self._run.clock.monotonic()
        while began < until and not self._called_off:
            self._run.stop.wait(min(LOOK_AGAIN, timedelta(seconds=until - began)))
            now = self._run.clock.monotonic()
            self._run.throttle(Throttled(self._run.job.name, self._run.run_id, reason, timedelta(seconds=now - began)))
            began = now

    def _wal(self) -> int:
        """How many bytes of WAL the server has written so far."""
        with db.looking(self._session, backlog.MEASURING) as connection:
            return cast("tuple[int]", connection.execute(_WAL).fetchone())[0]

    def _furthest_behind(self) -> tuple[str, timedelta]:
        with db.looking(self._session, backlog.MEASURING) as connection:
            asking = files("pgretention").joinpath("sql/replicas.sql").read_bytes()
            row = connection.execute(asking).fetchone()
        replica, seconds, role = cast("tuple[str | None, float | None, str]", row or (None, 0.0, ""))
        if seconds is None:
            why = f"MaxReplicaLag is set, and the role {role} cannot see how far replicas are behind"
            raise Refusal([f'{why}; GRANT pg_monitor TO "{role}", or set MaxReplicaLag to off'])
        return str(replica), timedelta(seconds=seconds)
