"""What every job keeps to, whatever it cleans: one suite over all that pgretention ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.app import JOB_NAMES
from pgretention.errors import FaultKind
from pgretention.policy import Policy
from pgretention.report import BatchDone, Fact, Outcome, RunFinished, RunStarted
from pgretention.stop import Stop
from tests.databases import Database
from tests.support import rows
from tests.support.gates import one, workers
from tests.support.runs import ACTIVITY, GUESTS, job, run
from tests.support.triggers import drop, on_delete

Admin = Connection[TupleRow]


@dataclass(frozen=True)
class Domain:
    """A job with rows to clean: `insert` adds an unremarkable root row whose expiry is given, `keep` protected ones."""

    policy: Policy
    insert: Callable[[Admin, str], UUID]
    keep: Callable[[Admin], set[object]]

    def expired(self, admin: Admin, count: int) -> list[UUID]:
        return [self.insert(admin, f"2020-01-{day:02}") for day in range(1, count + 1)]

    def left(self, admin: Admin) -> set[object]:
        return rows.ids(admin, self.policy.root)


def session(admin: Admin, ended_at: str) -> UUID:
    key = rows.session(admin, ended_at)
    rows.event(admin, key, property_object_view_id=rows.view(admin, key))
    return key


def protected_sessions(admin: Admin) -> set[object]:
    keys = {rows.session(admin, "now"), rows.active_session(admin), rows.active_session(admin, created_at=rows.OLD)}
    for key in keys:
        rows.event(admin, key, property_object_view_id=rows.view(admin, key))
    return set(keys)


def protected_favorites(admin: Admin) -> set[object]:
    return {rows.favorite(admin, "now"), rows.favorite(admin, user_id=uuid4()), rows.favorite(admin, "infinity")}


DOMAINS = [Domain(ACTIVITY, session, protected_sessions), Domain(GUESTS, rows.favorite, protected_favorites)]


@pytest.fixture(params=DOMAINS, ids=lambda domain: domain.policy.name)
def domain(request: pytest.FixtureRequest) -> Domain:
    chosen: Domain = request.param
    return chosen


def test_the_suite_covers_every_job_there_is() -> None:
    assert [domain.policy.name for domain in DOMAINS] == list(JOB_NAMES)


@pytest.mark.req("A-01", "A-04", "F-01", "F-02")
def test_the_expired_rows_go_and_the_protected_ones_stay(database: Database, admin: Admin, domain: Domain) -> None:
    domain.expired(admin, 5)
    kept = domain.keep(admin)

    report = run(database, job(domain.policy, batch_size=2)).report

    assert report.outcome is Outcome.COMPLETED
    assert report.deleted == dict.fromkeys(map(str, domain.policy.tables), 5)
    assert domain.left(admin) == kept


@pytest.mark.req("A-14", "F-12")
def test_a_run_with_nothing_to_do_is_a_success_with_zeros(database: Database, admin: Admin, domain: Domain) -> None:
    kept = domain.keep(admin)
    domain.expired(admin, 1)
    run(database, job(domain.policy))

    ran = run(database, job(domain.policy))

    assert [type(fact) for fact in ran.facts] == [RunStarted, RunFinished]
    assert (ran.report.outcome, ran.report.has_more, ran.report.error) == (Outcome.COMPLETED, False, None)
    assert ran.report.deleted == dict.fromkeys(map(str, domain.policy.tables), 0)
    assert domain.left(admin) == kept


@pytest.mark.req("A-15")
def test_the_facts_of_a_run_say_what_it_is_about_to_do_does_and_has_done(
    database: Database, admin: Admin, domain: Domain
) -> None:
    domain.expired(admin, 5)
    names: list[object] = []

    def on(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            (worker,) = workers(admin)
            names.append(one(admin, "SELECT application_name FROM pg_stat_activity WHERE pid = %s", worker))

    ran = run(database, job(domain.policy, batch_size=2, max_batches=2), on=on, run_id="0123456789abcdef")

    assert [type(fact) for fact in ran.facts] == [RunStarted, BatchDone, BatchDone, RunFinished]
    about = [(ran.started.run_id, ran.started.job), (ran.report.run_id, ran.report.job)]
    about += [(batch.run_id, batch.job) for batch in ran.batches]
    assert set(about) == {("0123456789abcdef", domain.policy.name)}
    assert names == [f"pgretention/{domain.policy.name}/01234567"]
    assert (ran.started.retention, ran.started.batch_size) == (domain.policy.retention, 2)
    assert ran.started.pooled is False
    assert ran.started.backlog == ran.report.backlog_before
    assert ran.started.backlog.rows == 5
    assert ran.report.backlog_after is not None
    assert ran.report.backlog_after.rows == 1
    assert ran.report.cutoff == ran.started.cutoff
    assert (ran.report.batches, ran.report.has_more) == (2, True)
    assert all(list(batch.deleted) == [str(table) for table in domain.policy.tables] for batch in ran.batches)
    assert timedelta(0) < sum((batch.duration for batch in ran.batches), timedelta(0)) < ran.report.duration


@pytest.mark.req("A-11", "F-09")
def test_a_stop_takes_effect_after_the_batch_in_hand(database: Database, admin: Admin, domain: Domain) -> None:
    expired = domain.expired(admin, 5)
    stop = Stop()

    def on(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            stop.request()

    report = run(database, job(domain.policy, batch_size=2), on=on, stop=stop).report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.STOPPED, 1, True)
    assert domain.left(admin) == set(expired[2:])


@pytest.mark.req("A-12", "F-11")
def test_a_failing_batch_ends_the_run_and_costs_only_itself(database: Database, admin: Admin, domain: Domain) -> None:
    expired = domain.expired(admin, 5)
    poison = on_delete(admin, domain.policy.root, "RAISE 'no'", key=expired[3])

    report = run(database, job(domain.policy, batch_size=2)).report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.FAILED, 1, False)
    assert report.error is not None
    assert set(report.error.keys) == {str(key) for key in expired[2:4]}
    assert domain.left(admin) == set(expired[2:])

    drop(admin, domain.policy.root, poison)
    assert run(database, job(domain.policy)).report.outcome is Outcome.COMPLETED
    assert domain.left(admin) == set()


@pytest.mark.req("A-10", "F-05")
def test_a_row_in_use_is_passed_over_and_nobody_waits(database: Database, admin: Admin, domain: Domain) -> None:
    expired = domain.expired(admin, 5)
    user = database.connect()
    with user.transaction():
        user.execute(f"SELECT FROM {domain.policy.root} WHERE id = %s FOR SHARE".encode(), [expired[2]])
        report = run(database, job(domain.policy, batch_size=2)).report

    assert (report.outcome, report.has_more) == (Outcome.COMPLETED, False)
    assert domain.left(admin) == {expired[2]}


@pytest.mark.req("A-07")
def test_a_database_without_the_tables_is_refused_with_the_way_out(database: Database, domain: Domain) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA user_activity, favorites CASCADE")

    report = run(database, job(domain.policy)).report

    assert report.outcome is Outcome.REFUSED
    assert report.error is not None
    assert report.error.kind is FaultKind.REFUSED
    for table in domain.policy.tables:
        assert f"{table}: no such table; create it, or point the connection at the database that has it" in (
            report.error.message
        )


@pytest.mark.req("A-15")
def test_the_result_as_json_has_the_fields_of_the_contract(database: Database, admin: Admin, domain: Domain) -> None:
    (expired,) = domain.expired(admin, 1)
    on_delete(admin, domain.policy.root, "RAISE 'no'")

    result: dict[str, Any] = json.loads(json.dumps(run(database, job(domain.policy), run_id="r1").report.as_json()))

    assert datetime.fromisoformat(result.pop("cutoff")).utcoffset() == timedelta(0)
    assert 0 < result.pop("duration_seconds") < 60
    assert result.pop("error").items() >= {"kind": "database", "sqlstate": "P0001", "constraint": None}.items()
    assert result == {
        "job": domain.policy.name,
        "run_id": "r1",
        "outcome": "failed",
        "deleted": dict.fromkeys(map(str, domain.policy.tables), 0),
        "batches": 0,
        "has_more": False,
        "backlog_before": 1,
        "backlog_after": 1,
        "backlog_exact": True,
    }
    assert domain.left(admin) == {expired}
