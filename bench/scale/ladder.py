"""What to do next: the steps from the defaults on, each tried only when the one before no longer keeps up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import inf
from typing import Final

from bench.scale.model import DAY, Costs, Outlook, Server, Setup, outlook

HOUR: Final = 3_600.0
RATES: Final = (10.0, 100.0, 1_000.0, 10_000.0, 100_000.0)
"""Sessions that expire a second."""


def steps(server: Server) -> Iterator[Setup]:
    """Every step, from the defaults of the settings to ever more servers."""
    yield Setup("the defaults: one run a night", every=DAY, duration=HOUR / 2, batches=200)
    yield Setup("no limit on batches, nights of 6 h", every=DAY, duration=6 * HOUR, batches=inf)
    yield Setup("a run every hour, up to an hour", every=HOUR, duration=HOUR, batches=inf)
    for workers in range(2, server.cores + 1):
        words = f"a run every hour, {workers} workers"
        yield Setup(words, every=HOUR, duration=HOUR, batches=inf, workers=workers)
    for doubling in count(1):
        words = f"{2**doubling} shards, {server.cores} workers each"
        yield Setup(words, HOUR, HOUR, inf, workers=server.cores, shards=2**doubling)


def first_that_keeps_up(rate: float, costs: Costs, server: Server) -> tuple[Setup, Outlook]:
    """The smallest step that holds a rate, and what it looks like there."""
    for setup in steps(server):
        seen = outlook(rate, costs, server, setup)
        if seen.keeps_up:
            return setup, seen
    raise AssertionError("there is always a larger step")
