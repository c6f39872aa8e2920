"""Two runs at once as processes of their own."""

from __future__ import annotations

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.databases import Database
from tests.support import rows
from tests.support.gates import Gate, one
from tests.support.planted import left, old_sessions
from tests.support.process import report_of, started
from tests.support.rows import FAVORITES, SESSIONS
from tests.support.runs import ACTIVITY, GUESTS
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]


@pytest.mark.req("F-05")
def test_two_processes_clean_favorites_at_once_and_their_counts_add_up(
    database: Database, admin: Admin, gate: Gate
) -> None:
    for _ in range(200):
        rows.favorite(admin)
    admin.execute("CREATE TABLE public.deletions (id uuid)")
    on_delete(admin, FAVORITES, "INSERT INTO public.deletions VALUES (OLD.id)")
    gate.before_deleting(FAVORITES)

    with started(database, GUESTS, 7) as one_process, started(database, GUESTS, 7) as other:
        gate.wait_for(2)
        gate.open()
        reports = [report_of(one_process), report_of(other)]

    assert {report["outcome"] for report in reports} == {"completed"}
    deleted = [report["deleted"][str(FAVORITES)] for report in reports]
    assert min(deleted) >= 7
    assert sum(deleted) == 200
    assert one(admin, "SELECT count(*) FROM public.deletions") == 200
    assert rows.ids(admin, FAVORITES) == set()


@pytest.mark.req("A-09")
def test_of_two_processes_that_clean_sessions_one_runs_and_the_other_does_nothing(
    database: Database, admin: Admin, gate: Gate
) -> None:
    old_sessions(admin, 5)
    gate.before_deleting(SESSIONS)

    with started(database, ACTIVITY, 2) as first:
        gate.wait_for()
        with started(database, ACTIVITY, 2) as second:
            skipped = report_of(second)
        gate.open()
        completed = report_of(first)

    assert (skipped["outcome"], skipped["batches"], skipped["error"]) == ("skipped", 0, None)
    assert (completed["outcome"], completed["batches"]) == ("completed", 3)
    assert left(admin) == set()
