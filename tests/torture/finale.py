"""The end: a last run of each job that nobody disturbs, and what must be true after it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from tests.support.gates import one, until, workers
from tests.torture.accounts import ACTIVITY, GUESTS, Ended
from tests.torture.evidence import Admin
from tests.torture.replicas import Company

_LEFT = {
    ACTIVITY: """
        SELECT count(*) FROM user_activity.sessions
         WHERE status = 'Inactive' AND isfinite(ended_at) AND ended_at < %s
    """,
    GUESTS: """
        SELECT count(*) FROM favorites.favorites WHERE user_id IS NULL AND isfinite(updated_at) AND updated_at < %s
    """,
}
"""Written by hand from the specifications."""

_ADVISORY_LOCKS = """
    SELECT count(*) FROM pg_locks
     WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def last_runs(company: Company) -> list[Ended]:
    """Each job once, with its default limits."""
    return [company.end(company.start(("run", job, "--json"), 5000, 1, wired=False)) for job in (ACTIVITY, GUESTS)]


def leftovers(admin: Admin) -> Iterator[str]:
    """6. Nobody of ours is connected, no lock and no transaction was left behind."""
    until(lambda: not workers(admin))
    if one(admin, _ADVISORY_LOCKS) != 0:
        yield "leftovers: an advisory lock"
    if one(admin, "SELECT count(*) FROM pg_prepared_xacts") != 0:
        yield "leftovers: a prepared transaction"


def drained(admin: Admin, ended: Ended) -> Iterator[str]:
    """6. The last run found everything: it says so, and the tables say so."""
    job, result = ended.words[1], ended.result
    if result is None:
        yield f"drained: process {ended.name}, the last run of {job}, has no result"
        return
    if (result["outcome"], result["backlog_after"], result["has_more"]) != ("completed", 0, False):
        ending = f"ended {result['outcome']}, backlog {result['backlog_after']}"
        yield f"drained: process {ended.name}, the last run of {job}, {ending}"
        return
    left = one(admin, _LEFT[job], datetime.fromisoformat(str(result["cutoff"])))
    if left != 0:
        yield f"drained: after the last run of {job} {left} expired rows are left"
