"""The model: which limit is met first at a given rate of expiries, and what moves it. Pure arithmetic, no clock.

A day is simulated run by run: sessions expire at an even rate, a run deletes the expired ones until it has drained
them, or until one of its limits ends it. What a second of deleting costs the server is measured (`costs`); what a
server has to give is assumed and printed beside the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Final

DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Costs:
    """What one expired session costs, its children included, as measured on one machine.

    `delete` and `vacuum` are seconds of one core of the primary, `replay` of a standby's one replaying process, `wal`
    is in bytes. `rows` is how many rows go with it. `beside` is how much a further worker adds, 1 being all it has.
    """

    delete: float
    vacuum: float
    replay: float
    wal: float
    rows: float
    beside: float


@dataclass(frozen=True, slots=True)
class Server:
    """What a server may spend on this: cores for deleting and for vacuum, and bytes of WAL a second."""

    cores: int = 8
    wal: float = 100e6


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings and layout: `every` is seconds from one run's beginning to the next, `shards` servers share the rows."""

    words: str
    every: float
    duration: float
    batches: float
    batch_size: int = 5000
    workers: int = 1
    shards: int = 1


@dataclass(frozen=True, slots=True)
class Outlook:
    """What becomes of a setup at a rate.

    `binding` names the limit that is met first, `most` is the rate at which that is, in sessions a second; `load` is
    how much of each limit is used. `oldest` is how long an expired session waits at the worst, in seconds, infinite
    where the backlog grows for ever.
    """

    binding: str
    most: float
    load: dict[str, float]
    oldest: float

    @property
    def keeps_up(self) -> bool:
        """Whether the backlog does not grow from day to day."""
        return self.oldest < inf


def rate_of_run(costs: Costs, setup: Setup) -> float:
    """Sessions a second that a run deletes on one server while it is on."""
    return (1 + (setup.workers - 1) * costs.beside) / costs.delete


def limits(costs: Costs, server: Server, setup: Setup) -> dict[str, float]:
    """The highest sustained rate, in sessions a second over all shards, that each limit allows."""
    on = min(setup.duration / setup.every, 1.0)
    return {
        "MaxBatchesPerRun": setup.batches * setup.batch_size / setup.every * setup.shards,
        "MaxRunDuration and workers": rate_of_run(costs, setup) * on * setup.shards,
        "cores": server.cores / (costs.delete + costs.vacuum) * setup.shards,
        "vacuum, one process a table": 1 / costs.vacuum * setup.shards,
        "WAL": server.wal / costs.wal * setup.shards,
        "replay on a standby": 1 / costs.replay * setup.shards,
    }


def outlook(rate: float, costs: Costs, server: Server, setup: Setup) -> Outlook:
    """What becomes of a setup when so many sessions expire a second."""
    allowed = limits(costs, server, setup)
    binding = min(allowed, key=lambda name: allowed[name])
    most = allowed[binding]
    load = {name: rate / limit for name, limit in allowed.items()}
    return Outlook(binding, most, load, _oldest(rate, most, costs, setup))


def _oldest(rate: float, most: float, costs: Costs, setup: Setup) -> float:
    if rate > most:
        return inf
    run = rate * setup.every / (rate_of_run(costs, setup) * setup.shards)
    return setup.every + run


def backlog_after(days: int, rate: float, backlog: float, costs: Costs, setup: Setup) -> list[float]:
    """The sessions left at the end of each day, starting with a backlog; simulated run by run."""
    left, ends = backlog, []
    speed = rate_of_run(costs, setup) * setup.shards
    most = setup.batches * setup.batch_size * setup.shards
    for _ in range(days):
        for _ in range(max(1, round(DAY / setup.every))):
            left += rate * setup.every
            left -= min(left, most, speed * min(setup.duration, setup.every))
        ends.append(left)
    return ends


def days_to_drain(backlog: float, rate: float, costs: Costs, server: Server, setup: Setup) -> float:
    """Days until a backlog is gone while sessions go on expiring at a rate; infinite where it never is."""
    net = outlook(rate, costs, server, setup).most - rate
    return ceil(backlog / net / DAY) if net > 0 else inf
