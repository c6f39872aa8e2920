"""`python -m tests.torture`: what nobody should do to pgretention, for some minutes, and whether it minded."""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from traceback import format_exception
from types import FrameType
from typing import NoReturn

from tests.databases import Database
from tests.support.command import commands_on
from tests.torture import bystander, conduct, evidence, finale, summary
from tests.torture.accounts import Run, runs
from tests.torture.application import Client, Tally
from tests.torture.faults import Faults, Upheavals
from tests.torture.replicas import Company, Replica, Resident
from tests.torture.stage import application_dsn, connected, stage
from tests.torture.watcher import Watcher
from tests.torture.wires import Wires

INTERRUPTED = 130

CLIENTS, REPLICAS, RESIDENTS = 5, 4, 2


def main(words: Sequence[str]) -> int:
    """0 when everything held, 1 with a line for each finding otherwise, 130 when it was interrupted."""
    options = _options(words)
    seed = options.seed or str(random.SystemRandom().randrange(10**6))
    summary.say(f"torture for {options.minutes:g} minutes, seed {seed}")
    for number in signal.SIGINT, signal.SIGTERM:  # a shell starts what runs in the background with SIGINT ignored
        signal.signal(number, _give_up)
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # the application's transactions end with its connections
    broken: list[str] = []
    threading.excepthook = lambda crash: broken.append("".join(format_exception(crash.exc_value)))
    folder = Path(tempfile.mkdtemp(prefix="pgretention-torture-"))
    try:
        with stage(options.server) as database:
            summary.say(f"PostgreSQL {database.server.version}")
            findings = Torture(database, seed, folder, options.minutes * 60).findings()
    except KeyboardInterrupt:
        shutil.rmtree(folder)
        summary.say("Interrupted: nothing is proven.")
        return INTERRUPTED
    findings += [f"the torture itself: {text}" for text in broken]
    findings = list(dict.fromkeys(findings))  # some show while it goes on and at the end again
    summary.show(findings, folder)
    return 1 if findings else 0


class Torture:
    """All that happens at once, in the order in which it begins and ends."""

    def __init__(self, database: Database, seed: str, folder: Path, seconds: float) -> None:
        self._database = database
        self._seed = seed
        self._seconds = seconds
        self._folder = folder
        self._tally = Tally()

    def findings(self) -> list[str]:
        """Do it all, print the summary, and answer what should not have been."""
        before = bystander.place(self._database)
        with ExitStack() as opened:
            wires = Wires(self._database)
            opened.callback(wires.close)
            command = opened.enter_context(commands_on(self._database))
            company = Company(command, wires, self._tally, self._folder)
            found = self._rage(company, wires)
            last = finale.last_runs(company)
            after = bystander.look(self._database)
            with connected(self._database) as admin:
                found += finale.leftovers(admin)
                for ended in last:
                    found += finale.drained(admin, ended)
                found += evidence.rows(admin, evidence.AT_THE_END)
                found += conduct.sums(_all_runs(company), evidence.deeds(admin))
                summary.tell(admin, self._tally, _all_runs(company))
        found += bystander.changes(before, after, crashes=sum(self._tally.of("crashes").values()))
        for ended in company.ended:
            found += conduct.manners(ended, runs(ended), command.hidden)
        return found + company.hung

    def _rage(self, company: Company, wires: Wires) -> list[str]:
        over, gone_home = threading.Event(), threading.Event()
        dsn = application_dsn(self._database)
        clients = [Client(dsn, f"{self._seed}/client {n}", gone_home, self._tally) for n in range(CLIENTS)]
        watcher = Watcher(self._database, self._seed, gone_home, self._tally)
        replicas = [Replica(company, f"{self._seed}/replica {n}", over) for n in range(REPLICAS)]
        replicas += [Resident(company, f"{self._seed}/resident {n}", over) for n in range(RESIDENTS)]
        faults = [
            kind(self._database, company, wires, self._tally, f"{self._seed}/{kind.__name__}")
            for kind in (Faults, Upheavals)
        ]
        with ExitStack() as ending:
            for each in *clients, watcher:
                _begin(ending, each, gone_home)
            for replica in replicas:
                _begin(ending, replica, over)
            for fault in faults:
                ending.callback(fault.end)
                fault.start()
            time.sleep(self._seconds)
        (self._folder / "faults.txt").write_text("\n".join(sorted(text for fault in faults for text in fault.diary)))
        return [*watcher.findings, *conduct.complaints(error for client in clients for error in client.unexpected)]


def _begin(ending: ExitStack, thread: threading.Thread, over: threading.Event) -> None:
    """Start a thread that at the end is told that it is over, and awaited, wherever an interruption comes."""
    ending.callback(_end, thread, over)
    thread.start()


def _end(thread: threading.Thread, over: threading.Event) -> None:
    over.set()
    if thread.ident is not None:
        thread.join()


def _all_runs(company: Company) -> list[Run]:
    return [run for ended in company.ended for run in runs(ended)]


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long, without the end (default 5)")
    parser.add_argument("--seed", default="", help="repeats the decisions of a run (default: another one each time)")
    parser.add_argument("--server", type=int, help="major version of PostgreSQL (default: the preferred one here)")
    return parser.parse_args(words)


def _give_up(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
