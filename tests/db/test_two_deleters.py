"""Attempts to get two runs of activity-retention to delete at once."""

from __future__ import annotations

from typing import LiteralString

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention.policy import Table
from tests.databases import WORKER, Database
from tests.support import rows
from tests.support.rows import EVENTS, SESSIONS
from tests.support.storm import DISTURBANCES, NO_OTHER_DELETES, nothing, storm
from tests.support.transaction_pooler import transaction_pooler
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]

UNLOCK: LiteralString = "PERFORM pg_advisory_unlock_all()"


def test_the_trigger_sees_a_second_deleter(database: Database, admin: Admin) -> None:
    first, second = (rows.session(admin) for _ in range(2))
    admin.execute(NO_OTHER_DELETES)
    with database.connect() as one_run, database.connect() as other:
        one_run.execute("SET application_name = 'one'")
        other.execute("SET application_name = 'other'")
        with one_run.transaction():
            one_run.execute("DELETE FROM user_activity.sessions WHERE id = %s", [first])
            with pytest.raises(psycopg.errors.RaiseException, match="another run"):
                other.execute("DELETE FROM user_activity.sessions WHERE id = %s", [second])


@pytest.mark.req("A-09")
@pytest.mark.parametrize("name", DISTURBANCES)
def test_whatever_disturbs_them_no_two_runs_delete_at_once(database: Database, admin: Admin, name: str) -> None:
    storm(admin, [database.worker_dsn], DISTURBANCES[name])


@pytest.mark.req("A-09")
@pytest.mark.parametrize("table", [SESSIONS, EVENTS], ids=str)
@pytest.mark.parametrize("name", ["nothing", "terminate"])
def test_nor_when_a_trigger_gives_every_lock_of_its_session_back(
    database: Database, admin: Admin, table: Table, name: str
) -> None:
    on_delete(admin, table, UNLOCK)
    storm(admin, [database.worker_dsn], DISTURBANCES[name])


@pytest.mark.req("A-09")
@pytest.mark.parametrize("setting", ["idle_session_timeout", "idle_in_transaction_session_timeout"])
def test_nor_when_the_role_s_idle_sessions_are_ended_at_once(
    database: Database, admin: Admin, setting: LiteralString
) -> None:
    admin.execute(
        sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = '100ms'").format(
            sql.Identifier(WORKER), sql.Identifier(database.name), sql.Identifier(setting)
        )
    )
    storm(admin, [database.worker_dsn], nothing)


@pytest.mark.req("A-09", "H-04")
def test_nor_when_some_come_through_a_pooler_and_some_do_not(database: Database, admin: Admin) -> None:
    with transaction_pooler(database, 3) as pooler:
        storm(admin, [database.worker_dsn, pooler.dsn], nothing)
