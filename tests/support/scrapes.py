"""What a scrape answers, as values by series, and a request as a probe or Prometheus sends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection

from pgretention.clock import Clock
from pgretention.config import HostPort
from pgretention.job import Job
from pgretention.report import Fact
from pgretention.sinks.metrics import Metrics


@dataclass(frozen=True)
class Answer:
    """What came back: `headers` have small names."""

    status: int
    headers: Mapping[str, str]
    text: str


def ask(address: HostPort, path: str, method: str = "GET", **headers: str) -> Answer:
    """One request on a connection of its own; a header's name has _ for -."""
    connection = HTTPConnection(address.host, address.port)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        text = response.read().decode()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, text)
    finally:
        connection.close()


def series(exposition: str) -> dict[str, float]:
    """Every series of an exposition in the plain format, written as it stands there, with its value."""
    lines = [line.rpartition(" ") for line in exposition.splitlines() if not line.startswith("#")]
    values = {name: float(value) for name, _, value in lines}
    assert len(values) == len(lines), "a series stands there twice"
    return values


def scraped(metrics: Metrics) -> dict[str, float]:
    content, _ = metrics.exposition("")
    return series(content.decode())


def told(facts: list[Fact], *jobs: Job, clock: Clock) -> dict[str, float]:
    """All series of these jobs after these facts."""
    metrics = Metrics(jobs, clock)
    for fact in facts:
        metrics(fact)
    return scraped(metrics)
