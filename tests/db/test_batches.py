"""A batch is never larger than asked for and never touches what it has not claimed, and all of it goes in the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.report import BatchDone, Fact, Outcome
from tests.databases import Database
from tests.support import rows
from tests.support.gates import one
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS
from tests.support.runs import ACTIVITY, GUESTS, job, run, unwatched_run
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]


@pytest.mark.req("F-07", "F-08", "A-10")
def test_no_batch_is_larger_than_asked_for_when_the_statistics_are_from_before_the_rows_expired(
    database: Database, admin: Admin
) -> None:
    admin.execute("""
        ALTER TABLE favorites.favorites SET (autovacuum_enabled = off);
        INSERT INTO favorites.favorites (id, anonymous_id, property_object_id)
        SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid() FROM generate_series(1, 20000);
        ANALYZE favorites.favorites;
        UPDATE favorites.favorites SET updated_at = now() - interval '500 days'
         WHERE id IN (SELECT id FROM favorites.favorites LIMIT 3000)
    """)

    ran = run(database, job(GUESTS, batch_size=100))

    assert ran.report.outcome is Outcome.COMPLETED
    assert ran.roots_per_batch == [100] * 30
    assert one(admin, "SELECT count(*) FROM favorites.favorites") == 17_000


@pytest.mark.req("A-10", "F-05")
@pytest.mark.parametrize("batch_size", [1, 7])
def test_workers_that_clean_at_the_same_time_leave_nothing_and_count_each_row_once(
    database: Database, admin: Admin, threads: ThreadPoolExecutor, batch_size: int
) -> None:
    for day in range(100):
        rows.favorite(admin, f"2020-{1 + day % 5:02}-01")  # many of one age
    admin.execute("CREATE TABLE public.deletions (id uuid)")
    on_delete(admin, FAVORITES, "INSERT INTO public.deletions VALUES (OLD.id)")

    workers = [threads.submit(unwatched_run, database.worker_dsn, job(GUESTS, batch_size=batch_size)) for _ in range(4)]
    reports = [worker.result().report for worker in workers]

    assert {report.outcome for report in reports} == {Outcome.COMPLETED}
    assert sum(report.deleted[str(FAVORITES)] for report in reports) == 100
    assert one(admin, "SELECT count(*) FROM favorites.favorites") == 0
    assert one(admin, "SELECT count(*), count(DISTINCT id) FROM public.deletions") == 100


@pytest.mark.req("A-01", "A-02")
def test_the_children_of_a_batch_are_those_of_its_own_sessions(database: Database, admin: Admin) -> None:
    sessions = [rows.session(admin, f"2020-01-{day:02}") for day in range(1, 21)]
    for session in sessions:
        for _ in range(3):
            rows.event(admin, session, property_object_view_id=rows.view(admin, session))
    taken: list[set[object]] = [set(sessions)]

    def on(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            taken.append(rows.ids(admin, EVENTS, "session_id"))

    ran = run(database, job(ACTIVITY, batch_size=4), on=on)

    assert [batch.deleted for batch in ran.batches] == [{str(EVENTS): 12, str(VIEWS): 12, str(SESSIONS): 4}] * 5
    assert taken == [set(sessions[4 * batch :]) for batch in range(6)]


@pytest.mark.req("F-01", "F-08")
@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_table_with_a_single_row_and_one_with_the_highest_key_are_emptied(
    database: Database, admin: Admin, batch_size: int
) -> None:
    for key in 2**128 - 1, 0:
        rows.favorite(admin, id=UUID(int=key))

        ran = run(database, job(GUESTS, batch_size=batch_size))

        assert ran.report.deleted == {str(FAVORITES): 1}
        assert ran.report.backlog_after is not None
        assert ran.report.backlog_after.rows == 0


@pytest.mark.req("F-07", "F-08", "A-10")
@pytest.mark.parametrize(
    ("count", "batch_size", "batches"), [(6, 3, [3, 3]), (7, 3, [3, 3, 1]), (5, 1, [1] * 5), (3, 9, [3])]
)
def test_rows_go_oldest_first_and_by_key_where_they_are_of_one_age(
    database: Database, admin: Admin, count: int, batch_size: int, batches: list[int]
) -> None:
    order = [rows.favorite(admin, f"2020-01-0{1 + n // 2}", id=UUID(int=2 * n + 1)) for n in range(count)]
    left: list[set[object]] = []

    def on(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            left.append(rows.ids(admin, FAVORITES))

    ran = run(database, job(GUESTS, batch_size=batch_size), on=on)

    assert ran.report.outcome is Outcome.COMPLETED
    assert ran.roots_per_batch == batches
    assert left == [set(order[sum(batches[:n]) :]) for n in range(1, len(batches) + 1)]


@pytest.mark.req("A-14", "F-12")
def test_a_second_run_deletes_nothing_and_so_does_one_on_empty_tables(database: Database, admin: Admin) -> None:
    rows.event(admin, rows.session(admin))
    rows.favorite(admin)
    for policy in ACTIVITY, GUESTS:
        assert run(database, job(policy)).report.batches == 1
        for _ in range(2):
            report = run(database, job(policy)).report
            assert (report.outcome, report.batches, report.has_more) == (Outcome.COMPLETED, 0, False)
            assert set(report.deleted.values()) == {0}


@pytest.mark.req("A-10", "F-08")
def test_rows_that_expired_behind_the_cursor_are_found_by_the_probe_at_the_end(
    database: Database, admin: Admin
) -> None:
    for day in range(2, 6):
        rows.favorite(admin, f"2020-01-0{day}")

    def on(fact: Fact) -> None:
        if isinstance(fact, BatchDone) and fact.index == 1:
            rows.favorite(admin, "2020-01-01")

    ran = run(database, job(GUESTS, batch_size=2), on=on)

    assert ran.roots_per_batch == [2, 2, 1]
    assert rows.ids(admin, FAVORITES) == set()
