"""On a real server: the grants are enough for every statement of a run, each is needed, and nothing else is allowed."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import LiteralString

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention import catalog, plan, schema
from pgretention.errors import FaultKind
from pgretention.policy import Child, IsNull, Policy, Table
from pgretention.report import Outcome, RunReport
from tests.databases import WORKER, Database
from tests.support.runs import ACTIVITY, GUESTS, YEAR, job, unwatched_run

SHIPPED = (ACTIVITY, GUESTS)

EXPIRED: tuple[LiteralString, ...] = (
    """INSERT INTO user_activity.sessions (id, anonymous_id, status, started_at, last_activity_at, ended_at, user_agent)
       SELECT gen_random_uuid(), gen_random_uuid(), 'Inactive', at, at, at, 'a browser'
         FROM (SELECT now() - interval '400 days' AS at) AS long_ago, generate_series(1, 3)""",
    """INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
       SELECT gen_random_uuid(), id, gen_random_uuid(), started_at FROM user_activity.sessions""",
    """INSERT INTO user_activity.action_events
              (id, session_id, event_type, property_object_view_id, occurred_at, payload)
       SELECT gen_random_uuid(), session_id, 'opened', id, started_at, '{}'
         FROM user_activity.property_object_views""",
    """INSERT INTO user_activity.property_object_view_stats
       SELECT property_object_id, 1 FROM user_activity.property_object_views""",
    """INSERT INTO favorites.favorites (id, anonymous_id, property_object_id, note, updated_at)
       SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'mine', now() - interval '400 days'
         FROM generate_series(1, 3)""",
)


@pytest.fixture
def owner(database: Database) -> Connection[TupleRow]:
    """The superuser's connection, with some expired rows in every table that is cleaned."""
    connection = database.connect()
    for statement in EXPIRED:
        connection.execute(statement)
    return connection


@pytest.fixture
def worker(database: Database) -> Iterator[Connection[TupleRow]]:
    with psycopg.connect(database.worker_dsn, autocommit=True) as connection:
        yield connection


def run(policy: Policy, dsn: str) -> RunReport:
    return unwatched_run(dsn, job(policy, batch_size=2)).report


@pytest.mark.req("F-06")
@pytest.mark.parametrize("policy", SHIPPED, ids=lambda policy: policy.name)
def test_the_role_can_run_the_job_to_its_end(policy: Policy, database: Database, owner: Connection[TupleRow]) -> None:
    report = run(policy, database.worker_dsn)
    assert (report.outcome, report.error) == (Outcome.COMPLETED, None)
    assert set(report.deleted.values()) == {3}
    for table in policy.tables:
        assert count(owner, table) == 0


@pytest.mark.req("F-06")
@pytest.mark.parametrize("policy", SHIPPED, ids=lambda policy: policy.name)
def test_every_statement_of_a_plan_can_be_executed_by_the_role(
    policy: Policy, owner: Connection[TupleRow], worker: Connection[TupleRow]
) -> None:
    statements = plan.build(policy, catalog.read(worker, policy.tables))
    cutoff, now = answer(owner, sql.SQL("SELECT now() - interval '365 days', now()"))
    binds = {"cutoff": cutoff, "now": now}
    counted = sql.SQL("SELECT count(*) FROM ({}) AS rows")
    assert answer(worker, counted.format(statements.expired), binds) == (3,)
    for child in policy.children:
        assert answer(worker, counted.format(statements.expired_children(child)), binds) == (3,)
    assert answer(worker, statements.oldest_age, binds)
    with worker.transaction(force_rollback=True):
        claimed, addresses, keys, expiry, key = answer(worker, statements.claim_first(2), binds)
        binds |= {"addresses": addresses, "keys": keys, "after_expiry": expiry, "after_key": key}
        deleted = answer(worker, statements.delete, binds)
        left, *_ = answer(worker, statements.claim_next(2), binds)
    assert (claimed, deleted, left) == (2, (2,) * len(policy.tables), 1)


