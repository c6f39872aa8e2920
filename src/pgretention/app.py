"""The composition root: settings become jobs, jobs meet their database, facts meet their sinks."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches

from pgretention import engine, preflight, preview, rehearsal, shape
from pgretention.clock import SystemClock
from pgretention.config import ConnectionString, Settings, load
from pgretention.course import NO_CONDITIONS, Conditions
from pgretention.errors import ConfigurationError, FaultKind
from pgretention.job import Job, Limits, Retries
from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.preflight import Finding
from pgretention.preview import Preview
from pgretention.rehearsal import Rehearsal
from pgretention.report import Outcome, RunError, RunFinished, RunReport
from pgretention.session import connect
from pgretention.shape import Shape
from pgretention.sinks.fan_out import Sink, fan_out
from pgretention.stop import Stop

JOB_NAMES = (activity_retention.NAME, guest_favorites_cleanup.NAME)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A job, the database it works on and the setting that switches it off.

    An empty `dsn` leaves everything to libpq's environment.
    """

    job: Job
    dsn: str
    switch: str


def assign(settings: Settings) -> dict[str, Assignment]:
    """Every job by name, enabled or not, in a fixed order."""
    activity, favorites = settings.activity_retention, settings.guest_favorites
    assignments = [
        Assignment(
            Job(
                policy=activity_retention.policy(activity.retention),
                limits=Limits(
                    activity.batch_size, activity.max_run_duration, activity.max_batches_per_run, activity.workers
                ),
                schedule=activity.schedule,
                retries=Retries(times=3),
                pace=activity.pace,
                safety=activity.safety,
                enabled=activity.enabled,
                promise=activity_retention.promise(activity.max_run_duration),
            ),
            _reveal(settings.user_activity_dsn),
            switch="ActivityRetention:Enabled",
        ),
        Assignment(
            Job(
                policy=guest_favorites_cleanup.policy(favorites.retention),
                limits=Limits(favorites.batch_size, favorites.max_run_duration, workers=favorites.workers),
                schedule=favorites.schedule,
                pace=favorites.pace,
                safety=favorites.safety,
                enabled=favorites.enabled,
                promise=guest_favorites_cleanup.PROMISE,
            ),
            _reveal(settings.favorites_dsn),
            switch="Favorites:GuestRetention:Enabled",
        ),
    ]
    return {assignment.job.name: assignment for assignment in assignments}


def check_name(name: str) -> str:
    """The name of a job, or ConfigurationError with the one that was probably meant."""
    if name in JOB_NAMES:
        return name
    near = get_close_matches(name, JOB_NAMES, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {' and '.join(JOB_NAMES)}"
    raise ConfigurationError([f"no job is called {name}; {hint}"])


def default(name: str) -> Assignment:
    """A job as it is when nothing is set: for the demo, and for what is said of it when settings cannot be read."""
    return assign(load(None, {}, ()))[name]


def run(assignment: Assignment, *, sinks: Iterable[Sink], stop: Stop) -> RunReport:
    """Run a job once, now. Whoever has switched a job off does not want it run by hand either: that is refused."""
    job, observe = assignment.job, fan_out(sinks)
    if not job.enabled:
        report = refusal(job, FaultKind.REFUSED, _switched_off(assignment))
        observe(RunFinished(report))
        return report
    return run_once(assignment, observe, stop)


def choose(assignments: Mapping[str, Assignment], names: Sequence[str]) -> list[Assignment]:
    """The named jobs, each once; without a name all that are switched on.

    Raises ConfigurationError where that leaves none, and for a named job that is switched off.
    """
    named = [assignments[name] for name in dict.fromkeys(names)]
    off = [_switched_off(assignment) for assignment in named if not assignment.job.enabled]
    if off:
        raise ConfigurationError(off)
    chosen = named or [assignment for assignment in assignments.values() if assignment.job.enabled]
    if not chosen:
        switches = " or ".join(assignment.switch for assignment in assignments.values())
        raise ConfigurationError([f"every job is switched off: set {switches} to true"])
    return chosen


def _switched_off(assignment: Assignment) -> str:
    return f"{assignment.job.name} is switched off; set {assignment.switch} to true to run it"


def run_once(assignment: Assignment, observe: Sink, stop: Stop, conditions: Conditions = NO_CONDITIONS) -> RunReport:
    """Run a job once; every fact of it goes to `observe`."""
    return engine.run(
        assignment.job,
        assignment.dsn,
        run_id=_new_run_id(),
        observe=observe,
        stop=stop,
        clock=SystemClock(),
        conditions=conditions,
    )


def _new_run_id() -> str:
    """The correlation id of a run; nothing is stored under it."""
    return str(uuid.uuid4())


def look(assignment: Assignment, as_of: datetime | None = None) -> Preview:
    """What a run of the job would do now, or at another instant; deletes nothing."""
    return preview.look(assignment.job, assignment.dsn, as_of)


def inspect(assignment: Assignment) -> tuple[Finding, ...]:
    """What would go wrong in a run of the job, the worst first; deletes nothing. Raises Fault."""
    return preflight.inspect(assignment.job, assignment.dsn, SystemClock())


def explain(assignment: Assignment, cutoff: datetime) -> tuple[Shape, ...]:
    """How the database would execute the statements of a batch; executes none."""
    job = assignment.job
    with connect(assignment.dsn, f"pgretention/{job.name}/plan") as session:
        return shape.shapes(session, job.policy, cutoff, job.limits.batch_size)


def rehearse(assignment: Assignment, batches: int) -> Rehearsal:
    """Delete so many batches and roll each of them back."""
    return rehearsal.rehearse(assignment.job, assignment.dsn, SystemClock(), batches=batches)


def refusal(job: Job, kind: FaultKind, message: str) -> RunReport:
    """The report of a run that never began."""
    return RunReport(
        job=job.name,
        run_id=_new_run_id(),
        outcome=Outcome.REFUSED,
        cutoff=None,
        deleted={str(table): 0 for table in job.policy.tables},
        batches=0,
        has_more=False,
        backlog_before=None,
        backlog_after=None,
        duration=timedelta(0),
        error=RunError(kind, message),
    )


def _reveal(dsn: ConnectionString | None) -> str:
    return "" if dsn is None else dsn.reveal()
