"""The plan of every statement of a batch on large tables, whatever the statistics say of them (F-07, fault 43)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import LiteralString

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.demo.server import ThrowawayServer
from pgretention.policy import Policy
from tests.databases import fresh_database
from tests.support.explain import BatchPlans, Node, explain_batch, nodes
from tests.support.runs import ACTIVITY, GUESTS

Admin = Connection[TupleRow]

CLAIM_INDEX = {ACTIVITY: "ix_sessions_ended_at", GUESTS: "ix_favorites_guest_updated_at"}
CHILD_INDEXES = {
    ACTIVITY: ["ix_action_events_session_id", "ix_property_object_views_session_id"],
    GUESTS: [],
}
BATCH_SIZES = (1, 1000, 5000, 50_000)

# Children as many as sessions, every second session Inactive and every second favorite a guest's.
FILL: LiteralString = """
    INSERT INTO favorites.favorites (id, user_id, anonymous_id, property_object_id, updated_at)
    SELECT gen_random_uuid(), CASE WHEN n % 2 = 0 THEN gen_random_uuid() END, gen_random_uuid(), gen_random_uuid(),
           timestamptz '2020-01-01' + n * interval '1 minute' FROM generate_series(1, 200000) AS n;
    INSERT INTO user_activity.sessions (id, status, started_at, last_activity_at, ended_at)
    SELECT gen_random_uuid(), CASE WHEN n % 2 = 0 THEN 'Active' ELSE 'Inactive' END, '2020-01-01', '2020-01-01',
           CASE WHEN n % 2 = 1 THEN timestamptz '2020-01-01' + n * interval '1 minute' END
      FROM generate_series(1, 200000) AS n;
    INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
    SELECT gen_random_uuid(), id, gen_random_uuid(), started_at FROM user_activity.sessions;
    INSERT INTO user_activity.action_events (id, session_id, event_type, occurred_at)
    SELECT gen_random_uuid(), id, 'click', started_at FROM user_activity.sessions;
"""
# What an ANALYZE finds while hardly anything is there and nothing meets a guard.
A_FEW_ROWS_TO_KEEP: LiteralString = """
    INSERT INTO favorites.favorites (id, user_id, property_object_id)
    SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid() FROM generate_series(1, 100);
    INSERT INTO user_activity.sessions (id, status, started_at, last_activity_at)
    SELECT gen_random_uuid(), 'Active', now(), now() FROM generate_series(1, 100);
    INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
    SELECT gen_random_uuid(), max(id::text)::uuid, gen_random_uuid(), now() FROM user_activity.sessions;
    INSERT INTO user_activity.action_events (id, session_id, event_type, occurred_at)
    SELECT gen_random_uuid(), max(id::text)::uuid, 'click', now() FROM user_activity.sessions;
"""
CLEANED: LiteralString = "relnamespace IN ('user_activity'::regnamespace, 'favorites'::regnamespace)"

Plans = dict[tuple[str, Policy, int], BatchPlans]


@pytest.fixture(scope="module")
def plans(server: ThrowawayServer) -> Iterator[Plans]:
    """Every plan for every state of the statistics, from tables that are filled once."""
    with fresh_database(server) as database:
        admin = database.connect()
        for table in [table for policy in (ACTIVITY, GUESTS) for table in policy.tables]:
            admin.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
        states: dict[str, LiteralString] = {
            "from when nothing was expired": f"""
                {A_FEW_ROWS_TO_KEEP}; ANALYZE; SET session_replication_role = replica; {FILL}
            """,
            "none at all": f"""
                DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE {CLEANED});
                UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE {CLEANED} AND relkind IN ('r', 'i')
            """,
            "right": "ANALYZE",
            "of a table that is a thousand times as large": f"""
                UPDATE pg_class SET reltuples = reltuples * 1000 WHERE {CLEANED} AND relkind IN ('r', 'i')
            """,
            "of an empty table": f"""
                UPDATE pg_class SET reltuples = 0, relpages = 1 WHERE {CLEANED} AND relkind IN ('r', 'i')
            """,
        }
        found = {}
        for state, statements in states.items():
            admin.execute(statements)
            for policy in ACTIVITY, GUESTS:
                for batch_size in BATCH_SIZES:
                    found[state, policy, batch_size] = explain_batch(database, policy, batch_size)
        yield found


def kinds(plan: Node) -> list[str]:
    return [node["Node Type"] for node in nodes(plan)]


def indexes(plan: Node) -> list[str]:
    return [node["Index Name"] for node in nodes(plan) if "Index Name" in node]


@pytest.mark.req("F-07", "A-10")
def test_every_claim_reads_the_index_in_its_order_and_sorts_nothing(plans: Plans) -> None:
    for (state, policy, batch_size), batch in plans.items():
        for claim in batch.claim_first, batch.claim_next:
            assert kinds(claim) == ["Aggregate", "Limit", "LockRows", "Index Scan", "CTE Scan"], (state, batch_size)
            assert indexes(claim) == [CLAIM_INDEX[policy]]


@pytest.mark.req("F-07")
def test_every_claim_after_the_first_starts_in_the_index_where_the_one_before_ended(plans: Plans) -> None:
    for (_, policy, _), batch in plans.items():
        (scan,) = [node for node in nodes(batch.claim_next) if node["Node Type"] == "Index Scan"]
        assert f"ROW({policy.expiry}, {policy.key}) > " in scan["Index Cond"].replace(f"{policy.root.name}.", "")
        assert policy.expiry not in scan["Filter"], "only the guard is looked at once more in the row"


@pytest.mark.req("A-01", "F-07")
def test_every_delete_goes_to_its_rows_by_address_and_to_their_children_by_index(plans: Plans) -> None:
    for (state, policy, batch_size), batch in plans.items():
        used = kinds(batch.delete)
        assert used.count("Tid Scan") == 1, (state, batch_size)
        assert not {"Seq Scan", "Sort", "Hash Join", "Nested Loop", "Merge Join"} & set(used), (state, batch_size)
        assert indexes(batch.delete) == CHILD_INDEXES[policy]
