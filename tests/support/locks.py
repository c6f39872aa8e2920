"""The advisory lock of activity-retention, as a test sees it from outside."""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from tests.support.gates import one, until, workers

LOCK = "job:scheduled:activity-retention"


def assert_nothing_is_held(admin: Connection[TupleRow]) -> None:
    """No backend of a run is left, and the lock is free."""
    until(lambda: workers(admin) == [])
    assert_the_lock_is_free(admin)


def assert_the_lock_is_free(admin: Connection[TupleRow]) -> None:
    """Another run could begin."""
    assert one(admin, "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", LOCK) is True
    assert one(admin, "SELECT pg_advisory_unlock(hashtextextended(%s, 0))", LOCK) is True
