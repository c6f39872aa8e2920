"""guest-favorites-cleanup: favorites of guests who never signed in and have not touched them for long enough.

Source: `spec/guest-favorites-cleanup-job`, requirements F-01 to F-06.
"""

from __future__ import annotations

from datetime import timedelta

from pgretention.policy import IsNull, Policy, Table

NAME = "guest-favorites-cleanup"

PROMISE = timedelta(days=1)
"""How long after it expired a favorite is gone at the latest (F-20)."""


def policy(retention: timedelta) -> Policy:
    """The policy of guest-favorites-cleanup, keeping a guest's favorite for `retention` after its last update.

    A favorite with a user_id is never deleted, however old (F-02). There is no lock: instances share the rows (F-05).
    """
    return Policy(
        name=NAME,
        root=Table("favorites", "favorites"),
        key="id",
        expiry="updated_at",
        guard=(IsNull("user_id"),),
        retention=retention,
    )
