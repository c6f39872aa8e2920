"""The tour: a server, data, a plan, two real runs under the least privileges, and the proof that they did right."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import TextIO

from pgretention import app
from pgretention.app import Assignment
from pgretention.clock import SystemClock
from pgretention.demo import data, proof, stage
from pgretention.demo.binaries import Binaries
from pgretention.demo.data import Amount
from pgretention.demo.proof import Proof
from pgretention.demo.screen import Screen, screen_for
from pgretention.report import Outcome, RunReport
from pgretention.stop import Stop

Run = Callable[[Assignment], RunReport]

_CLOCK = SystemClock()


def run_once(assignment: Assignment) -> RunReport:
    """One run as the command line does it, without its log and its progress bar."""
    return app.run(assignment, sinks=(), stop=Stop())


def tour(out: TextIO, *, run: Run = run_once, amount: Amount = data.FULL, binaries: Binaries | None = None) -> bool:
    """Show on `out` what both jobs do to a throw-away database; True when both completed and every check holds.

    `run` makes one run. SIGINT and SIGTERM end the tour quietly, with False; nothing is left behind, not even by
    SIGKILL. For the main thread only, which is where signals arrive. Raises ThrowawayServerError where no PostgreSQL
    can be started.
    """
    screen = screen_for(out)
    began = _CLOCK.monotonic()
    try:
        with _sigterm_as_sigint(), ExitStack() as stack:
            server, owner = stack.enter_context(stage.opened(screen, amount, binaries))
            with stage.timed(screen, "Copying every row, to compare with afterwards"):
                proof.remember(owner)
            assignments = stage.hired(screen, server, owner)
            for assignment in assignments:
                _show_plan(screen, assignment)
            reports = _run_both(screen, assignments, run)
            screen.part("The proof")
            with screen.busy("Comparing what is left with the copy"):
                proven = proof.prove(owner, *reports, role=stage.ROLE)
            _show_proof(screen, proven)
    except KeyboardInterrupt:
        screen.say("Interrupted: the server ends with this, and so do its files.")
        return False
    screen.say(f"The server and its files are gone. It took {_CLOCK.monotonic() - began:.1f} s in all.")
    return proven.holds and all(report.outcome is Outcome.COMPLETED for report in reports)


@contextmanager
def _sigterm_as_sigint() -> Generator[None]:
    """While inside, SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that every `with` is left in order."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_plan(screen: Screen, assignment: Assignment) -> None:
    """What there is to delete and how; the claim of further batches, which differs in one condition, is left out."""
    job, preview = assignment.job, app.look(assignment)
    screen.part(f"The plan of {job.name}")
    screen.say(f"Expired before {preview.cutoff:%Y-%m-%d %H:%M:%S} UTC, in delete order:")
    counts = ((rows.table, f"{'' if rows.exact else 'about '}{rows.rows:,}") for rows in preview.rows)
    screen.table([("table", "rows"), *counts])
    first, *_, last = preview.statements.items()
    for title, statement in (first, last):
        screen.say("")
        screen.statement(f"-- {title}\n{statement};")


def _run_both(screen: Screen, assignments: tuple[Assignment, Assignment], run: Run) -> tuple[RunReport, RunReport]:
    screen.part("The runs")
    activity, favorites = (_run(screen, assignment, run) for assignment in assignments)
    rows = [("job", "batches", "rows", "seconds", "outcome")]
    for report in (activity, favorites):
        deleted, seconds = sum(report.deleted.values()), report.duration.total_seconds()
        rows.append((report.job, f"{report.batches:,}", f"{deleted:,}", f"{seconds:.1f}", report.outcome))
    screen.table(rows)
    for report in (activity, favorites):
        if report.error is not None:
            screen.say(f"{report.job}: {report.error.message}")
    return activity, favorites


def _run(screen: Screen, assignment: Assignment, run: Run) -> RunReport:
    with screen.busy(f"Running {assignment.job.name}"):
        return run(assignment)


def _show_proof(screen: Screen, proven: Proof) -> None:
    heading = ("table", "before", "expired", "deleted", "after")
    rows = (
        (count.table, *(f"{number:,}" for number in (count.before, count.expired, count.deleted, count.after)))
        for count in proven.tables
    )
    screen.table([heading, *rows])
    screen.say("")
    screen.checks(proven.checks)
    failed = sum(not check.holds for check in proven.checks)
    total = len(proven.checks)
    screen.say("")
    screen.say(f"{failed} of {total} checks FAILED." if failed else f"All {total} checks hold.")
