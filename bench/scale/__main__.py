"""`python -m bench.scale`: measure the costs, then say how far one table goes and what to do next."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path

from bench.rig import Rig
from bench.scale import costs
from bench.scale.ladder import RATES, first_that_keeps_up
from bench.scale.model import Costs, Server, days_to_drain, limits
from pgretention.demo.binaries import find_binaries

BACKLOG = 1e9
"""Sessions that are expired on the first day."""


def main(words: Sequence[str]) -> None:
    """Print the tables as Markdown."""
    options = _options(words)
    if options.costs:
        measured = Costs(**json.loads(options.costs.read_text()))
    else:
        with Rig.up(find_binaries()) as rig:
            measured = costs.measure(rig)
    if options.save:
        options.save.write_text(json.dumps(asdict(measured), indent=2) + "\n")
    server = Server(options.cores, options.wal * 1e6)
    sys.stdout.write("\n".join([*costs_table(measured), "", *limits_table(measured, server), ""]) + "\n")


def costs_table(measured: Costs) -> list[str]:
    """What was measured."""
    return [
        "| one expired session costs | |",
        "|---|---|",
        f"| rows | {measured.rows:.0f} |",
        f"| deleting, one connection | {measured.delete * 1e6:.0f} µs |",
        f"| vacuum | {measured.vacuum * 1e6:.0f} µs |",
        f"| replay on a standby | {measured.replay * 1e6:.0f} µs |",
        f"| WAL | {measured.wal:,.0f} bytes |",
        f"| a second connection adds | {measured.beside:.0%} |",
    ]


def limits_table(measured: Costs, server: Server) -> list[str]:
    """For each rate the smallest setup that keeps up, the limit that it would meet first, and a backlog of 10^9."""
    what = f"what keeps up ({server.cores} cores, {server.wal / 1e6:.0f} MB/s of WAL a server)"
    lines = [
        f"| expiries/s | rows/s | {what} | first limit | used | oldest | a backlog of 10⁹ is gone in |",
        "|---|---|---|---|---|---|---|",
    ]
    found = [(rate, *first_that_keeps_up(rate, measured, server)) for rate in RATES]
    for rate, setup, seen in found:
        days = days_to_drain(BACKLOG, rate, measured, server, setup)
        lines.append(
            f"| {rate:,.0f} | {rate * measured.rows:,.0f} | {setup.words} | {seen.binding}, {seen.most:,.0f}/s"
            f" | {rate / seen.most:.0%} | {seen.oldest / 3600:.1f} h | {days:,.0f} days |"
        )
    _, last, _ = found[-1]
    lines += ["", "| limit of the last setup, one server | expiries/s |", "|---|---|"]
    lines += [
        f"| {name} | {limit / last.shards:,.0f} |"
        for name, limit in limits(measured, server, last).items()
        if limit < inf
    ]
    return lines


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--costs", type=Path, help="a file with measured costs (default: measure, some minutes)")
    parser.add_argument("--save", type=Path, help="where to keep the costs")
    parser.add_argument("--cores", type=int, default=8, help="cores for it on each server (default 8)")
    parser.add_argument("--wal", type=float, default=100, help="MB of WAL a second (default 100)")
    return parser.parse_args(words)


if __name__ == "__main__":
    main(sys.argv[1:])
