"""How fast: the waits between batches for the sake of others, as the job's `Pace` asks for them.

Every wait happens between two transactions, on a connection that holds nothing but the job's lock, and ends at once on
a stop. A run whose time would be over before the wait is ends at its limit instead.

- A pause lies between any two batches of a connection, those that were rolled back among them.
- What a batch made the server write, its WAL, is spread over time: at 20 MB a second a batch that wrote 40 MB within
  half a second is followed by a wait of one and a half. What others write meanwhile counts as the batch's, so that a
  busy server is spared more. Parallel connections have equal shares of the rate.
- Nothing is deleted while a streaming replica is too far behind in replaying (pg_stat_replication, chapter 27.2). The
  lag that it tells is that of its last word; one that has fallen silent is known by what it has not replayed of what
  had been written when this run looked before. One that catches up after it was away is too far behind, whatever it
  says.

How large a batch is, so that it takes no longer than it should, is for `window` to say.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from pgretention import backlog, db
from pgretention.course import Course, Ending, Lane
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.report import Limit, Outcome, ReplicaBehind, Throttle, Throttled
from pgretention.session import Session

LOOK_AGAIN: Final = timedelta(seconds=1)
"""Between two looks at a replica, and at whether the run is to end."""

_NOTHING: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class _Replica:
    """A streaming replica: how far it has replayed, in bytes of WAL, and the lag it tells; None while it catches up."""

    name: str
    replayed: int
    lag: timedelta | None


class Governor:
    """Holds one connection of a run back between its batches; what it owes outlives the connection, in its lane."""

    def __init__(self, lane: Lane, session: Session) -> None:
        self._lane = lane
        self._run: Course = lane.run
        self._pace = lane.run.job.pace
        self._session = session
        self._written = 0
        self._looks: deque[tuple[float, int]] = deque()
        """When it was seen how much WAL had been written, as long as a replica has not replayed that."""

    def wait(self) -> Ending | None:
        """Before a batch: wait as long as it takes; the end of the run where its time would be over by then.

        Raises Fault, and Refusal where the role cannot see how far replicas are.
        """
        for reason, owed in self._lane.owed.items():
            if owed >= self._run.time_left():
                return Ending(Outcome.LIMIT_REACHED, limit=Limit.DURATION)
            self._sleep(owed, reason)
        self._lane.owed.clear()
        ending = None
        if self._pace.replica_lag is not None and not self._nothing_to_do:
            ending = self._wait_for_replicas(self._pace.replica_lag)
        if self._pace.wal_rate is not None:
            self._written = self._wal()
        return ending

    def after(self, took: timedelta) -> None:
        """A batch is over, committed or not: what has to be waited for before the next one."""
        owed = self._lane.owed
        if self._pace.pause:
            owed[Throttle.BATCH_PAUSE] = self._pace.pause
        if self._pace.wal_rate is not None:
            with suppress(Fault):  # a connection that is lost by now is for the next batch to find
                spread = (self._wal() - self._written) * len(self._run.lanes) / self._pace.wal_rate
                owed[Throttle.WAL] = max(timedelta(seconds=spread) - took - self._pace.pause, _NOTHING)

    @property
    def _nothing_to_do(self) -> bool:
        before = self._run.before
        return before is not None and before.exact and before.rows == 0

    def _wait_for_replicas(self, limit: timedelta) -> Ending | None:
        told = False
        while not self._called_off:
            behind = self._behind(limit)
            if behind is None:
                return None
            if not told:
                name, lag = behind
                self._run.say(ReplicaBehind(self._run.job.name, self._run.run_id, name, lag, limit))
                told = True
            if self._run.time_left() <= LOOK_AGAIN:
                return Ending(Outcome.LIMIT_REACHED, limit=Limit.DURATION)
            self._sleep(LOOK_AGAIN, Throttle.REPLICA_LAG)
        return None

    @property
    def _called_off(self) -> bool:
        return self._run.stop.requested or self._run.gathering.is_set()

    def _sleep(self, length: timedelta, reason: Throttle) -> None:
        began = self._run.clock.monotonic()
        until = began + length.total_seconds()
        while began < until and not self._called_off:
            self._run.stop.wait(min(LOOK_AGAIN, timedelta(seconds=until - began)))
            now = self._run.clock.monotonic()
            self._run.throttle(Throttled(self._run.job.name, self._run.run_id, reason, timedelta(seconds=now - began)))
            began = now

    def _wal(self) -> int:
        """How many bytes of WAL the server has written so far."""
        with db.looking(self._session, backlog.MEASURING) as connection:
            return db.written(connection)

    def _behind(self, limit: timedelta) -> tuple[str, timedelta | None] | None:
        """The replica that is furthest behind, with its lag, None for one that catches up; None if none is too far."""
        written, replicas = self._look()
        now = self._run.clock.monotonic()
        while self._looks and all(self._looks[0][1] <= replica.replayed for replica in replicas):
            self._looks.popleft()
        self._looks.append((now, written))
        lags: list[tuple[timedelta, str]] = []
        for replica in replicas:
            if replica.lag is None:
                return replica.name, None
            lags.append((max(replica.lag, self._silent(replica, now)), replica.name))
        lag, name = max(lags, default=(_NOTHING, ""))
        return (name, lag) if lag > limit else None

    def _silent(self, replica: _Replica, now: float) -> timedelta:
        """How long ago something was seen written that the replica has not replayed."""
        seen = next((at for at, written in self._looks if written > replica.replayed), now)
        return timedelta(seconds=now - seen)

    def _look(self) -> tuple[int, list[_Replica]]:
        with db.looking(self._session, backlog.MEASURING) as connection:
            rows = connection.execute(db.statement("replicas")).fetchall()
        replicas = []
        seen = cast("list[tuple[str, str | None, int | None, float, int, str]]", rows)
        for name, state, replayed, lag, _, role in seen:
            if state is None:
                self._complain(role)
            if replayed is not None:  # else it only receives, as an archiver does
                replicas.append(_Replica(name, replayed, timedelta(seconds=lag) if state == "streaming" else None))
        return (seen[0][4] if seen else 0), replicas

    def _complain(self, role: str) -> None:
        why = f"MaxReplicaLag is set, and the role {role} cannot see how far replicas are behind"
        what = f'{why}; GRANT pg_monitor TO "{role}", or set MaxReplicaLag to off'
        if self._run.batches == 0:
            raise Refusal([what])
        raise Fault(FaultKind.PRIVILEGE, what)  # the replica has come while the run was on
