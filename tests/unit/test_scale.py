"""The model of how far one table goes: each limit binds where arithmetic says, and a larger step moves it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest

from bench.scale.ladder import RATES, first_that_keeps_up, steps
from bench.scale.model import DAY, Costs, Server, Setup, backlog_after, days_to_drain, limits, outlook

COSTS = Costs(delete=100e-6, vacuum=20e-6, replay=50e-6, wal=2_000, rows=12, beside=1.0)
SERVER = Server(cores=4, wal=100e6)
NIGHTLY = Setup("nightly", every=DAY, duration=1800, batches=200)
ALWAYS = Setup("always", every=3600, duration=3600, batches=inf)


def test_the_defaults_delete_a_million_sessions_a_night() -> None:
    seen = outlook(11.0, COSTS, SERVER, NIGHTLY)
    assert seen.binding == "MaxBatchesPerRun"
    assert seen.most == pytest.approx(1_000_000 / DAY)
    assert seen.keeps_up
    assert not outlook(12.0, COSTS, SERVER, NIGHTLY).keeps_up


@pytest.mark.parametrize(
    ("setup", "server", "costs", "binding", "most"),
    [
        (replace(NIGHTLY, batches=inf), SERVER, COSTS, "MaxRunDuration and workers", 10_000 * 1800 / DAY),
        (ALWAYS, SERVER, COSTS, "MaxRunDuration and workers", 10_000),
        (replace(ALWAYS, workers=16), SERVER, COSTS, "replay on a standby", 20_000),
        (replace(ALWAYS, workers=16), SERVER, replace(COSTS, replay=1e-6), "cores", 4 / 120e-6),
        (replace(ALWAYS, workers=16), Server(64, 10e6), COSTS, "WAL", 5_000),
        (
            replace(ALWAYS, workers=16),
            Server(64),
            replace(COSTS, vacuum=90e-6),
            "vacuum, one process a table",
            1e6 / 90,
        ),
        (replace(ALWAYS, shards=8), SERVER, COSTS, "MaxRunDuration and workers", 80_000),
    ],
)
def test_each_limit_binds_where_arithmetic_says(
    setup: Setup, server: Server, costs: Costs, binding: str, most: float
) -> None:
    seen = outlook(1.0, costs, server, setup)
    assert seen.binding == binding
    assert seen.most == pytest.approx(most)


@pytest.mark.parametrize("rate", [1.0, 11.0, 12.0, 100.0])
def test_the_simulated_backlog_grows_exactly_where_the_outlook_says_so(rate: float) -> None:
    ends = backlog_after(30, rate, 0.0, COSTS, NIGHTLY)
    grows = ends[-1] > ends[9] + 1
    assert grows is not outlook(rate, COSTS, SERVER, NIGHTLY).keeps_up


def test_a_backlog_is_gone_after_the_days_that_are_told() -> None:
    backlog, rate = 3_000_000.0, 5.0
    days = days_to_drain(backlog, rate, COSTS, SERVER, NIGHTLY)
    ends = backlog_after(int(days) + 1, rate, backlog, COSTS, NIGHTLY)
    assert ends[int(days) - 2] > 0
    assert ends[-1] == 0
    assert days_to_drain(backlog, 12.0, COSTS, SERVER, NIGHTLY) == inf


def test_every_step_allows_at_least_what_the_one_before_did_and_one_of_them_keeps_up_with_any_rate() -> None:
    most = [min(limits(COSTS, SERVER, setup).values()) for setup, _ in zip(steps(SERVER), range(12), strict=False)]
    assert all(before <= after for before, after in pairwise(most))
    for rate in RATES:
        assert first_that_keeps_up(rate, COSTS, SERVER)[1].keeps_up
