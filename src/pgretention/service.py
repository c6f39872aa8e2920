"""The worker as a whole: jobs on their schedules, and the address where it answers probes, scrapes and people."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial

from pgretention import __version__, readiness, survey, web, worker
from pgretention.admission import Admission
from pgretention.app import Assignment
from pgretention.clock import Clock, SystemClock
from pgretention.config import Settings, connection_string
from pgretention.page import routes as page
from pgretention.page.guard import Gate
from pgretention.page.situation import Watched
from pgretention.sinks import logs
from pgretention.sinks.archive import FileArchive
from pgretention.sinks.fan_out import Sink, fan_out
from pgretention.sinks.history import History
from pgretention.sinks.log_names import INFO, WARNING
from pgretention.sinks.metrics import Metrics
from pgretention.stop import Stop


def work(
    assignments: Sequence[Assignment],
    settings: Settings,
    *,
    sinks: Iterable[Sink],
    stop: Stop,
    others: Sequence[Assignment] = (),
) -> None:
    """Run these jobs on their schedules until a stop (H-01, H-02); `others` are jobs that the page shows besides."""
    clock = SystemClock()
    with _answering(assignments, others, settings, stop, clock) as listening:
        observe = fan_out([*sinks, *listening])
        admissions = {assignment.job.name: Admission(assignment, observe, stop) for assignment in assignments}
        logs.say(INFO, "worker started", version=__version__, jobs=list(admissions))
        for admission in admissions.values():
            admission.begin_to_look()
        left = worker.work(
            [assignment.job for assignment in assignments],
            lambda job: admissions[job.name].run(),
            stop=stop,
            clock=clock,
            observe=observe,
            grace=settings.misfire_grace,
        )
    logs.say(INFO, "worker ended", left_running=left)


@contextmanager
def _answering(
    assignments: Sequence[Assignment],
    others: Sequence[Assignment],
    settings: Settings,
    stop: Stop,
    clock: Clock,
) -> Generator[list[Sink]]:
    """While inside, answer at the address, if there is one; yields what has to hear of the runs.

    Raises ConfigurationError where nobody can listen, or no history can be kept.
    """
    if settings.http_listen is None:
        yield []
        return
    jobs = [assignment.job for assignment in assignments]
    shown = [*assignments, *others]
    metrics = Metrics(jobs, clock)
    archive = FileArchive(settings.history_file) if settings.history_file else None
    history = History([assignment.job for assignment in shown], clock, archive)
    databases = [(assignment.job.name, assignment.dsn) for assignment in assignments]
    with (
        readiness.watching(databases, stop=stop, clock=clock) as seen,
        survey.surveying(assignments, clock=clock, stop=stop) as surveys,
    ):
        watched = Watched(
            machine=socket.gethostname(),
            jobs=tuple(assignment.job for assignment in shown),
            here=frozenset(job.name for job in jobs),
            switches={assignment.job.name: assignment.switch for assignment in shown},
            databases={assignment.job.name: _shown(assignment.dsn) for assignment in shown},
            clock=clock,
            history=history,
            survey=surveys.of,
            unseen=surveys.failed,
            away=seen.away,
            lost=lambda job: bool(without_thread([job], stop)),
            stopping=lambda: stop.requested,
        )
        dead = partial(without_thread, [job.name for job in jobs], stop)
        gate = Gate.at(settings.http_listen, settings.http_token, settings.http_hosts, socket.gethostname())
        probes = web.routes(dead=dead, unready=seen.reasons, metrics=metrics.exposition)
        with web.serving(settings.http_listen, [*probes, *page.routes(watched, gate)]) as at:
            logs.say(INFO, "listening", address=str(at))
            if gate.closed:
                logs.say(WARNING, "page closed", address=str(at), why="Http:Token is not set; set it, or set it to off")
            yield [metrics, history]


def _shown(dsn: str) -> str:
    """Which database that is, without secrets."""
    return connection_string(dsn).shown if dsn else "libpq environment"


def without_thread(jobs: Sequence[str], stop: Stop) -> list[str]:
    """A line for each job whose thread, which bears its name, is not there although no stop was requested."""
    running = {thread.name for thread in threading.enumerate()}
    lost = [job for job in jobs if job not in running]
    return [] if stop.requested else [f"{job} has no thread; restart the worker" for job in lost]
