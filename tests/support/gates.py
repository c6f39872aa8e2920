"""Waiting for things that are certain to happen, and a gate that holds a run up at one row until the test opens it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from uuid import UUID

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention.policy import Table
from tests.databases import WORKER, Database

_numbers = itertools.count(1)


def until(fact: Callable[[], bool]) -> None:
    """Look again and again for something that is certain to happen; half a minute in vain means that it is not."""
    given_up = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < given_up, "waited in vain"
        time.sleep(0.005)


def one(connection: Connection[TupleRow], query: str, *binds: object) -> object:
    """The single value that a query answers."""
    row = connection.execute(query.encode(), binds or None).fetchone()
    assert row is not None
    return row[0]


def blocked(connection: Connection[TupleRow], pid: int) -> bool:
    """Whether a backend waits for a lock that another holds."""
    return bool(one(connection, "SELECT cardinality(pg_blocking_pids(%s)) > 0", pid))


def workers(connection: Connection[TupleRow]) -> list[int]:
    """The backends of the runs that are connected to this database."""
    query = """
        SELECT pid FROM pg_stat_activity
         WHERE datname = current_database() AND application_name LIKE 'pgretention/%' ORDER BY backend_start
    """
    return [row[0] for row in connection.execute(query)]


_POLICIES_HOLD = sql.SQL("ALTER ROLE {} NOBYPASSRLS").format(sql.Identifier(WORKER))
_POLICIES_DO_NOT_HOLD = sql.SQL("ALTER ROLE {} BYPASSRLS").format(sql.Identifier(WORKER))


class Gate:
    """A row that no worker gets past while the gate is closed.

    It is an advisory lock of the test, for which a function on the server waits whatever the lock timeout. Several
    workers may wait at once, and all go on when it opens.
    """

    def __init__(self, database: Database) -> None:
        self._connection = database.connect()
        self._number = next(_numbers)
        self._name = sql.Identifier(f"gate_{self._number}")
        self._closed = False
        self._policy_on: Table | None = None
        self._behind_the_table = False

    def close(self) -> None:
        """Let nobody through. A gate before locking is not there at all until it is closed for the first time."""
        self._connection.execute("SELECT pg_advisory_lock(4711, %s)", [self._number])
        self._closed = True
        if self._policy_on is not None:
            self._connection.execute(_POLICIES_HOLD)

    def close_behind_the_catalog(self) -> None:
        """Close a gate before locking for a worker that has still to come, and appear when it has read the catalog.

        The table is locked until somebody waits for it; nobody but the worker may look at it before `wait_for`.
        """
        assert self._policy_on is not None
        self._connection.execute("BEGIN")
        self._connection.execute(sql.SQL("LOCK TABLE {}").format(_name(self._policy_on)))
        self.close()
        self._behind_the_table = True

    def open(self) -> None:
        """Let everybody through; opening it again does nothing."""
        if self._closed:
            self._connection.execute("SELECT pg_advisory_unlock(4711, %s)", [self._number])
            self._closed = False

    def dismantle(self) -> None:
        """Let everybody through for good, whatever has become of the server meanwhile."""
        if self._policy_on is not None:
            self._connection.execute("ROLLBACK")
            self._connection.execute(_POLICIES_HOLD)
        self._connection.close()

    def wait_for(self, runs: int = 1) -> None:
        """Until that many workers stand before the gate."""
        if self._behind_the_table:
            me = self._connection.info.backend_pid
            waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid)))"
            until(lambda: one(self._connection, waiting, me) is True)
            self._connection.execute("COMMIT")
            self._behind_the_table = False
        query = (
            "SELECT count(*) FROM pg_locks WHERE (locktype, classid, objid, granted) = ('advisory', 4711, %s, false)"
        )
        until(lambda: one(self._connection, query, self._number) == runs)

    def before_deleting(self, table: Table, key: UUID | None = None) -> None:
        """Put the gate, closed, between the claim of this row, or of any, and its deletion."""
        self._create_function()
        which = sql.SQL("true") if key is None else sql.SQL("OLD.id = {}").format(sql.Literal(key))
        self._connection.execute(
            sql.SQL("CREATE TRIGGER {0} BEFORE DELETE ON {1} FOR EACH ROW WHEN ({2}) EXECUTE FUNCTION {0}()").format(
                self._name, _name(table), which
            )
        )
        self.close()

    def before_locking(self, table: Table, key: UUID) -> None:
        """Put the gate, open, between the moment a claim takes its snapshot and the moment it locks this row.

        A row-level security policy that lets everything through is asked at exactly that time, and when rows are
        counted. A run is refused where a policy holds for its role, so none does until the gate is closed.
        """
        self._connection.execute(
            sql.SQL(
                """
                CREATE FUNCTION {0}(id uuid) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = 0 AS
                $$ BEGIN
                    IF id = {1} THEN PERFORM pg_advisory_xact_lock_shared(4711, {2}); END IF;
                    RETURN true;
                END $$;
                CREATE POLICY {0} ON {3} USING ({0}(id));
                ALTER TABLE {3} ENABLE ROW LEVEL SECURITY;
                """
            ).format(self._name, sql.Literal(key), sql.Literal(self._number), _name(table))
        )
        self._connection.execute(_POLICIES_DO_NOT_HOLD)
        self._policy_on = table

    def before_commit(self, table: Table, key: UUID) -> None:
        """Put the gate, closed, into the COMMIT of the transaction that deletes this row."""
        self._create_function()
        self._connection.execute(
            sql.SQL(
                "CREATE CONSTRAINT TRIGGER {0} AFTER DELETE ON {1} DEFERRABLE INITIALLY DEFERRED"
                " FOR EACH ROW WHEN (OLD.id = {2}) EXECUTE FUNCTION {0}()"
            ).format(self._name, _name(table), sql.Literal(key))
        )
        self.close()

    def _create_function(self) -> None:
        self._connection.execute(
            sql.SQL(
                """
                CREATE FUNCTION {0}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = 0 AS
                $$ BEGIN
                    PERFORM pg_advisory_xact_lock_shared(4711, {1});
                    RETURN OLD;
                END $$
                """
            ).format(self._name, sql.Literal(self._number))
        )


def _name(table: Table) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)
