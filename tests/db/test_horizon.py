"""Who keeps dead rows, on a server of its own: a prepared transaction, a logical slot, a reader on a replica."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention.clock import SystemClock
from pgretention.demo.binaries import Binaries
from pgretention.demo.server import ThrowawayServer
from pgretention.preflight import Finding, Severity, inspect
from pgretention.preflight.server import Old
from tests.conftest import INSTALLED
from tests.databases import WORKER, Database, fresh_database, make_template
from tests.support.gates import one, until
from tests.support.runs import GUESTS, job
from tests.support.standby import Standby

Admin = Connection[TupleRow]


@pytest.fixture(scope="module", params=INSTALLED, ids=lambda binaries: f"pg{binaries.version}")
def server(request: pytest.FixtureRequest) -> Iterator[ThrowawayServer]:
    binaries: Binaries = request.param
    settings = {"max_prepared_transactions": "2", "wal_level": "logical"}
    with ThrowawayServer.start(binaries, settings) as server:
        make_template(server)
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute(sql.SQL("GRANT pg_monitor TO {}").format(sql.Identifier(WORKER)))
        yield server


@pytest.fixture
def database(server: ThrowawayServer) -> Iterator[Database]:
    with fresh_database(server) as database:
        yield database


def found(database: Database, old: Old = Old(timedelta(0), 0)) -> list[Finding]:  # noqa: B008  a value
    return list(inspect(job(GUESTS), database.worker_dsn, SystemClock(), older_than=old))


def the_one(database: Database) -> Finding:
    (finding,) = found(database)
    assert (finding.severity, finding.code) == (Severity.WARNING, "old-snapshot")
    assert found(database, Old()) == [], "it is not old by what is the default"
    return finding


def test_nobody_keeps_anything(database: Database) -> None:
    assert found(database) == []


def test_a_prepared_transaction_is_found_and_the_fix_ends_it(database: Database, admin: Admin) -> None:
    with database.connect() as somebody:
        somebody.execute("BEGIN")
        somebody.execute("CREATE TABLE public.something (n int)")
        somebody.execute("PREPARE TRANSACTION 'left behind'")

    finding = the_one(database)
    assert finding.object.startswith("prepared transaction left behind of role postgres, since ")
    admin.execute(finding.fix.encode())

    assert found(database) == []


def test_a_logical_slot_that_nobody_reads_is_found_and_the_fix_drops_it(database: Database, admin: Admin) -> None:
    admin.execute("SELECT pg_create_logical_replication_slot('forgotten', 'pgoutput')")
    try:
        admin.execute("CREATE TABLE public.something (n int)")
        findings = found(database)
        assert {(finding.code, finding.object) for finding in findings} == {
            ("old-snapshot", "replication slot forgotten, not in use"),
            ("idle-slot", "replication slot forgotten, not in use"),
        }
    finally:
        admin.execute(findings[0].fix.encode())
    assert found(database) == []


def test_a_reader_on_a_replica_is_found(database: Database, admin: Admin) -> None:
    with Standby.of(database.server, "reports", feedback=True) as standby:
        with psycopg.connect(standby.dsn(database.name)) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM favorites.favorites")
            until(lambda: _told(admin))
            finding = the_one(database)
        assert finding.object.startswith("replica reports, whose oldest transaction began ")
        assert "on the replica" in finding.fix


def _told(admin: Admin) -> bool:
    """The replica has said whom it serves, and transactions have begun since."""
    admin.execute("CREATE TABLE public.something (n int)")
    admin.execute("DROP TABLE public.something")
    return one(admin, "SELECT coalesce(max(age(backend_xmin)), 0) > 0 FROM pg_stat_replication") is True
