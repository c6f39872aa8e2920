"""The proof holds after two good runs; each of its checks fails for what it is there to find, and for that alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import LiteralString

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention import app
from pgretention.demo import data, proof
from pgretention.demo.proof import Check, Proof
from pgretention.demo.server import ThrowawayServer
from pgretention.report import Outcome, RunReport
from pgretention.stop import Stop
from tests.databases import WORKER, Database, fresh_database
from tests.support.gates import one, until

YEAR = timedelta(days=365)

GONE_ACTIVITY = "Nothing expired is left in user_activity"
GONE_FAVORITES = "Nothing expired is left in favorites"
ACTIVE = "Untouched: Active sessions, however old"
FRESH = "Untouched: sessions that ended at the cutoff or later"
VIEWS = "Untouched: views of sessions that stay"
EVENTS = "Untouched: events of sessions that stay"
STATS = "Untouched: statistics of property objects"
ACCOUNTS = "Untouched: favorites of accounts, however old"
GUESTS = "Untouched: favorites of guests updated at the cutoff or later"
DANGLING = "No reference leads nowhere"
ACTIVITY_TOLD = "activity-retention deleted as many as SQL had counted"
FAVORITES_TOLD = "guest-favorites-cleanup deleted as many as SQL had counted"
PRIVATE = f"{WORKER} cannot read note, anonymous_id, user_agent or payload"

ALL = (
    GONE_ACTIVITY,
    GONE_FAVORITES,
    ACTIVE,
    FRESH,
    VIEWS,
    EVENTS,
    STATS,
    ACCOUNTS,
    GUESTS,
    DANGLING,
    ACTIVITY_TOLD,
    FAVORITES_TOLD,
    PRIVATE,
)


@dataclass(frozen=True)
class Finished:
    """A database that both jobs have cleaned, seen by the connection that remembers how it was before."""

    owner: Connection[TupleRow]
    activity: RunReport
    favorites: RunReport

    def prove(self) -> Proof:
        return proof.prove(self.owner, self.activity, self.favorites, WORKER)


def run_both(database: Database) -> tuple[RunReport, RunReport]:
    activity, favorites = (
        app.run(replace(app.default(name), dsn=database.worker_dsn), sinks=(), stop=Stop()) for name in app.JOB_NAMES
    )
    assert (activity.outcome, favorites.outcome) == (Outcome.COMPLETED, Outcome.COMPLETED)
    return activity, favorites


@pytest.fixture(scope="module")
def finished(server: ThrowawayServer) -> Iterator[Finished]:
    """Made once for all tests here: each of them rolls its changes back."""
    with fresh_database(server) as database:
        owner = database.connect()
        data.load(owner, YEAR, data.SMALL)
        proof.remember(owner)
        yield Finished(owner, *run_both(database))


def failing(proven: Proof) -> dict[str, str]:
    """What does not hold, with the numbers."""
    return {check.statement: check.detail for check in proven.checks if not check.holds}


@pytest.mark.req("A-01")
@pytest.mark.req("A-03")
@pytest.mark.req("A-18")
@pytest.mark.req("F-01")
@pytest.mark.req("F-02")
def test_after_two_runs_everything_holds_and_the_counts_add_up(finished: Finished) -> None:
    proven = finished.prove()
    assert failing(proven) == {}
    assert proven.holds
    assert tuple(check.statement for check in proven.checks) == ALL
    for count in proven.tables:
        assert count.deleted == count.expired == count.before - count.after
    deleted = {count.table: count.deleted for count in proven.tables if count.deleted}
    assert deleted == {**finished.activity.deleted, **finished.favorites.deleted}


PLANTED: dict[str, tuple[LiteralString, set[str]]] = {
    "an expired session is left": (
        """INSERT INTO user_activity.sessions (id, status, started_at, last_activity_at, ended_at)
           SELECT gen_random_uuid(), 'Inactive', at, at, at FROM (SELECT now() - interval '2 years' AS at) AS old""",
        {GONE_ACTIVITY},
    ),
    "an expired favorite of a guest is left": (
        """INSERT INTO favorites.favorites (id, anonymous_id, property_object_id, updated_at)
           VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), now() - interval '2 years')""",
        {GONE_FAVORITES},
    ),
    "an Active session is gone": (
        """DELETE FROM user_activity.sessions WHERE id = (
               SELECT id FROM user_activity.sessions s
                WHERE status = 'Active'
                  AND NOT EXISTS (SELECT FROM user_activity.property_object_views v WHERE v.session_id = s.id)
                LIMIT 1)""",
        {ACTIVE},
    ),
    "an Active session is rewritten as it was": (
        """UPDATE user_activity.sessions SET user_agent = user_agent WHERE id = (
               SELECT id FROM user_activity.sessions WHERE status = 'Active' LIMIT 1)""",
        {ACTIVE},
    ),
    "a fresh session is gone": (
        """DELETE FROM user_activity.sessions WHERE id = (
               SELECT id FROM user_activity.sessions s
                WHERE status = 'Inactive'
                  AND NOT EXISTS (SELECT FROM user_activity.property_object_views v WHERE v.session_id = s.id)
                LIMIT 1)""",
        {FRESH},
    ),
    "a fresh session ended a microsecond later": (
        """UPDATE user_activity.sessions SET ended_at = ended_at + interval '1 microsecond' WHERE id = (
               SELECT id FROM user_activity.sessions WHERE status = 'Inactive' LIMIT 1)""",
        {FRESH},
    ),
    "an Active session is closed": (
        """UPDATE user_activity.sessions SET status = 'Inactive', ended_at = now() WHERE id = (
               SELECT id FROM user_activity.sessions WHERE status = 'Active' LIMIT 1)""",
        {ACTIVE, FRESH},
    ),
    "a view is gone": (
        """DELETE FROM user_activity.property_object_views WHERE id = (
               SELECT id FROM user_activity.property_object_views v
                WHERE NOT EXISTS (SELECT FROM user_activity.action_events e WHERE e.property_object_view_id = v.id)
                LIMIT 1)""",
        {VIEWS},
    ),
    "a view lost its filter": (
        """UPDATE user_activity.property_object_views SET apply_filter_event_id = NULL WHERE id = (
               SELECT id FROM user_activity.property_object_views WHERE apply_filter_event_id IS NOT NULL LIMIT 1)""",
        {VIEWS},
    ),
    "an event is gone": (
        """DELETE FROM user_activity.action_events WHERE id = (
               SELECT id FROM user_activity.action_events
                WHERE id NOT IN (SELECT apply_filter_event_id FROM user_activity.property_object_views
                                  WHERE apply_filter_event_id IS NOT NULL)
                LIMIT 1)""",
        {EVENTS},
    ),
    "an event lost its view": (
        """UPDATE user_activity.action_events SET property_object_view_id = NULL WHERE id = (
               SELECT id FROM user_activity.action_events WHERE property_object_view_id IS NOT NULL LIMIT 1)""",
        {EVENTS},
    ),
    "a statistic is changed": (
        """UPDATE user_activity.property_object_view_stats SET views_count = views_count + 1
            WHERE property_object_id = (SELECT min(property_object_id::text)::uuid
                                          FROM user_activity.property_object_view_stats)""",
        {STATS},
    ),
    "a statistic is rewritten as it was": (
        """UPDATE user_activity.property_object_view_stats SET views_count = views_count
            WHERE property_object_id = (SELECT min(property_object_id::text)::uuid
                                          FROM user_activity.property_object_view_stats)""",
        {STATS},
    ),
    "an old favorite of an account is gone": (
        """DELETE FROM favorites.favorites WHERE id = (
               SELECT id FROM favorites.favorites WHERE user_id IS NOT NULL ORDER BY updated_at LIMIT 1)""",
        {ACCOUNTS},
    ),
    "a fresh favorite of a guest is gone": (
        """DELETE FROM favorites.favorites WHERE id = (
               SELECT id FROM favorites.favorites WHERE user_id IS NULL ORDER BY updated_at DESC LIMIT 1)""",
        {GUESTS},
    ),
    "a favorite without a date is gone": ("DELETE FROM favorites.favorites WHERE updated_at = '-infinity'", {GUESTS}),
    "a guest signed in": (
        """UPDATE favorites.favorites SET user_id = gen_random_uuid() WHERE id = (
               SELECT id FROM favorites.favorites WHERE user_id IS NULL LIMIT 1)""",
        {GUESTS, ACCOUNTS},
    ),
    "notes can be read": ("GRANT SELECT (note) ON favorites.favorites TO pgretention_worker", {PRIVATE}),
    "payloads can be read": ("GRANT SELECT ON user_activity.action_events TO pgretention_worker", {PRIVATE}),
}


@pytest.mark.parametrize(("planted", "told"), PLANTED.values(), ids=PLANTED)
def test_what_is_planted_after_the_runs_is_told_by_its_check_and_by_no_other(
    planted: LiteralString, told: set[str], finished: Finished
) -> None:
    with finished.owner.transaction(force_rollback=True):
        finished.owner.execute(planted)
        proven = finished.prove()
    assert failing(proven).keys() == told
    assert not proven.holds


@pytest.mark.parametrize(
    ("table", "column", "untouched", "direction"),
    [
        ("action_events", "session_id", EVENTS, "event to session 1"),
        ("property_object_views", "session_id", VIEWS, "view to session 1"),
        ("action_events", "property_object_view_id", EVENTS, "event to view 1"),
        ("property_object_views", "apply_filter_event_id", VIEWS, "view to event 1"),
    ],
)
@pytest.mark.req("A-18")
def test_a_reference_that_leads_nowhere_is_told_with_its_direction(
    table: LiteralString, column: LiteralString, untouched: str, direction: str, finished: Finished
) -> None:
    with finished.owner.transaction(force_rollback=True):
        finished.owner.execute("SET LOCAL session_replication_role = replica")  # foreign keys are not checked
        finished.owner.execute(
            f"UPDATE user_activity.{table} SET {column} = gen_random_uuid()"
            f" WHERE id = (SELECT id FROM user_activity.{table} LIMIT 1)"
        )
        told = failing(finished.prove())
    assert told.keys() == {untouched, DANGLING}
    assert told[DANGLING] == direction


def test_an_event_left_over_from_an_expired_session_is_told(finished: Finished) -> None:
    with finished.owner.transaction(force_rollback=True):
        finished.owner.execute("SET LOCAL session_replication_role = replica")
        finished.owner.execute(
            """INSERT INTO user_activity.action_events (id, session_id, event_type, occurred_at)
               SELECT gen_random_uuid(), id, 'seen', now() FROM before_sessions ORDER BY ended_at LIMIT 1"""
        )
        told = failing(finished.prove())
    assert told == {GONE_ACTIVITY: "action_events 1", DANGLING: "event to session 1"}


def test_a_report_that_counts_otherwise_than_sql_is_told(finished: Finished) -> None:
    activity, favorites = finished.activity, finished.favorites
    one_more = {**favorites.deleted, "favorites.favorites": favorites.deleted["favorites.favorites"] + 1}
    without_sessions = {table: rows for table, rows in activity.deleted.items() if table != "user_activity.sessions"}
    for wrong, told in (
        (replace(finished, favorites=replace(favorites, deleted=one_more)), FAVORITES_TOLD),
        (replace(finished, activity=replace(activity, deleted=without_sessions)), ACTIVITY_TOLD),
        (replace(finished, activity=replace(activity, deleted=dict.fromkeys(activity.deleted, 0))), ACTIVITY_TOLD),
    ):
        assert failing(wrong.prove()).keys() == {told}


def test_a_run_that_says_it_had_no_cutoff_must_not_have_deleted_anything(finished: Finished) -> None:
    without = replace(finished, favorites=replace(finished.favorites, cutoff=None))
    assert failing(without.prove()).keys() == {GUESTS, FAVORITES_TOLD}


def test_a_cutoff_later_than_the_one_used_is_told(finished: Finished) -> None:
    cutoff = finished.activity.cutoff
    assert cutoff is not None
    later = replace(finished, activity=replace(finished.activity, cutoff=cutoff + timedelta(days=30)))
    assert failing(later.prove()).keys() == {GONE_ACTIVITY, ACTIVITY_TOLD}


def test_before_any_run_everything_expired_is_still_there_and_told(database: Database, finished: Finished) -> None:
    owner = database.connect()
    data.load(owner, YEAR, data.SMALL)
    proof.remember(owner)
    nothing = {
        "activity": replace(finished.activity, deleted=dict.fromkeys(finished.activity.deleted, 0)),
        "favorites": replace(finished.favorites, deleted=dict.fromkeys(finished.favorites.deleted, 0)),
    }
    told = failing(proof.prove(owner, **nothing, role=WORKER))
    assert told.keys() == {GONE_ACTIVITY, GONE_FAVORITES, ACTIVITY_TOLD, FAVORITES_TOLD}


def test_rows_that_expire_between_the_copy_and_the_run_make_no_difference(database: Database) -> None:
    owner = database.connect()
    data.load(owner, YEAR, data.SMALL)
    soon: LiteralString = "clock_timestamp() - interval '365 days' + interval '200 milliseconds'"
    owner.execute(
        f"""WITH session AS (
                INSERT INTO user_activity.sessions (id, status, started_at, last_activity_at, ended_at)
                SELECT gen_random_uuid(), 'Inactive', at, at, at FROM (SELECT {soon} AS at) AS soon RETURNING id
            )
            INSERT INTO user_activity.action_events (id, session_id, event_type, occurred_at)
            SELECT gen_random_uuid(), id, 'seen', now() FROM session"""
    )
    owner.execute(
        f"""INSERT INTO favorites.favorites (id, anonymous_id, property_object_id, updated_at)
            VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), {soon})"""
    )
    proof.remember(owner)
    owner.execute("SELECT pg_sleep(0.3)")
    proven = proof.prove(owner, *run_both(database), role=WORKER)
    assert failing(proven) == {}


def test_the_copy_goes_with_its_connection(database: Database) -> None:
    owner, other = database.connect(), database.connect()
    copies = "SELECT count(*) FROM pg_class WHERE relname ~ '^(before|both)_'"
    proof.remember(owner)
    assert one(other, copies) == 10
    owner.close()
    until(lambda: one(other, copies) == 0)


def test_a_proof_holds_only_if_each_of_its_checks_does() -> None:
    good, bad = Check("one", holds=True, detail=""), Check("two", holds=False, detail="")
    assert Proof((good, good), ()).holds
    assert not Proof((good, bad), ()).holds
