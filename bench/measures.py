"""What is measured, one function each. A round has every contender once, in an order that chance decides."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from statistics import fmean
from types import MappingProxyType
from typing import TypeVar

import psycopg
from psycopg import IsolationLevel

from bench.contenders import ALL, LITERAL, OURS, OURS_2, UNBATCHED, Contender
from bench.data import Dataset
from bench.foreground import Load
from bench.rig import Rig, Turn
from bench.samples import Sample
from bench.tables import ACTIVITY, FAVORITES, Tables

T = TypeVar("T")

FEWEST, FEW, MANY, MOST = "fewest rows", "few rows", "many rows", "most rows"
NOBODY = "nobody"
HELP, NOTHING = "--help", "run of nothing"
"""What stands in the place of a contender's name where always the same one is at work, or none."""

SMALL = ((50, 0), (200, 0), (1000, 0), (20, 10), (50, 20))
"""Batch sizes that might suit busy hours, with the pause between batches in milliseconds."""

SLOW_EVERY = 5
"""Contenders that no goal is about take part in one round of so many."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: `scale` is a factor on the rows of the full measurement, which never are less than 5000."""

    scale: float
    rounds: int
    chance: Random

    def rows(self, full: int) -> int:
        """A number of rows, so many where the scale is 1."""
        return max(round(full * self.scale), 5000)

    def turns(self, always: Sequence[T], sometimes: Sequence[T] = ()) -> Iterator[tuple[int, T]]:
        """The number of each round with each entry."""
        for number in range(1, self.rounds + 1):
            entries = [*always, *(sometimes if number % SLOW_EVERY == 1 else ())]
            self.chance.shuffle(entries)
            for entry in entries:
                yield number, entry


Measure = Callable[[Rig, Extent], Iterator[Sample]]


def activity(rig: Rig, extent: Extent) -> Iterator[Sample]:
    """Sessions with their views and events, by every contender."""
    data = _halves(ACTIVITY, extent.rows(110_000))
    yield from _throughput("activity", rig, extent, data, (OURS, OURS_2, UNBATCHED))


def favorites(rig: Rig, extent: Extent) -> Iterator[Sample]:
    """Favorites, by every contender."""
    data = _halves(FAVORITES, extent.rows(1_000_000))
    yield from _throughput("favorites", rig, extent, data, (OURS, OURS_2, UNBATCHED, LITERAL))


