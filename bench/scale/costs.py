"""What an expired session costs, measured on a throw-away server: deleting it, vacuuming after it, replaying it."""

from __future__ import annotations

import re
import time
from statistics import median

from bench import process
from bench.contenders import OURS, OURS_2, Task
from bench.data import Dataset
from bench.rig import Rig
from bench.scale.model import Costs
from bench.tables import ACTIVITY

ROUNDS = 3
DATA = Dataset(ACTIVITY, old=42_000, total=84_000)


def measure(rig: Rig) -> Costs:
    """Medians of ROUNDS turns, in seconds and bytes for each session."""
    one = [rig.turn(OURS, DATA) for _ in range(ROUNDS)]
    two = [rig.turn(OURS_2, DATA) for _ in range(ROUNDS)]
    alone, together = (median(turn.used.seconds for turn in turns) for turns in (one, two))
    return Costs(
        delete=alone / DATA.expired,
        vacuum=median(_vacuum(rig) for _ in range(ROUNDS)) / DATA.expired,
        replay=median(_replay(rig) for _ in range(ROUNDS)) / DATA.expired,
        wal=median(turn.wal_bytes for turn in one) / DATA.expired,
        rows=DATA.tables.rows_each,
        beside=min(1.0, alone / together - 1),
    )


def _vacuum(rig: Rig) -> float:
    """Seconds that VACUUM takes to make room of what was deleted, one table after the other."""
    with rig.copy(DATA) as admin:
        process.run(_task(rig))
        began = time.perf_counter()
        for table, _ in (*DATA.tables.children, (DATA.tables.root, "id")):
            admin.execute(f"VACUUM (INDEX_CLEANUP on, PARALLEL 0) {table}".encode())
        return time.perf_counter() - began


def _replay(rig: Rig) -> float:
    """Seconds that the deletions take to be replayed, by the process that does it on a standby too.

    A server that crashed replays its WAL from the last checkpoint on, and logs how long that took.
    """
    with rig.copy(DATA):
        process.run(_task(rig))
        rig.server.shut_down("immediate")
        rig.server.bring_up()
    log = (rig.server.folder / "postgres.log").read_text(errors="replace")
    (elapsed,) = re.findall(r"redo done at .* elapsed: ([0-9.]+) s", log)
    return float(elapsed)


def _task(rig: Rig) -> Task:
    return Task(OURS.path, OURS.workers, DATA.tables.job, rig.server.dsn("turn"), DATA.tables.batch_size)
