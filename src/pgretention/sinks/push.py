"""The metrics of a run that is over, for a Pushgateway to keep, since nobody scrapes a process that has ended."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPException

from pgretention.clock import Clock
from pgretention.job import Job
from pgretention.sinks import logs
from pgretention.sinks.fan_out import Sink
from pgretention.sinks.log_names import WARNING


@contextmanager
def pushed(address: str | None, job: Job, clock: Clock) -> Generator[list[Sink]]:
    """While inside, measure the run of this job, and push that at the end, if there is an address: yields the sink, or
    none. A gateway that does not take it is told in the log, and changes nothing.
    """
    if address is None:
        yield []
        return
    from pgretention.sinks.metrics import Metrics  # noqa: PLC0415  brings a library that most runs need not load

    metrics = Metrics([job], clock)
    yield [metrics]
    try:
        metrics.push(address, job.name)
    except (OSError, HTTPException) as error:
        logs.say(WARNING, "metrics not pushed", job=job.name, error_type=type(error).__qualname__)
