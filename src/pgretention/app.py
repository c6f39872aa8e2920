"""The composition root: settings become jobs, jobs meet their database, facts meet their sinks."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from functools import partial

from pgretention import __version__, engine, preview, worker
from pgretention.clock import Clock, SystemClock
from pgretention.config import ConnectionString, HostPort, Settings, load
from pgretention.errors import ConfigurationError, FaultKind
from pgretention.job import Job, Limits, Retries
from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.preview import Preview
from pgretention.report import Outcome, RunError, RunFinished, RunReport
from pgretention.sinks import logs
from pgretention.sinks.fan_out import Sink, fan_out
from pgretention.sinks.log_names import INFO
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
                enabled=activity.enabled,
            ),
            _reveal(settings.user_activity_dsn),
            switch="ActivityRetention:Enabled",
        ),
        Assignment(
            Job(
                policy=guest_favorites_cleanup.policy(favorites.retention),
                limits=Limits(favorites.batch_size, favorites.max_run_duration, workers=favorites.workers),
                schedule=favorites.schedule,
                enabled=favorites.enabled,
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
        words = f"{job.name} is switched off; set {assignment.switch} to true to run it"
        report = refusal(job, FaultKind.REFUSED, words)
        observe(RunFinished(report))
        return report
    return _run(assignment, observe, stop)


def choose(assignments: Mapping[str, Assignment], names: Sequence[str]) -> list[Assignment]:
    """The named jobs, each once and whether switched on or not; without a name all that are switched on.

    Raises ConfigurationError where that leaves none.
    """
    if names:
        return [assignments[name] for name in dict.fromkeys(names)]
    chosen = [assignment for assignment in assignments.values() if assignment.job.enabled]
    if not chosen:
        switches = " or ".join(assignment.switch for assignment in assignments.values())
        raise ConfigurationError([f"every job is switched off: set {switches} to true, or name the jobs to run"])
    return chosen


def work(assignments: Sequence[Assignment], settings: Settings, *, sinks: Iterable[Sink], stop: Stop) -> None:
    """Run these jobs on their schedules, whether switched on or not, until a stop (H-01, H-02)."""
    by_name = {assignment.job.name: assignment for assignment in assignments}
    clock = SystemClock()
    with _answering(assignments, settings.http_listen, stop, clock) as listening:
        observe = fan_out([*sinks, *listening])
        logs.say(INFO, "worker started", version=__version__, jobs=list(by_name))
        left = worker.work(
            [assignment.job for assignment in assignments],
            lambda job: _run(by_name[job.name], observe, stop),
            stop=stop,
            clock=clock,
            observe=observe,
            grace=settings.misfire_grace,
        )
    logs.say(INFO, "worker ended", left_running=left)


@contextmanager
def _answering(
    assignments: Sequence[Assignment], address: HostPort | None, stop: Stop, clock: Clock
) -> Generator[list[Sink]]:
    """While inside, answer probes and scrapes at the address, if there is one; yields what has to hear of the runs.

    Raises ConfigurationError where nobody can listen.
    """
    if address is None:
        yield []
        return
    from pgretention import readiness, web  # noqa: PLC0415  slow to load, and only the worker serves
    from pgretention.sinks.metrics import Metrics  # noqa: PLC0415  as above

    metrics = Metrics([assignment.job for assignment in assignments], clock)
    databases = [(assignment.job.name, assignment.dsn) for assignment in assignments]
    with readiness.watching(databases, stop=stop, clock=clock) as seen:
        dead = partial(without_thread, [name for name, _ in databases], stop)
        with web.serving(address, web.routes(dead=dead, unready=seen.reasons, metrics=metrics.exposition)) as at:
            logs.say(INFO, "listening", address=str(at))
            yield [metrics]


def without_thread(jobs: Sequence[str], stop: Stop) -> list[str]:
    """A line for each job whose thread, which bears its name, is not there although no stop was requested."""
    running = {thread.name for thread in threading.enumerate()}
    lost = [job for job in jobs if job not in running]
    return [] if stop.requested else [f"{job} has no thread; restart the worker" for job in lost]


def _run(assignment: Assignment, observe: Sink, stop: Stop) -> RunReport:
    clock = SystemClock()
    return engine.run(assignment.job, assignment.dsn, run_id=_new_run_id(), observe=observe, stop=stop, clock=clock)


def _new_run_id() -> str:
    """The correlation id of a run; nothing is stored under it."""
    return str(uuid.uuid4())


def look(assignment: Assignment) -> Preview:
    """What a run of the job would do now; deletes nothing."""
    return preview.look(assignment.job, assignment.dsn)


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
