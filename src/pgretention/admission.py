"""Whether a run that is due may begin: after a check without an error, and with the cutoff of the last run known.

The check takes place when the worker starts, on a connection of its own. Where it found an error, or could not take
place, it is part of the next run, on the connection and under the lock of that run. What keeps it from taking place
then is a fault of the run, which is tried again or ends as any other. So nothing is deleted unchecked, and a job goes
on by itself once what was wrong is put right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from pgretention import app, preflight
from pgretention.app import Assignment
from pgretention.clock import SystemClock, uptime
from pgretention.course import Conditions, Previous
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.preflight import Finding, Severity
from pgretention.report import Fact, RunReport, RunStarted
from pgretention.session import Session, connect
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
        self._told: tuple[Finding, ...] = ()
        self._last: tuple[datetime, float] | None = None

    def begin_to_look(self) -> None:
        """Check the job in a thread of its own, which the first run waits for."""
        self._first_look.start()

    def look(self) -> None:
        """Check the job and log what is found; where nobody can look, the first run does."""
        job = self._assignment.job
        try:
            with (
                connect(self._assignment.dsn, preflight.application_name(job), given_up=self._stop.given_up) as session,
                self._stop.watching(session),
            ):
                self._admit(session)
        except Refusal:
            pass  # it is logged, and the next run looks again
        except Fault as fault:
            if fault.kind is not FaultKind.CONNECTION and not self._stop.requested:
                logs.say(log_names.WARNING, "check failed", job=job.name, kind=fault.kind.value, error=str(fault))

    def run(self) -> RunReport:
        """Run the job, which refuses while a check finds errors."""
        if self._first_look.is_alive():
            self._first_look.join()
        began = self._clock()

        def observe(fact: Fact) -> None:
            if isinstance(fact, RunStarted):  # no brake holds its cutoff
                self._last = fact.cutoff, began
            self._observe(fact)

        conditions = Conditions(self._previous(began), None if self._passed else self._admit)
        return app.run_once(self._assignment, observe, self._stop, conditions)

    def _admit(self, session: Session) -> None:
        """Raise Refusal where a check finds an error; log what it finds and did not find before."""
        job = self._assignment.job
        findings = preflight.findings(job, session, SystemClock())
        for finding in findings:
            if finding in self._told:
                continue
            line = log_names.FINDINGS[finding.severity]
            logs.say(line.level, line.event, job=job.name, **finding.as_json())
        self._told = findings
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        if errors:
            found = "; ".join(f"{finding.object}: {finding.why}" for finding in errors)
            raise Refusal([f"{found}; `pgretention check {job.name}` shows what puts it right"])
        self._passed = True

    def _previous(self, now: float) -> Previous | None:
        if self._last is None:
            return None
        cutoff, began = self._last
        return Previous(cutoff, timedelta(seconds=now - began))
