"""The tables of both jobs, as somebody who writes the deletion by hand knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pgretention.jobs import activity_retention, guest_favorites_cleanup

CUTOFF = "now() - interval '365 days'"
"""By the default retention of both jobs."""


@dataclass(frozen=True, slots=True)
class Tables:
    """A root table with the children that go with its rows; `batch_size` is the job's default, in root rows.

    `guard` and `expiry` are SQL: a row is expired where the guard holds and the expiry is older than the retention.
    `children` are (table, column that holds the root's id), in delete order. Of the rows that are old enough, one in
    `kept_every` is protected by the guard. `rows_each` is how many rows go with one root row, itself included.
    """

    job: str
    domain: str
    root: str
    guard: str
    expiry: str
    children: tuple[tuple[str, str], ...]
    batch_size: int
    kept_every: int
    rows_each: int

    @property
    def expired_ids(self) -> str:
        """A query for the ids of all expired root rows."""
        return f"SELECT id FROM {self.root} WHERE {self.expired(CUTOFF)}"

    def expired(self, cutoff: str) -> str:
        """The condition under which a root row is deleted, given the cutoff as SQL."""
        return f"{self.guard} AND {self.expiry} < {cutoff}"

    def oldest(self, cutoff: str, size: str) -> str:
        """A query for the ids of the oldest expired root rows."""
        return f"SELECT id FROM {self.root} WHERE {self.expired(cutoff)} ORDER BY {self.expiry} LIMIT {size}"

    def deletes(self, which: str) -> list[str]:
        """A DELETE for each table, children first; `which` says of the root's ids which ones, as in `IN (...)`."""
        parts = [f"DELETE FROM {table} WHERE {column} {which}" for table, column in self.children]
        return [*parts, f"DELETE FROM {self.root} WHERE id {which}"]


ACTIVITY = Tables(
    job=activity_retention.NAME,
    domain="user-activity",
    root="user_activity.sessions",
    guard="status = 'Inactive'",
    expiry="ended_at",
    children=(("user_activity.action_events", "session_id"), ("user_activity.property_object_views", "session_id")),
    batch_size=5000,
    kept_every=20,
    rows_each=12,
)

FAVORITES = Tables(
    job=guest_favorites_cleanup.NAME,
    domain="favorites",
    root="favorites.favorites",
    guard="user_id IS NULL",
    expiry="updated_at",
    children=(),
    batch_size=1000,
    kept_every=5,
    rows_each=1,
)

BY_JOB: Mapping[str, Tables] = MappingProxyType({tables.job: tables for tables in (ACTIVITY, FAVORITES)})
