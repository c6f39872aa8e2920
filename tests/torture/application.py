"""The application that lives in the same tables: it writes, closes, touches, signs in, and holds locks at bad moments.

Each client works on rows that it made itself, so two clients never wait for each other: a deadlock is never their own
doing. Which rows, and what is done to them, follows from the seed.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from tests.support.planted import PERSON, TEXT
from tests.torture import writes

Work = Connection[TupleRow]

LOST = frozenset({"none", "57P01", "57P02", "57P03"})
"""What a client hears when the server goes down; without a SQLSTATE it is the client library that noticed."""

ROW_IS_GONE = "23503"


class Tally:
    """Counts of what happened, from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._changing = threading.Lock()

    def add(self, what: str, detail: str, times: int = 1) -> None:
        with self._changing:
            self._counts[what, detail] += times

    def of(self, what: str) -> dict[str, int]:
        with self._changing:
            return {detail: count for (each, detail), count in sorted(self._counts.items()) if each == what}


class Client(threading.Thread):
    """One client of the application; `unexpected` says what it should never have met."""

    def __init__(self, dsn: str, seed: str, over: threading.Event, tally: Tally) -> None:
        super().__init__(name=seed)
        self.unexpected: list[str] = []
        self._dsn = dsn
        self._draw = random.Random(seed)
        self._over = over
        self._tally = tally
        self._sessions: deque[UUID] = deque(maxlen=400)
        self._views: deque[UUID] = deque(maxlen=400)
        self._events: deque[tuple[UUID, UUID]] = deque(maxlen=400)  # each with its session
        self._favorites: deque[UUID] = deque(maxlen=400)

    def run(self) -> None:
        while not self._over.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=10) as connection:
                    self._work(connection)
            except psycopg.Error as error:
                self._note(error, "connect")
                self._over.wait(0.2)

    def _work(self, connection: Work) -> None:
        acts = self._acts()
        odds = [odds for _, _, odds in acts]
        while not self._over.is_set():
            name, act, _ = self._draw.choices(acts, odds)[0]
            try:
                act(connection)
                self._tally.add("acts", name)
            except psycopg.Error as error:
                self._note(error, name, _circle(connection, error))
                if connection.closed:
                    return
            self._over.wait(self._draw.uniform(0.0, 0.15))

    def _acts(self) -> tuple[tuple[str, Callable[[Work], None], int], ...]:
        return (
            ("open sessions", self.open_sessions, 30),
            ("bring in a backlog", self.bring_in_a_backlog, 2),
            ("add favorites", self.add_favorites, 20),
            ("add children", self.add_children, 12),
            ("close sessions", self.close_sessions, 6),
            ("reopen sessions", self.reopen_sessions, 6),
            ("touch favorites", self.touch_favorites, 8),
            ("sign in", self.sign_in, 6),
            ("remove favorites", self.remove_favorites, 3),
            ("hold sessions", self.hold_sessions, 4),
            ("hold children", self.hold_children, 3),
            ("tangle", self.tangle, 14),
        )

    def _note(self, error: psycopg.Error, act: str, circle: str = "") -> None:
        """A child of a session that has just been deleted is refused, and a server may go down; nothing else."""
        state = error.sqlstate or "none"
        self._tally.add("application errors", state)
        expected = state in LOST or (state == ROW_IS_GONE and act in {"open sessions", "add children", "tangle"})
        if not expected:
            self.unexpected.append(f"{self.name} met {state} ({type(error).__name__}) in {act}{circle}")

    def open_sessions(self, connection: Work) -> None:
        with connection.transaction():
            for _ in range(self._draw.randint(2, 8)):
                self._open_session(connection)

    def _open_session(self, connection: Work) -> None:
        date = self._draw.choices(writes.DATES, writes.SESSION_ODDS)[0]
        active = self._draw.random() < 0.08
        key = self._key()
        connection.execute(*self._session(key, date, "Active" if active else "Inactive"))
        self._sessions.append(key)
        views = [self._key() for _ in range(self._draw.randint(0, 3))]
        for view in views:
            connection.execute(writes.VIEW, (view, key, view))
        elsewhere = [self._one(self._views)] if self._views and self._draw.random() < 0.2 else []
        for _ in range(self._draw.randint(0, 4)):
            event = self._key()
            seen = self._draw.choice([None, *views, *elsewhere])
            connection.execute(writes.EVENT, (event, key, seen, Jsonb({"typed": TEXT})))
            self._events.append((event, key))
            if self._draw.random() < 0.2:
                view = self._key()
                connection.execute(writes.VIEW_AFTER, (view, key, view, event))
                views.append(view)
        self._views.extend(views)

    def _session(self, key: UUID, date: str, status: str) -> tuple[bytes, dict[str, object]]:
        row: dict[str, object] = {"id": key, "person": PERSON, "text": TEXT, "status": status}
        row["seconds"] = self._draw.uniform(0, 30)
        return writes.SESSION.format(writes.INSTANT[date]).encode(), row

    def bring_in_a_backlog(self, connection: Work) -> None:
        connection.execute(writes.MANY, {"number": self._draw.randint(500, 2000), "person": PERSON, "text": TEXT})

    def add_favorites(self, connection: Work) -> None:
        with connection.transaction():
            for _ in range(self._draw.randint(3, 12)):
                date = self._draw.choices(writes.DATES, writes.FAVORITE_ODDS)[0]
                user = PERSON if self._draw.random() < 0.15 else None
                key = self._key()
                row = {"id": key, "user": user, "person": PERSON, "text": TEXT, "seconds": self._draw.uniform(0, 30)}
                connection.execute(writes.FAVORITE.format(writes.INSTANT[date]).encode(), row)
                self._favorites.append(key)

    def add_children(self, connection: Work) -> None:
        """Of a session that may be expired, or gone."""
        key = self._one(self._sessions)
        with connection.transaction():
            view = self._key()
            connection.execute(writes.VIEW, (view, key, view))
            connection.execute(writes.EVENT, (self._key(), key, view, None))

    def close_sessions(self, connection: Work) -> None:
        connection.execute(
            "UPDATE user_activity.sessions SET status = 'Inactive', ended_at = now()"
            " WHERE id = ANY (%s) AND status = 'Active'",
            [self._some(self._sessions, 20)],
        )

    def reopen_sessions(self, connection: Work) -> None:
        """Sessions that may be expired are in use again, some of them behind the guard and some by their date."""
        change = self._draw.choice(["status = 'Active'", "status = 'Active', ended_at = NULL", "ended_at = now()"])
        connection.execute(
            f"UPDATE user_activity.sessions SET {change} WHERE id = %s".encode(), [self._one(self._sessions)]
        )

    def touch_favorites(self, connection: Work) -> None:
        connection.execute(
            "UPDATE favorites.favorites SET updated_at = now() WHERE id = %s", [self._one(self._favorites)]
        )

    def sign_in(self, connection: Work) -> None:
        connection.execute(
            "UPDATE favorites.favorites SET user_id = %s WHERE id = %s", [PERSON, self._one(self._favorites)]
        )

    def remove_favorites(self, connection: Work) -> None:
        connection.execute("DELETE FROM favorites.favorites WHERE id = %s", [self._one(self._favorites)])

    def hold_sessions(self, connection: Work) -> None:
        with connection.transaction():
            connection.execute(
                "SELECT id FROM user_activity.sessions WHERE id = ANY (%s) FOR UPDATE", [self._some(self._sessions, 5)]
            )
            self._pause(1.5)

    def hold_children(self, connection: Work) -> None:
        with connection.transaction():
            self._change_event(connection, self._event()[0])
            self._pause(1.5)

    def tangle(self, connection: Work) -> None:
        """Locks in the opposite order: first a child, then its session and perhaps another one.

        Most of them with a session older than all others, which the next batch will claim.
        """
        event, session = self._event()
        if self._draw.random() < 0.8:
            event, session = self._key(), self._key()
            with connection.transaction():
                connection.execute(*self._session(session, "ancient", "Inactive"))
                connection.execute(writes.EVENT, (event, session, None, None))
        with connection.transaction():
            self._change_event(connection, event)
            self._pause(1.2)
            for key in session, *self._some(self._sessions, 2)[1:]:
                connection.execute(writes.EVENT, (self._key(), key, None, None))

    def _change_event(self, connection: Work, event: UUID) -> None:
        connection.execute("UPDATE user_activity.action_events SET occurred_at = now() WHERE id = %s", [event])

    def _pause(self, at_most: float) -> None:
        self._over.wait(self._draw.uniform(0, at_most))

    def _key(self) -> UUID:
        return UUID(int=self._draw.getrandbits(128), version=4)

    def _one(self, keys: deque[UUID]) -> UUID:
        return self._draw.choice(keys) if keys else self._key()

    def _event(self) -> tuple[UUID, UUID]:
        return self._draw.choice(self._events) if self._events else (self._key(), self._key())

    def _some(self, keys: deque[UUID], at_most: int) -> list[UUID]:
        return [self._one(keys) for _ in range(self._draw.randint(1, at_most))]


def _circle(connection: Work, error: psycopg.Error) -> str:
    """Who else was in a deadlock: the client's own message names the processes."""
    if not isinstance(error, psycopg.errors.DeadlockDetected) or connection.closed:
        return ""
    pids = {int(pid) for pid in re.findall(r"[Pp]rocess (\d+)", error.diag.message_detail or "")}
    query = "SELECT DISTINCT application_name FROM pg_stat_activity WHERE pid = ANY (%s) ORDER BY 1"
    with suppress(psycopg.Error):
        others = connection.execute(query, [list(pids - {connection.info.backend_pid})])
        return f" with {', '.join(name for (name,) in others) or 'somebody who has left'}"
    return ""
