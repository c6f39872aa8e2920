"""Which side of the cutoff a row is on, to the microsecond, and where the cutoff comes from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.clock import SystemClock
from pgretention.job import Brake, Safety
from pgretention.jobs import guest_favorites_cleanup
from pgretention.policy import Policy
from pgretention.report import Fact, Outcome, RunStarted
from tests.databases import Database
from tests.support import rows
from tests.support.explain import batch_transaction, statements_of
from tests.support.gates import one
from tests.support.rows import FAVORITES, SESSIONS
from tests.support.runs import ACTIVITY, GUESTS, job, run

Admin = Connection[TupleRow]

MICROSECOND = timedelta(microseconds=1)

Insert = Callable[[Admin, datetime], UUID]
both_jobs = pytest.mark.parametrize(
    ("policy", "insert"), [(ACTIVITY, rows.session), (GUESTS, rows.favorite)], ids=["activity", "favorites"]
)


@pytest.mark.req("A-04", "F-01", "F-03")
@both_jobs
@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_a_microsecond_before_the_cutoff_goes_and_the_cutoff_itself_stays(
    database: Database, admin: Admin, policy: Policy, insert: Insert, batch_size: int
) -> None:
    kept: set[object] = set()
    gone: set[object] = set()

    def on(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            gone.update(insert(admin, fact.cutoff - n * MICROSECOND) for n in (3, 2, 1))
            kept.update(insert(admin, fact.cutoff + n * MICROSECOND) for n in (0, 1, 2))

    report = run(database, job(policy, batch_size=batch_size), on=on).report

    assert report.outcome is Outcome.COMPLETED
    assert report.deleted[str(policy.root)] == 3
    assert rows.ids(admin, policy.root) == kept


@pytest.mark.req("A-04")
def test_an_active_session_stays_whatever_its_dates_and_an_inactive_one_without_an_end_too(
    database: Database, admin: Admin
) -> None:
    rows.allow_any_dates(admin)
    long_ago = dict.fromkeys(("started_at", "last_activity_at", "created_at"), rows.OLD)
    kept = {
        rows.session(admin, rows.OLD, "Active", **long_ago),
        rows.session(admin, "0044-03-15 BC", "Active", **long_ago),
        rows.session(admin, None, "Active", **long_ago),
        rows.session(admin, None, "Inactive", **long_ago),
    }

    assert run(database, job(ACTIVITY)).report.deleted[str(SESSIONS)] == 0
    assert rows.ids(admin, SESSIONS) == kept


@pytest.mark.req("A-05")
def test_the_end_of_a_session_counts_and_neither_its_creation_nor_its_start(database: Database, admin: Admin) -> None:
    kept = rows.session(admin, "now", created_at=rows.OLD, started_at=rows.OLD, last_activity_at=rows.OLD)
    rows.session(admin, rows.OLD, created_at="now", started_at="now", last_activity_at="now")

    assert run(database, job(ACTIVITY)).report.deleted[str(SESSIONS)] == 1
    assert rows.ids(admin, SESSIONS) == {kept}


@pytest.mark.req("A-01")
def test_children_go_with_their_session_however_young_they_are_and_stay_with_it_however_old(
    database: Database, admin: Admin
) -> None:
    expired, kept = rows.session(admin), rows.active_session(admin)
    for session, instant in (expired, "now"), (kept, rows.OLD):
        rows.event(admin, session, occurred_at=instant)
        rows.view(admin, session, started_at=instant)

    assert set(run(database, job(ACTIVITY)).report.deleted.values()) == {1}
    for table in ACTIVITY.children:
        assert rows.ids(admin, table.table, "session_id") == {kept}


@pytest.mark.req("F-01", "F-03")
def test_the_last_update_of_a_favorite_counts_and_not_its_creation(database: Database, admin: Admin) -> None:
    kept = rows.favorite(admin, "now", created_at=rows.OLD)
    rows.favorite(admin, rows.OLD, created_at="now")

    assert run(database, job(GUESTS)).report.deleted == {str(FAVORITES): 1}
    assert rows.ids(admin, FAVORITES) == {kept}


@pytest.mark.req("A-04", "F-03")
@both_jobs
def test_the_infinities_are_never_expired_and_far_dates_upset_nothing(
    database: Database, admin: Admin, policy: Policy, insert: Callable[[Admin, str], UUID]
) -> None:
    kept = {insert(admin, text) for text in ("-infinity", "infinity", "24989-01-01", "294276-12-31 23:59:59.999999")}
    for text in "4714-11-24 BC", "4714-11-24 BC", "0044-03-15 BC", "0001-01-01":
        insert(admin, text)

    ran = run(database, job(policy, batch_size=1))

    assert ran.report.outcome is Outcome.COMPLETED
    assert ran.roots_per_batch == [1, 1, 1, 1]
    assert rows.ids(admin, policy.root) == kept
    assert ran.started.backlog.rows == 4
    assert ran.started.backlog.oldest_age is not None
    assert ran.started.backlog.oldest_age > timedelta(days=6000 * 365)
    assert ran.report.backlog_after is not None
    assert (ran.report.backlog_after.rows, ran.report.backlog_after.oldest_age) == (0, None)


class WrongClock(SystemClock):
    """A host whose wall clock is far off."""

    def now(self) -> datetime:
        return datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.req("A-06")
def test_the_cutoff_is_the_server_s_now_minus_the_retention_whatever_this_host_thinks_it_is(
    database: Database, admin: Admin
) -> None:
    before = one(admin, "SELECT now() - %s", ACTIVITY.retention)
    heedless = Safety(overridden=frozenset({Brake.CLOCKS_APART}))  # which would refuse such a host
    ran = run(database, job(ACTIVITY, safety=heedless), clock=WrongClock())
    after = one(admin, "SELECT now() - %s", ACTIVITY.retention)

    assert isinstance(before, datetime)
    assert isinstance(after, datetime)
    (started,) = [fact for fact in ran.facts if isinstance(fact, RunStarted)]
    assert before <= started.cutoff <= after
    assert ran.report.cutoff == started.cutoff
    assert started.cutoff.utcoffset() == timedelta(0)


@pytest.mark.req("A-06")
def test_every_statement_of_a_run_is_given_the_same_cutoff(database: Database, admin: Admin) -> None:
    """A session that ends between the first cutoff and a later now() minus the retention is not touched."""
    for day in range(1, 4):
        rows.session(admin, f"2020-01-0{day}")
    kept = set()

    def on(fact: Fact) -> None:
        if not isinstance(fact, RunStarted):
            kept.add(rows.session(admin, ran_cutoff[0]))
        else:
            ran_cutoff.append(fact.cutoff)

    ran_cutoff: list[datetime] = []
    report = run(database, job(ACTIVITY, batch_size=1), on=on).report

    assert report.deleted[str(SESSIONS)] == 3
    assert len(kept) == 4
    assert rows.ids(admin, SESSIONS) == kept


@pytest.mark.req("F-20")
def test_after_a_run_that_was_not_cut_short_no_guest_favorite_is_older_than_the_days_and_one(
    database: Database, admin: Admin
) -> None:
    days = 30
    policy = guest_favorites_cleanup.policy(timedelta(days=days))
    admin.execute("""
        INSERT INTO favorites.favorites (id, user_id, anonymous_id, property_object_id, updated_at)
        SELECT gen_random_uuid(), CASE WHEN hour % 7 = 0 THEN gen_random_uuid() END, gen_random_uuid(),
               gen_random_uuid(), now() - hour * interval '1 hour' + interval '30 minutes'
          FROM generate_series(1, 24 * 60) AS hour
    """)

    report = run(database, job(policy)).report

    assert report.outcome is Outcome.COMPLETED
    older = "SELECT count(*) FROM favorites.favorites WHERE updated_at < now() - %s AND "
    assert one(admin, older + "user_id IS NULL", timedelta(days=days + 1)) == 0
    assert one(admin, older + "user_id IS NOT NULL", timedelta(days=days + 1)) == 24 * 29 // 7
    assert (
        one(admin, "SELECT count(*) FROM favorites.favorites WHERE updated_at >= now() - %s", timedelta(days=29))
        == 24 * 29
    )


def delete_directly(database: Database, policy: Policy, key: UUID, address: str, cutoff: str) -> tuple[object, ...]:
    """Hand one row to the deleting statement as if a claim had chosen it."""
    binds = {"cutoff": cutoff, "addresses": f'{{"{address}"}}', "keys": f"{{{key}}}"}
    statements = statements_of(database, policy)
    with batch_transaction(database) as connection:
        return tuple(connection.execute(statements.delete, binds).fetchone() or ())


@pytest.mark.req("F-02", "F-03")
def test_the_delete_itself_keeps_a_favorite_that_a_wrong_claim_would_hand_to_it(
    database: Database, admin: Admin
) -> None:
    kept = [
        rows.favorite(admin, user_id=uuid4()),
        rows.favorite(admin, "2021-01-01"),
        rows.favorite(admin, "-infinity"),
    ]
    gone = rows.favorite(admin, "2020-12-31")
    deleted = {}
    for key, address in admin.execute("SELECT id, ctid::text FROM favorites.favorites").fetchall():
        deleted[key] = delete_directly(database, GUESTS, key, address, "2021-01-01 00:00:00+00")

    assert deleted == {gone: (1,), **dict.fromkeys(kept, (0,))}
    assert rows.ids(admin, FAVORITES) == set(kept)


@pytest.mark.req("A-04")
def test_the_delete_itself_keeps_a_session_that_a_wrong_claim_would_hand_to_it(
    database: Database, admin: Admin
) -> None:
    rows.allow_any_dates(admin)
    kept = [rows.session(admin, status="Active"), rows.session(admin, "2021-01-01"), rows.session(admin, None)]
    gone = rows.session(admin, "2020-12-31")
    deleted = {}
    for key, address in admin.execute("SELECT id, ctid::text FROM user_activity.sessions").fetchall():
        deleted[key] = delete_directly(database, ACTIVITY, key, address, "2021-01-01 00:00:00+00")

    assert deleted == {gone: (0, 0, 1), **dict.fromkeys(kept, (0, 0, 0))}
    assert rows.ids(admin, SESSIONS) == set(kept)
