"""The worker as a whole: jobs on their schedules, and the address where probes and scrapes are answered."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial

from pgretention import __version__, readiness, web, worker
from pgretention.admission import Admission
from pgretention.app import Assignment
from pgretention.clock import Clock, SystemClock
from pgretention.config import HostPort, Settings
from pgretention.sinks import logs
from pgretention.sinks.fan_out import Sink, fan_out
from pgretention.sinks.log_names import INFO
from pgretention.sinks.metrics import Metrics
from pgretention.stop import Stop


def work(assignments: Sequence[Assignment], settings: Settings, *, sinks: Iterable[Sink], stop: Stop) -> None:
    """Run these jobs on their schedules until a stop (H-01, H-02)."""
    clock = SystemClock()
    with _answering(assignments, settings.http_listen, stop, clock) as listening:
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
    assignments: Sequence[Assignment], address: HostPort | None, stop: Stop, clock: Clock
) -> Generator[list[Sink]]:
    """While inside, answer probes and scrapes at the address, if there is one; yields what has to hear of the runs.

    Raises ConfigurationError where nobody can listen.
    """
    if address is None:
        yield []
        return
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