def count(owner: Connection[TupleRow], table: Table) -> object:
    return answer(owner, sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table.schema, table.name)))[0]


def answer(
    connection: Connection[TupleRow], query: sql.Composable, binds: Mapping[str, object] | None = None
) -> TupleRow:
    row = connection.execute(query.as_string().encode(), binds).fetchone()
    assert row is not None
    return row


FORBIDDEN: tuple[LiteralString, ...] = (
    "SELECT note FROM favorites.favorites",
    "SELECT anonymous_id FROM favorites.favorites",
    "SELECT created_at FROM favorites.favorites",
    "SELECT * FROM favorites.favorites",
    "SELECT f FROM favorites.favorites f",
    "DELETE FROM favorites.favorites WHERE false RETURNING note",
    "COPY favorites.favorites TO STDOUT",
    "INSERT INTO favorites.favorites (id) VALUES (gen_random_uuid())",
    "UPDATE favorites.favorites SET user_id = NULL",
    "UPDATE favorites.favorites SET updated_at = now()",
    "UPDATE favorites.favorites SET note = ''",
    "TRUNCATE favorites.favorites",
    "SELECT anonymous_id FROM user_activity.sessions",
    "SELECT user_id FROM user_activity.sessions",
    "SELECT user_agent FROM user_activity.sessions",
    "INSERT INTO user_activity.sessions (id) VALUES (gen_random_uuid())",
    "UPDATE user_activity.sessions SET status = 'Inactive'",
    "UPDATE user_activity.sessions SET ended_at = now()",
    "TRUNCATE user_activity.sessions CASCADE",
    "SELECT id FROM user_activity.property_object_views",
    "SELECT property_object_id FROM user_activity.property_object_views",
    "INSERT INTO user_activity.property_object_views (id) VALUES (gen_random_uuid())",
    "UPDATE user_activity.property_object_views SET session_id = session_id",
    "TRUNCATE user_activity.property_object_views CASCADE",
    "SELECT payload FROM user_activity.action_events",
    "INSERT INTO user_activity.action_events (id) VALUES (gen_random_uuid())",
    "UPDATE user_activity.action_events SET session_id = session_id",
    "TRUNCATE user_activity.action_events CASCADE",
    "SELECT FROM user_activity.property_object_view_stats",
    "SELECT FROM user_activity.property_object_view_stats FOR UPDATE",
    "INSERT INTO user_activity.property_object_view_stats (property_object_id) VALUES (gen_random_uuid())",
    "UPDATE user_activity.property_object_view_stats SET views_count = 0",
    "DELETE FROM user_activity.property_object_view_stats",
    "TRUNCATE user_activity.property_object_view_stats",
    "CREATE TABLE favorites.mine ()",
    "CREATE TABLE user_activity.mine ()",
)


@pytest.mark.req("F-06")
@pytest.mark.req("A-03")
def test_the_role_can_do_nothing_that_no_run_does(worker: Connection[TupleRow]) -> None:
    def refused(statement: LiteralString) -> bool:
        try:
            worker.execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            return True
        return False

    assert [statement for statement in FORBIDDEN if not refused(statement)] == []


HELD: LiteralString = """
    SELECT format('SCHEMA %%I', n.nspname), p.privilege_type, NULL
      FROM pg_namespace n, aclexplode(n.nspacl) p WHERE p.grantee = %(role)s::regrole
     UNION ALL
    SELECT format('%%I.%%I', n.nspname, c.relname), p.privilege_type, NULL
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) p
     WHERE p.grantee = %(role)s::regrole
     UNION ALL
    SELECT format('%%I.%%I', n.nspname, c.relname), p.privilege_type, a.attname
      FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace,
           aclexplode(a.attacl) p
     WHERE p.grantee = %(role)s::regrole
     ORDER BY 1, 2, 3
"""
"""Every privilege the role holds in the database, as the server keeps them: object, privilege and column."""


