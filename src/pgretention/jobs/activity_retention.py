"""activity-retention: closed user sessions, with their views and events, once they ended long enough ago.

Source: `spec/activity-retention-job`, requirements A-01 to A-05 and A-09.
"""

from __future__ import annotations

from datetime import timedelta

from pgretention.policy import Child, Equals, Policy, Table

NAME = "activity-retention"


def policy(retention: timedelta) -> Policy:
    """The policy of activity-retention, keeping a session for `retention` after it ended.

    Events go before views: each points at the other with SET NULL, and both point at the session with RESTRICT, so
    either order is sound and this is the one the specification names (A-02). `property_object_view_stats` is not
    here on purpose: it outlives the raw views (A-03).
    """
    return Policy(
        name=NAME,
        root=Table("user_activity", "sessions"),
        key="id",
        expiry="ended_at",
        guard=(Equals("status", "Inactive"),),
        children=(
            Child(Table("user_activity", "action_events"), root_key="session_id"),
            Child(Table("user_activity", "property_object_views"), root_key="session_id"),
        ),
        retention=retention,
        lock="job:scheduled:activity-retention",
    )


def promise(max_run_duration: timedelta) -> timedelta:
    """How long after it expired a session is gone at the latest: a day until the next run, and the
    run itself (A-20)."""
    return timedelta(days=1) + max_run_duration
