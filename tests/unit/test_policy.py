"""A policy or a limit that could delete too much cannot be constructed."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from typing import Any

import pytest

from pgretention.errors import PolicyError
from pgretention.job import LARGEST_BATCH, Limits
from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.policy import LONGEST_RETENTION, Child, Equals, IsNull, Policy, Table

YEAR = timedelta(days=365)
ORDERS = Table("shop", "orders")
LINES = Table("shop", "lines")
POLICY = Policy("orders", ORDERS, "id", "ended_at", (Equals("status", "Done"),), YEAR, (Child(LINES, "order_id"),))


@pytest.mark.req("A-01", "A-02", "A-03", "A-04", "A-05", "A-09")
def test_activity_retention_is_the_specified_policy() -> None:
    sessions, events, views = (
        Table("user_activity", name) for name in ("sessions", "action_events", "property_object_views")
    )

    assert activity_retention.policy(YEAR) == Policy(
        name="activity-retention",
        root=sessions,
        key="id",
        expiry="ended_at",
        guard=(Equals("status", "Inactive"),),
        retention=YEAR,
        children=(Child(events, "session_id"), Child(views, "session_id")),
        lock="job:scheduled:activity-retention",
    )
    assert activity_retention.policy(YEAR).tables == (events, views, sessions)


@pytest.mark.req("F-01", "F-02", "F-03", "F-05")
def test_guest_favorites_cleanup_is_the_specified_policy() -> None:
    assert guest_favorites_cleanup.policy(YEAR) == Policy(
        name="guest-favorites-cleanup",
        root=Table("favorites", "favorites"),
        key="id",
        expiry="updated_at",
        guard=(IsNull("user_id"),),
        retention=YEAR,
        children=(),
        lock=None,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"guard": ()},
        {"retention": timedelta(0)},
        {"retention": timedelta(days=-1)},
        {"retention": LONGEST_RETENTION + timedelta(microseconds=1)},
        {"key": "ended_at"},
        {"key": ""},
        {"expiry": " ended_at"},
        {"expiry": "ended\0at"},
        {"expiry": "100%"},
        {"root": Table("", "orders")},
        {"root": Table("shop", "")},
        {"root": Table("shop", "o" * 64)},
        {"root": Table("shop", "щ" * 32)},
        {"children": (Child(ORDERS, "id"),)},
        {"children": (Child(LINES, "order_id"), Child(LINES, "id"))},
        {"lock": ""},
    ],
    ids=str,
)
@pytest.mark.req("A-07")
def test_an_unsafe_policy_cannot_be_constructed(changes: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        replace(POLICY, **changes)


@pytest.mark.parametrize("name", ["", " status", "status ", "a\0b", "a%b", "s" * 64])
def test_a_column_without_a_proper_name_is_refused(name: str) -> None:
    with pytest.raises(PolicyError):
        Equals(name, "x")
    with pytest.raises(PolicyError):
        IsNull(name)
    with pytest.raises(PolicyError):
        Child(LINES, name)


@pytest.mark.parametrize("value", ["50%", "a\0b"])
def test_a_guard_value_that_the_statements_cannot_hold_is_refused(value: str) -> None:
    with pytest.raises(PolicyError):
        Equals("status", value)


def test_the_longest_name_and_the_longest_retention_are_accepted() -> None:
    longest = replace(POLICY, root=Table("s" * 63, "т" * 31), retention=LONGEST_RETENTION)

    assert longest.tables[-1] == Table("s" * 63, "т" * 31)


def test_a_policy_is_a_value_that_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        POLICY.retention = timedelta(seconds=1)  # type: ignore[misc]  # ty: ignore[invalid-assignment]
    assert {POLICY, replace(POLICY)} == {POLICY}


def test_tables_stand_in_the_order_in_which_they_are_cleaned() -> None:
    parts = Table("shop", "parts")
    policy = replace(POLICY, children=(Child(parts, "order_id"), Child(LINES, "order_id")))

    assert policy.tables == (parts, LINES, ORDERS)


@pytest.mark.req("A-07", "F-04")
@pytest.mark.parametrize(
    "limits",
    [
        {"batch_size": 0},
        {"batch_size": -1},
        {"batch_size": LARGEST_BATCH + 1},
        {"max_batches": 0},
        {"max_run_duration": timedelta(0)},
        {"max_run_duration": timedelta(seconds=-1)},
    ],
    ids=str,
)
def test_limits_out_of_bounds_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        replace(Limits(1000, timedelta(minutes=10), 200), **limits)


@pytest.mark.req("A-07", "F-04")
def test_limits_at_their_bounds_are_accepted() -> None:
    assert LARGEST_BATCH == 50_000
    for size in 1, 50_000:
        assert Limits(size, timedelta(microseconds=1), 1).batch_size == size
    assert Limits(1, timedelta(days=1)).max_batches is None
