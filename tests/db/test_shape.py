"""What `plan --explain` says of the statements of a batch: where they are good, and where each of them is not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import LiteralString

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.policy import Policy
from pgretention.session import connect
from pgretention.shape import Shape, shapes
from tests.databases import WORKER, Database
from tests.support.planted import plant
from tests.support.runs import ACTIVITY, GUESTS

Admin = Connection[TupleRow]

CUTOFF = datetime(2021, 1, 1, tzinfo=UTC)


def of(database: Database, policy: Policy) -> tuple[Shape, ...]:
    with connect(database.worker_dsn, "test") as session:
        return shapes(session, policy, CUTOFF, 100)


@pytest.mark.parametrize("policy", [ACTIVITY, GUESTS], ids=lambda policy: policy.name)
def test_the_reference_schema_is_good_in_every_statement(database: Database, admin: Admin, policy: Policy) -> None:
    plant(admin)
    first, following, deletion = of(database, policy)
    for shape in first, following, deletion:
        assert shape.lines
        assert shape.verdict
        assert all(said.startswith("good: ") for said in shape.verdict), shape
    assert "starts where the batch before ended" in following.verdict[-1]
    assert len(deletion.verdict) == len(policy.tables)


MISSING: dict[str, tuple[LiteralString, Policy, int, str]] = {
    "claim": ("DROP INDEX favorites.ix_favorites_guest_updated_at", GUESTS, 0, "sorts the whole table"),
    "next claim": ("DROP INDEX favorites.ix_favorites_guest_updated_at", GUESTS, 1, "sorts the whole table"),
    "child": ("DROP INDEX user_activity.ix_action_events_session_id", ACTIVITY, 2, "reads all of action_events"),
}


@pytest.mark.parametrize("missing", MISSING)
def test_a_missing_index_is_said_in_words(database: Database, admin: Admin, missing: str) -> None:
    statement, policy, place, words = MISSING[missing]
    admin.execute(statement)

    bad = [said for said in of(database, policy)[place].verdict if said.startswith("BAD: ")]

    assert any(words in said for said in bad), bad


def test_an_index_by_expiry_alone_is_good_enough(database: Database, admin: Admin) -> None:
    plant(admin)
    admin.execute("DROP INDEX favorites.ix_favorites_guest_updated_at")
    admin.execute("CREATE INDEX ON favorites.favorites (updated_at) WHERE user_id IS NULL")

    first, following, _ = of(database, GUESTS)

    assert all(said.startswith("good: ") for said in (*first.verdict, *following.verdict))
    assert any("sorts rows of the same expiry" in said for said in first.verdict)
    assert any("starts where the batch before ended" in said for said in following.verdict)


def test_a_role_that_may_not_delete_is_told_so_instead(database: Database, admin: Admin) -> None:
    admin.execute(f"REVOKE DELETE ON favorites.favorites FROM {WORKER}".encode())

    first, following, deletion = of(database, GUESTS)

    assert first.lines
    assert following.lines
    assert (deletion.lines, len(deletion.verdict)) == ((), 1)
    assert "lacks a privilege" in deletion.verdict[0]
