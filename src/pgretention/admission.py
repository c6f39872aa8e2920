"""Whether a run that is due may begin: not while a check finds an error, and with the cutoff of the last run known.

The check takes place when the worker starts. A job in which it found an error is looked at again whenever it is due,
so that it goes on by itself once that is put right; so is one whose database could not be reached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from pgretention import app
from pgretention.app import Assignment
from pgretention.clock import uptime
from pgretention.course import Previous
from pgretention.errors import Fault, FaultKind
from pgretention.preflight import Finding, Severity
from pgretention.report import Fact, Outcome, RunFinished, RunReport
from pgretention.sinks import log_names, logs
from pgretention.stop import Stop


class Admission:
    """Runs one job for a worker. `clock` gives seconds of a clock that nobody can set."""

    def __init__(
        self, assignment: Assignment, observe: Callable[[Fact], None], stop: Stop, clock: Callable[[], float] = uptime
    ) -> None:
        self._assignment = assignment
        self._observe = observe
        self._stop = stop
        self._clock = clock
        self._first_look = threading.Thread(target=self.look, name=f"check of {assignment.job.name}", daemon=True)
        self._passed = False
        self._errors: list[Finding] = []
        self._last: tuple[datetime, float] | None = None

    def begin_to_look(self) -> None:
        """Check the job in a thread of its own, which the first run waits for."""
        self._first_look.start()

    def look(self) -> None:
        """Check the job and log what is found; where the database is away, the run will tell why."""
        job = self._assignment.job.name
        try:
            findings = app.inspect(self._assignment, self._given_up)
        except Fault as fault:
            if fault.kind is not FaultKind.CONNECTION and not self._stop.requested:
                logs.say(log_names.WARNING, "check failed", job=job, kind=fault.kind.value, error=str(fault))
            self._passed, self._errors = False, []
            return
        for finding in findings:
            line = log_names.FINDINGS[finding.severity]
            logs.say(line.level, line.event, job=job, **finding.as_json())
        self._errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        self._passed = not self._errors

    def run(self) -> RunReport:
        """Run the job, or refuse to while a check finds errors."""
        if self._first_look.is_alive():
            self._first_look.join()
        elif not self._passed:
            self.look()
        if self._errors:
            report = app.refusal(self._assignment.job, FaultKind.REFUSED, self._reasons())
            self._observe(RunFinished(report))
            return report
        began = self._clock()
        report = app.run_once(self._assignment, self._observe, self._stop, self._previous(began))
        if report.cutoff is not None and report.outcome is not Outcome.REFUSED:
            self._last = report.cutoff, began
        return report

    def _previous(self, now: float) -> Previous | None:
        if self._last is None:
            return None
        cutoff, began = self._last
        return Previous(cutoff, timedelta(seconds=now - began))

    def _reasons(self) -> str:
        found = "; ".join(f"{finding.object}: {finding.why}" for finding in self._errors)
        return f"{found}; `pgretention check {self._assignment.job.name}` shows what puts it right"

    def _given_up(self) -> Fault | None:
        return Fault(FaultKind.CANCELLED, "stopped while connecting") if self._stop.requested else None
