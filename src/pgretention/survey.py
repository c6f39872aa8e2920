"""What a job's database looks like between runs: findings, foreign keys, statements and the backlog.

Looked at now and then in threads of its own, in READ ONLY transactions with a time limit each, so that whoever wants to
see it waits for no database.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from pgretention import backlog, catalog, db, plan, preflight, preview
from pgretention.app import Assignment
from pgretention.clock import Clock
from pgretention.errors import Fault, Refusal
from pgretention.preflight import Finding, Reference
from pgretention.report import Backlog
from pgretention.session import Session, connect
from pgretention.stop import Stop

LOOK_EVERY: Final = timedelta(minutes=15)

_NAME: Final = "pgretention-survey"
_AFTER_A_FAULT: Final = timedelta(minutes=1)
_ENDING_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Survey:
    """A look at `at`, in UTC. `references` are the foreign keys that a deletion meets.

    `statements` are those of a batch by title, with the `cutoff` they would have had; empty where the tables are not
    what the policy says, which `findings` tell. `backlog` is None there too, and where the role may not count.
    """

    at: datetime
    findings: tuple[Finding, ...]
    references: tuple[Reference, ...]
    statements: Mapping[str, str] = field(default_factory=dict)
    cutoff: datetime | None = None
    backlog: Backlog | None = None


def survey(assignment: Assignment, clock: Clock, stop: Stop) -> Survey:
    """Look at the database of a job; raises Fault where that is not possible."""
    job = assignment.job
    with (
        connect(assignment.dsn, _NAME, given_up=stop.given_up) as session,
        stop.watching(session),
    ):
        found = preflight.findings(job, session, clock)
        references = preflight.references(job, session)
        try:
            return _with_statements(assignment, session, Survey(clock.now(), found, references))
        except Refusal:
            return Survey(clock.now(), found, references)


def _with_statements(assignment: Assignment, session: Session, seen: Survey) -> Survey:
    job = assignment.job
    with db.looking(session, backlog.MEASURING) as connection:
        statements = plan.build(job.policy, catalog.read(connection, job.policy.tables))
        cutoff = backlog.read_cutoff(connection, job.policy.retention)
    try:
        left = backlog.measure(session, statements, cutoff, backlog.MEASURING)
    except Fault:
        left = None
    texts = preview.texts(statements, job.limits.batch_size)
    return Survey(seen.at, seen.findings, seen.references, texts, cutoff, left)


class Surveys:
    """The latest look at the database of each job."""

    def __init__(self, clock: Clock, stop: Stop) -> None:
        self._clock = clock
        self._stop = stop
        self._seen: dict[str, Survey] = {}
        self._failed: dict[str, str] = {}

    def of(self, job: str) -> Survey | None:
        """The latest look that succeeded; None before the first."""
        return self._seen.get(job)

    def failed(self, job: str) -> str | None:
        """Why the latest look failed, if it did, in words of ours."""
        return self._failed.get(job)

    def watch(self, assignment: Assignment) -> None:
        """Look at one job's database at once and then now and again, until a stop is requested."""
        while not self._stop.requested:
            self._stop.wait(LOOK_EVERY if self.look(assignment) else _AFTER_A_FAULT)

    def look(self, assignment: Assignment) -> bool:
        """Look once; whether that succeeded."""
        name = assignment.job.name
        try:
            self._seen[name] = survey(assignment, self._clock, self._stop)
        except Fault as fault:
            self._failed[name] = str(fault)
        except Exception as error:  # noqa: BLE001  a look that goes wrong must not end those to come
            self._failed[name] = f"unexpected {type(error).__qualname__}"
        else:
            self._failed.pop(name, None)
        return name not in self._failed


@contextmanager
def surveying(assignments: Sequence[Assignment], *, clock: Clock, stop: Stop) -> Generator[Surveys]:
    """While inside, look at the database of each job now and then; ends at a stop, as `readiness.watching` does."""
    surveys = Surveys(clock, stop)
    threads = [
        threading.Thread(target=surveys.watch, args=(assignment,), name="survey", daemon=True)
        for assignment in assignments
    ]
    for thread in threads:
        thread.start()
    try:
        yield surveys
    finally:
        stop.request()
        for thread in threads:
            thread.join(_ENDING_SECONDS)