@pytest.mark.req("F-06")
@pytest.mark.req("A-03")
def test_the_role_holds_these_privileges_and_no_other(owner: Connection[TupleRow]) -> None:
    favorites, sessions = "favorites.favorites", "user_activity.sessions"
    events, views = "user_activity.action_events", "user_activity.property_object_views"
    assert set(owner.execute(HELD, {"role": WORKER})) == {
        ("SCHEMA favorites", "USAGE", None),
        ("SCHEMA user_activity", "USAGE", None),
        *((table, "DELETE", None) for table in (favorites, sessions, events, views)),
        *((favorites, "SELECT", column) for column in ("ctid", "id", "updated_at", "user_id")),
        *((sessions, "SELECT", column) for column in ("ctid", "id", "ended_at", "status")),
        *((table, "SELECT", "session_id") for table in (events, views)),
        *((table, "UPDATE", "id") for table in (favorites, sessions)),
    }


@pytest.mark.req("F-06")
def test_without_any_single_one_of_the_privileges_a_run_fails(database: Database, owner: Connection[TupleRow]) -> None:
    held = owner.execute(HELD, {"role": WORKER}).fetchall()
    assert held
    for target, privilege, column in held:
        what = privilege if column is None else f"{privilege} ({column})"
        owner.execute(f"REVOKE {what} ON {target} FROM {WORKER}".encode())
        reports = [run(policy, database.worker_dsn) for policy in SHIPPED if policy.root.schema in target]
        assert [(report.outcome, report.error and report.error.kind) for report in reports] == [
            (Outcome.FAILED, FaultKind.PRIVILEGE)
        ], what
        assert sum(sum(report.deleted.values()) for report in reports) == 0
        owner.execute(f"GRANT {what} ON {target} TO {WORKER}".encode())
    assert [run(policy, database.worker_dsn).outcome for policy in SHIPPED] == [Outcome.COMPLETED] * 2


@contextmanager
def role(owner: Connection[TupleRow], name: str, password: str) -> Generator[None]:
    identifier = sql.Identifier(name)
    owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(identifier, password))
    try:
        yield
    finally:
        owner.execute(sql.SQL("DROP OWNED BY {}").format(identifier))
        owner.execute(sql.SQL("DROP ROLE {}").format(identifier))


@pytest.mark.req("F-06")
def test_names_that_need_quoting_are_granted_and_run_like_any_other(database: Database) -> None:
    owner = database.connect()
    owner.execute(
        '''CREATE SCHEMA "a ""b""";
           CREATE TABLE "a ""b"""."T; --" ("select" int PRIMARY KEY, "at'" timestamptz, "Who" int);
           CREATE TABLE "a ""b"""."c.d" ("of who" int REFERENCES "a ""b"""."T; --");
           INSERT INTO "a ""b"""."T; --" VALUES (1, '2000-01-01Z', NULL), (2, '2000-01-01Z', 2);
           INSERT INTO "a ""b"""."c.d" VALUES (1), (2)'''
    )
    policy = Policy(
        name="odd names",
        root=Table('a "b"', "T; --"),
        key="select",
        expiry="at'",
        guard=(IsNull("Who"),),
        retention=YEAR,
        children=(Child(Table('a "b"', "c.d"), root_key="of who"),),
    )
    name = 'Wörker "x"; --'
    with role(owner, name, database.server.password):
        owner.execute(schema.grants([policy], name).encode())
        report = run(policy, database.server.dsn(database.name, name, database.server.password))
        assert (report.outcome, report.error) == (Outcome.COMPLETED, None)
        assert set(report.deleted.values()) == {1}


def test_each_domain_can_have_a_database_and_a_script_of_its_own(database: Database) -> None:
    owner = database.connect()
    for policy in SHIPPED:
        with role(owner, "only", database.server.password):
            owner.execute(schema.grants([policy], "only").encode())
            held = {str(target) for target, *_ in owner.execute(HELD, {"role": "only"})}
            assert held == {f"SCHEMA {policy.root.schema}", *map(str, policy.tables)}
