"""`python -m bench`: measure, print what was found and keep it as JSON; `python -m bench page` makes the page of it."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from random import Random, SystemRandom
from subprocess import CalledProcessError
from types import FrameType
from typing import NoReturn

from bench import machine, page
from bench.measures import MEASURES, Extent
from bench.rig import Rig, WrongRows
from bench.samples import Results, Sample
from pgretention.clock import SystemClock
from pgretention.demo.binaries import find_binaries
from pgretention.errors import ThrowawayServerError

FULL, QUICK = (1.0, 5), (0.04, 1)
"""Scale and rounds."""

INTERRUPTED = 130


def main(words: Sequence[str]) -> int:
    """0 when everything could be measured, 1 when somebody failed, deleted what he should not have, or left it."""
    options = _options(words)
    if options.command == "page":
        page.write(Results.read(options.results), options.page, *map(Results.read, options.before))
        return 0
    signal.signal(signal.SIGTERM, _give_up)
    try:
        results = _measure(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (WrongRows, CalledProcessError, ThrowawayServerError) as error:
        print(f"THIS MEASURES NOTHING, what is in {options.output} included: {error}", file=sys.stderr)
        return 1
    print("\n".join(["", page.conditions(results), page.goals(results), *page.tables(results)]))
    print(f"All samples are in {options.output}.")
    return 0


def _measure(options: argparse.Namespace) -> Results:
    clock = SystemClock()
    began = clock.monotonic()
    seed = options.seed if options.seed is not None else SystemRandom().randrange(10**6)
    extent = Extent(options.scale, options.rounds, Random(seed))
    with Rig.up(find_binaries(options.server)) as rig:
        about = {**machine.about(rig), "scale": extent.scale, "rounds": extent.rounds, "seed": seed}
        results = Results(about, [])
        for name in options.measures or MEASURES:
            for sample in MEASURES[name](rig, extent):
                results.samples.append(sample)
                results.write(options.output)
                print(f"{timedelta(seconds=round(clock.monotonic() - began))}  {_line(sample)}", flush=True)
    return results


def _line(sample: Sample) -> str:
    values = "  ".join(f"{name} {value:,.6g}" for name, value in asdict(sample)["values"].items())
    return f"{sample.measure} {sample.round}  {sample.contender:24} {values}"


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.set_defaults(command="measure")
    commands = parser.add_subparsers(metavar="[page]")
    parser.add_argument("--measure", dest="measures", action="append", choices=list(MEASURES), help="only this one")
    parser.add_argument("--quick", action="store_true", help=f"scale {QUICK[0]:g} and {QUICK[1]} round")
    parser.add_argument("--scale", type=float, help="a factor on the rows (default 1)")
    parser.add_argument("--rounds", type=int, help=f"how often each contender has its turn (default {FULL[1]})")
    parser.add_argument("--seed", type=int, help="repeats the order of the turns (default: another one each time)")
    parser.add_argument("--server", type=int, help="major version of PostgreSQL (default: the preferred one here)")
    parser.add_argument("--output", type=Path, default=Path("bench/results/latest.json"), help="default %(default)s")
    renew = commands.add_parser("page", help="write the page and its charts anew from a results file")
    renew.set_defaults(command="page")
    renew.add_argument("results", type=Path)
    renew.add_argument("before", type=Path, nargs="*", help="results of which only the goals are shown")
    renew.add_argument("--page", type=Path, default=Path("docs/performance.md"), help="default %(default)s")
    options = parser.parse_args(words)
    scale, rounds = QUICK if options.quick else FULL
    options.scale = options.scale or scale
    options.rounds = options.rounds or rounds
    return options


def _give_up(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