def snapshot(rig: Rig, extent: Extent) -> Iterator[Sample]:
    """Favorites while an old snapshot keeps every dead row and index entry; fewer rows for the literal loop."""
    large = _halves(FAVORITES, extent.rows(1_000_000))
    small = _halves(FAVORITES, extent.rows(125_000))
    for number, (contender, data) in extent.turns([(OURS, large), (LITERAL, small)]):
        turn = rig.turn(contender, data, beside=_old_snapshot)
        took = [end - begin for begin, end in pairwise(turn.used.ended)][:-1]  # the last one is not full
        tenth = max(1, len(took) // 10)
        first, last = fmean(took[:tenth]), fmean(took[-tenth:])
        tenths = {"first_tenth_ms": first * 1000, "last_tenth_ms": last * 1000, "late_over_early": last / first}
        yield Sample(
            "snapshot", contender.name, data.expired_rows, number, _values(turn, data) | tenths, _twentieths(took)
        )


def growth(rig: Rig, extent: Extent) -> Iterator[Sample]:
    """Time for each favorite and memory, from few expired ones to many."""
    sizes = {FEWEST: 10_000, FEW: 50_000, MANY: 400_000, MOST: 3_200_000}
    olds = {name: extent.rows(expired) * 5 // 4 for name, expired in sizes.items()}
    sets = {name: Dataset(FAVORITES, old, old * 11 // 10) for name, old in olds.items()}
    for number, (name, data) in extent.turns(list(sets.items())):
        turn = rig.turn(OURS, data)
        first, *_, last = turn.used.ended
        # Without the first batch, since its time has connecting in it, which would flatter the many rows.
        each = (last - first) / (data.expired_rows - FAVORITES.batch_size)
        yield Sample("growth", name, data.expired_rows, number, _values(turn, data) | {"us_per_row": each * 1e6})
    for data in sets.values():
        rig.forget(data)


def foreground(rig: Rig, extent: Extent) -> Iterator[Sample]:
    """What others notice: the latency of 400 transactions a second on the tables that a run deletes from."""
    data = _halves(ACTIVITY, extent.rows(50_000))
    small = [(_settings(size, pause), OURS, size, pause) for size, pause in SMALL]
    contenders = [(each.name, each, data.tables.batch_size, 0) for each in (OURS, OURS_2, LITERAL, UNBATCHED)]
    for number, (name, contender, size, pause) in extent.turns([(NOBODY, None, 0, 0), *contenders, *small]):
        load = Load(rig.binaries, first=data.old + 1, last=data.total)
        if contender is None:
            with rig.copy(data), load(rig.server.dsn("turn")):
                began = time.time() + 1
                time.sleep(max(2.0, 8.0 * min(1.0, extent.scale)))
            yield Sample("foreground", name, 0, number, load.latencies(began, time.time()))
            continue
        turn = rig.turn(contender, data, batch_size=size, pause_ms=pause, beside=load)
        latencies = load.latencies(turn.used.began_at, turn.used.began_at + turn.used.seconds)
        yield Sample("foreground", name, data.expired_rows, number, _values(turn, data) | latencies)


def start(rig: Rig, extent: Extent) -> Iterator[Sample]:
    """Seconds until the command has said its help, or that nothing is expired."""
    data = _halves(FAVORITES, 1000)
    more = replace(extent, rounds=extent.rounds * 3)
    with rig.copy(data) as admin:
        admin.execute(f"DELETE FROM {FAVORITES.root} WHERE id IN ({FAVORITES.expired_ids})".encode())
        environment = {**os.environ, "ConnectionStrings__Favorites": rig.server.dsn("turn")}
        commands = [(HELP, ["--help"]), (NOTHING, ["run", FAVORITES.job])]
        for number, (name, words) in more.turns(commands):
            began = time.perf_counter()
            command = [sys.executable, "-m", "pgretention", *words]
            subprocess.run(command, env=environment, capture_output=True, check=True)
            yield Sample("start", name, 0, number, {"seconds": time.perf_counter() - began})


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {measure.__name__: measure for measure in (activity, favorites, snapshot, growth, foreground, start)}
)


def _settings(size: int, pause_ms: int) -> str:
    return f"{OURS.name}, BatchSize {size}" + (f", BatchPause {pause_ms}ms" if pause_ms else "")


def _halves(tables: Tables, old: int) -> Dataset:
    """As many young rows as old ones."""
    return Dataset(tables, old, 2 * old)


def _throughput(name: str, rig: Rig, extent: Extent, data: Dataset, always: Sequence[Contender]) -> Iterator[Sample]:
    sometimes = [contender for contender in ALL if contender not in always]
    for number, contender in extent.turns(always, sometimes):
        turn = rig.turn(contender, data)
        yield Sample(name, contender.name, data.expired_rows, number, _values(turn, data))


def _values(turn: Turn, data: Dataset) -> dict[str, float]:
    return {
        "seconds": turn.used.seconds,
        "rows_per_s": data.expired_rows / turn.used.seconds,
        "wal_bytes_per_row": turn.wal_bytes / data.expired_rows,
        "cpu_s": turn.used.cpu_seconds,
        "peak_rss_mb": turn.used.peak_rss / 1e6,
    }


def _twentieths(took: Sequence[float]) -> list[float]:
    size = max(1, len(took) // 20)
    return [fmean(took[place : place + size]) for place in range(0, len(took), size)]


@contextmanager
def _old_snapshot(dsn: str) -> Generator[None]:
    with psycopg.connect(dsn) as reader:
        reader.isolation_level = IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT 1")
        yield
