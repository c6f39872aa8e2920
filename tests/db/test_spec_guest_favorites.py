"""Every row of the table of tests in the specification of guest-favorites-cleanup, by its name there."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.report import BatchDone, Fact, Outcome, RunFinished, RunStarted
from pgretention.stop import Stop
from tests.databases import Database
from tests.support import rows
from tests.support.counters import table_counters
from tests.support.gates import Gate, one
from tests.support.rows import FAVORITES
from tests.support.runs import GUESTS, job, run, unwatched_run
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]


@pytest.mark.req("F-12")
def test_empty_run(database: Database, admin: Admin) -> None:
    """No guest favorite before the cutoff: a success that deletes nothing."""
    kept = {rows.favorite(admin, updated_at="now"), rows.favorite(admin, user_id=uuid4())}

    report = run(database, job(GUESTS)).report

    assert report.outcome is Outcome.COMPLETED
    assert report.deleted == {str(FAVORITES): 0}
    assert (report.batches, report.has_more) == (0, False)
    assert rows.ids(admin, FAVORITES) == kept


@pytest.mark.req("F-01")
def test_expired_guest_favorite(database: Database, admin: Admin) -> None:
    """Without a user and updated before the cutoff: physically gone."""
    rows.favorite(admin, updated_at=rows.OLD, created_at="now")

    report = run(database, job(GUESTS)).report

    assert report.deleted == {str(FAVORITES): 1}
    assert rows.ids(admin, FAVORITES) == set()


@pytest.mark.req("F-03")
def test_fresh_guest_favorite(database: Database, admin: Admin) -> None:
    """Updated at the cutoff or later: kept."""
    kept = {rows.favorite(admin, updated_at="now", created_at=rows.OLD)}

    def insert(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            kept.add(rows.favorite(admin, updated_at=fact.cutoff))

    report = run(database, job(GUESTS), on=insert).report

    assert report.deleted == {str(FAVORITES): 0}
    assert rows.ids(admin, FAVORITES) == kept


@pytest.mark.req("F-02")
def test_account_favorite(database: Database, admin: Admin) -> None:
    """Owned by a user: kept, however old."""
    kept = {
        rows.favorite(admin, user_id=uuid4(), anonymous_id=None),
        rows.favorite(admin, user_id=uuid4(), anonymous_id=uuid4()),
        rows.favorite(admin, user_id=uuid4(), updated_at="0044-03-15 BC"),
    }
    rows.favorite(admin)

    report = run(database, job(GUESTS)).report

    assert report.deleted == {str(FAVORITES): 1}
    assert rows.ids(admin, FAVORITES) == kept


@pytest.mark.req("F-08")
def test_batching(database: Database, admin: Admin) -> None:
    """More rows than BatchSize go in several batches, each in a transaction of its own."""
    admin.execute("CREATE TABLE public.deletions (transaction xid8)")
    on_delete(admin, FAVORITES, "INSERT INTO public.deletions VALUES (pg_current_xact_id())")
    for _ in range(7):
        rows.favorite(admin)

    ran = run(database, job(GUESTS, batch_size=3))

    assert ran.report.outcome is Outcome.COMPLETED
    assert ran.roots_per_batch == [3, 3, 1]
    per_transaction = admin.execute("SELECT count(*) FROM public.deletions GROUP BY transaction ORDER BY transaction")
    assert [count for (count,) in per_transaction] == [3, 3, 1]


@pytest.mark.req("F-12")
def test_idempotence(database: Database, admin: Admin) -> None:
    """A second run over the same data deletes nothing."""
    kept = {rows.favorite(admin, updated_at="now")}
    rows.favorite(admin)

    assert run(database, job(GUESTS)).report.deleted == {str(FAVORITES): 1}
    assert run(database, job(GUESTS)).report.deleted == {str(FAVORITES): 0}
    assert rows.ids(admin, FAVORITES) == kept


@pytest.mark.req("F-05")
def test_parallel_instances(database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor) -> None:
    """Two instances of the worker never delete a row twice."""
    for _ in range(20):
        rows.favorite(admin)
    admin.execute("CREATE TABLE public.deletions (id uuid)")
    on_delete(admin, FAVORITES, "INSERT INTO public.deletions VALUES (OLD.id)")
    gate.before_deleting(FAVORITES)
    limited = job(GUESTS, batch_size=3)
    instances = [threads.submit(unwatched_run, database.worker_dsn, limited) for _ in range(2)]
    gate.wait_for(2)  # both hold a batch
    gate.open()

    deleted = [instance.result().report.deleted[str(FAVORITES)] for instance in instances]

    assert min(deleted) >= 3
    assert sum(deleted) == 20
    assert rows.ids(admin, FAVORITES) == set()
    assert one(admin, "SELECT count(*) FROM public.deletions") == 20


@pytest.mark.req("F-09")
def test_graceful_stop(database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor) -> None:
    """A stop takes effect between batches: what is committed stays, an open transaction is finished."""
    favorites = [rows.favorite(admin, updated_at=f"2020-01-0{day}") for day in range(1, 7)]
    gate.before_deleting(FAVORITES, favorites[2])
    stop = Stop()
    running = threads.submit(run, database, job(GUESTS, batch_size=2), stop=stop)
    gate.wait_for()
    stop.request()  # in the middle of the second batch
    gate.open()

    report = running.result().report

    assert report.outcome is Outcome.STOPPED
    assert (report.batches, report.has_more) == (2, True)
    assert rows.ids(admin, FAVORITES) == set(favorites[4:])


@pytest.mark.req("F-10")
def test_no_events(database: Database, admin: Admin) -> None:
    """A deletion publishes nothing: the server has written no row of any table but the deletions."""
    rows.favorite(admin)
    before = table_counters(admin)

    facts = run(database, job(GUESTS)).facts

    assert [type(fact) for fact in facts] == [RunStarted, BatchDone, RunFinished]
    after = table_counters(admin)
    assert after.keys() == before.keys()
    assert {table for table in after if after[table].written != before[table].written} == {str(FAVORITES)}
    assert after[str(FAVORITES)].written - before[str(FAVORITES)].written == Counter(deleted=1)
