"""What a situation means: a word, how bad it is, why, what to do, and the runbook that goes on from there.

Decided from the worst down; the first that applies is the verdict. No clock, no request, no words of HTML in here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import takewhile

from pgretention.errors import FaultKind
from pgretention.page.situation import Situation
from pgretention.page.words import ago, clock_time, count, exactly, roughly
from pgretention.preflight import Finding, Severity
from pgretention.report import Limit, MissReason, Outcome, RunError
from pgretention.sinks.records import RunRecord
from pgretention.sinks.summary import remedy

_LONG = timedelta(hours=26)
"""A night and some time: for longer than that no run of another worker is at work without an end."""

_RAISED = "P0001"
"""The SQLSTATE of an error that a function raises without one of its own (appendix A)."""


class Tone(StrEnum):
    """How bad it is, and so the colour and the mark of it; `bad` and `warning` need a person."""

    GOOD = "good"
    BUSY = "busy"
    IDLE = "idle"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`word` is the state in a word, `why` and `act` are sentences, `runbook` is the name of a page of runbooks."""

    word: str
    tone: Tone
    why: str
    act: str = ""
    runbook: str | None = None

    @property
    def needs_somebody(self) -> bool:
        """Whether this gets no better by itself."""
        return self.tone in {Tone.WARNING, Tone.BAD}


def judge(situation: Situation) -> Verdict:
    """The verdict on a job."""
    return next(verdict for look in _LOOKS if (verdict := look(situation)))


def _off(situation: Situation) -> Verdict | None:
    if situation.here:
        return None
    if situation.job.enabled:
        return Verdict("Elsewhere", Tone.IDLE, "This worker was started for other jobs and leaves this one alone.")
    why = "The job is switched off: nothing is deleted, and what expires piles up."
    act = f"To run it, set {situation.switch} to true and restart the worker."
    return Verdict("Off", Tone.IDLE, why, act, "hold-a-job")


def _lost(situation: Situation) -> Verdict | None:
    if not situation.lost:
        return None
    return Verdict(
        "Dead",
        Tone.BAD,
        "The job has lost its thread, so it will not run again in this process.",
        "Restart the worker, and report the line `run crashed` of its log, or what stands before its end.",
        "no-run",
    )


def _running(situation: Situation) -> Verdict | None:
    running = situation.history.running
    if running is None:
        return None
    told = f"A run began {ago(running.began, situation.now)} and has deleted {count(running.rows, 'row')}"
    ending = " It ends after the batch in flight, since the worker was told to stop." if situation.stopping else ""
    return Verdict("Running", Tone.BUSY, f"{told} in {count(running.batches, 'batch', 'batches')} so far.{ending}")


def _stopping(situation: Situation) -> Verdict | None:
    if not situation.stopping:
        return None
    return Verdict("Stopping", Tone.IDLE, "The worker was told to stop; nothing runs until it is started again.")


def _unreachable(situation: Situation) -> Verdict | None:
    away = situation.away
    if away is None:
        return None
    since = "yet" if away.since is None else f"for {roughly(away.since)}"
    why = _sentence(f"Its database was not seen {since}{f': {away.why}' if away.why else ''}")
    act = (
        "See that the server can be reached and lets this user into this database; no restart of the worker is needed."
    )
    return Verdict("Unreachable", Tone.BAD, why, f"{act}{_again(situation)}", "no-run")


def _refused(situation: Situation) -> Verdict | None:
    last = situation.history.last
    if last is None or last.outcome is not Outcome.REFUSED:
        return None
    why = last.error.message if last.error else "the database or a brake does not let it begin"
    act = "Put right what the findings say; the job looks again when it is due."
    if not _found(situation, Severity.ERROR):
        compare = f"Compare it with `pgretention plan {situation.job.name}`: put right what is wrong, and restart the"
        act = f"{compare} worker if that is a setting; or let one run pass by hand."
    if _put_right_since(situation, last, why):
        act = "It seems to be put right since: the next run will show."
    why = f"{_sentence(f'The last run was refused: {why}')}{_since(situation)}"
    return Verdict("Refused", Tone.BAD, why, act, "run-refused")


def _put_right_since(situation: Situation, last: RunRecord, why: str) -> bool:
    """Whether the findings that a run was refused for were gone at a later look."""
    looked = situation.survey is not None and situation.survey.at > last.began
    return looked and "`pgretention check" in why and not _found(situation, Severity.ERROR)


def _failing(situation: Situation) -> Verdict | None:
    last = situation.history.last
    if last is None or last.outcome is not Outcome.FAILED:
        return None
    error = last.error
    why = _sentence(f"The last run failed after {count(last.rows, 'row')}: {_said(error)}")
    act = _sentence(remedy(error.kind if error else FaultKind.INTERNAL))
    if error and error.sqlstate == _RAISED:
        act = _about_triggers(situation)
    return Verdict("Failing", Tone.BAD, f"{why}{_since(situation)}", f"{act}{_again(situation)}", "run-fails")


def _incomplete(situation: Situation) -> Verdict | None:
    last = situation.history.last
    if last is None or last.outcome is not Outcome.PARTIAL:
        return None
    why = f"{_sentence(f'The last run had to leave rows out: {_said(last.error)}')}{_since(situation)}"
    act = (
        "Let the owner of the table that refers to them decide: the findings name it, the run has the keys. Everything "
        "else goes meanwhile."
    )
    return Verdict("Incomplete", Tone.WARNING, why, act, "run-fails")


def _unsound(situation: Situation) -> Verdict | None:
    errors = _found(situation, Severity.ERROR)
    if not errors:
        return None
    more = f", and {count(len(errors) - 1, 'error')} more" if len(errors) > 1 else ""
    why = _sentence(f"The last look at its database found an error: {errors[0].object}: {errors[0].why}{more}")
    act = (
        "Put right what the findings say before the job is due: a worker that starts now would refuse it, one that was "
        "up before tries, and may be slow or fail."
    )
    return Verdict("Unsound", Tone.WARNING, why, act, "run-refused")


def _blocked(situation: Situation) -> Verdict | None:
    last = situation.history.last
    if last is None or last.outcome is not Outcome.SKIPPED:
        return None
    by_a_run = f"pgretention/{situation.job.name}/" in (last.holders or "")  # what a run is called
    holder = f" by {last.holders}" if last.holders else ""
    why = f"The last run found the lock held{holder}.{_since(situation)}"
    if not situation.behind and (by_a_run or last.holders is None):
        return None
    if by_a_run and situation.now - _alike(situation)[-1].began < _LONG:
        return Verdict("Elsewhere", Tone.BUSY, why, "The page of that worker says how it goes.")
    act = "Ask whoever that is, since it may be on purpose; end that session when nobody needs it."
    tone = Tone.BAD if situation.behind else Tone.WARNING
    return Verdict("Blocked", tone, f"{why} Nothing is deleted meanwhile.", act, "lock-not-released")


def _missed(situation: Situation) -> Verdict | None:
    missed = situation.history.missed
    if missed is None or missed.reason is not MissReason.LATE:
        return None
    last = clock_time(missed.last_due)
    why = f"{count(missed.count, 'run')} did not take place, the last one due at {last} UTC: it was too late to begin."
    act = "See what kept the worker or its machine asleep; the next run takes what was left."
    return Verdict("Missed", Tone.WARNING, why, act, "no-run")


def _behind(situation: Situation) -> Verdict | None:
    if situation.overdue is None and situation.draining is False and situation.history.last:
        why = f"How old the oldest expired row is could not be told in time. {_grown(situation)}"
        return Verdict("Behind", Tone.WARNING, why, _raise(situation, situation.history.last), "backlog-grows")
    if not situation.behind or situation.overdue is None:
        return None
    overdue, promise = roughly(situation.overdue), exactly(situation.job.promise)
    why = f"The oldest row is {overdue} overdue, and {promise} at most are promised."
    if situation.runs_left is not None:
        runs = count(situation.runs_left, "more run")
        return Verdict("Draining", Tone.BUSY, f"{why} The backlog falls: about {runs} like the last one will empty it.")
    last = situation.history.last
    if last is None:
        return Verdict("Behind", Tone.WARNING, why, _first_run(situation), "backlog-grows")
    if last.backlog_after is not None and last.backlog_after.exact and not last.backlog_after.rows:
        act = f"The last run left nothing: these came later, or no run has come for long. {_when(situation)}"
        return Verdict("Behind", Tone.WARNING, why, f"{act} Should it be urgent, run the job by hand.", "backlog-grows")
    if last.outcome is Outcome.STOPPED:
        act = "The last run was stopped before it was done. The next one goes on from there, unless it is stopped too."
        return Verdict("Behind", Tone.WARNING, why, act, "backlog-grows")
    if situation.draining is None:
        act = f"After one more run it can be told whether the backlog falls. {_raise(situation, last)}"
        return Verdict("Behind", Tone.WARNING, why, act, "backlog-grows")
    return Verdict("Behind", Tone.WARNING, f"{why} {_grown(situation)}", _raise(situation, last), "backlog-grows")


def _first_run(situation: Situation) -> str:
    return f"Nothing has run since this worker started. {_when(situation)} Should it be urgent, run the job by hand."


def _grown(situation: Situation) -> str:
    grown = situation.grown
    return f"The backlog grew by {count(grown, 'row')}." if grown > 0 else "The backlog does not fall."


def _raise(situation: Situation, last: RunRecord) -> str:
    limits = situation.job.limits
    if last.outcome is Outcome.LIMIT_REACHED and last.limit is Limit.BATCHES:
        now = f"{limits.max_batches:,} batches of {limits.batch_size:,}"
        return f"Runs end at MaxBatchesPerRun, after {now}: raise it or BatchSize, and restart the worker."
    if last.outcome is Outcome.LIMIT_REACHED:
        most = exactly(limits.max_run_duration)
        return f"Runs end at MaxRunDuration, after {most}: raise it or Workers, or see why batches are slow."
    return "See what holds the rows: runs end without having deleted everything that is expired."


def _waiting(situation: Situation) -> Verdict | None:
    if situation.history.runs:
        return None
    return Verdict("Waiting", Tone.IDLE, f"Nothing has run since this worker started. {_when(situation)}")


def _fine(situation: Situation) -> Verdict:
    last = situation.history.runs[-1]
    warnings = len(_found(situation, Severity.WARNING))
    noted = f" Among the findings {'is' if warnings == 1 else 'are'} {count(warnings, 'warning')}." if warnings else ""
    missed = situation.history.missed
    left_out = (
        f" {count(missed.count, 'run')} came due while it was still on, and did not take place." if missed else ""
    )
    return Verdict("Fine", Tone.GOOD, f"{_how_it_ended(last)}{left_out}{noted}")


def _how_it_ended(last: RunRecord) -> str:
    match last.outcome:
        case Outcome.SKIPPED:
            return "Another run holds the lock and does the work."
        case Outcome.LIMIT_REACHED:
            return f"The last run ended at {last.limit or 'a limit'}; the next one goes on from there."
        case Outcome.STOPPED:
            return "The last run was stopped; the next one goes on from there."
        case _ if last.backlog_after is None:
            return "The last run completed."
        case _ if last.backlog_after.rows:
            return "The last run took all that nobody else had in use."
        case _:
            return "Nothing expired was left by the last run."


def _when(situation: Situation) -> str:
    due = situation.history.due
    return f"It is due at {clock_time(due)} UTC." if due else ""


def _said(error: RunError | None) -> str:
    """The message of an error, with what it can be looked up by."""
    if error is None:
        return "see the log"
    codes = {"SQLSTATE": error.sqlstate, "constraint": error.constraint}
    known = ", ".join(f"{name} {code}" for name, code in codes.items() if code)
    return f"{error.message} ({known})" if known else error.message


def _about_triggers(situation: Situation) -> str:
    """What to do when something that runs in the server has raised an error of its own."""
    found = situation.survey.findings if situation.survey else ()
    suspects = [finding.object for finding in found if finding.code == "trigger"]
    named = f", probably {' or '.join(suspects)}" if suspects else ""
    return f"A trigger raised that{named}: the findings have its function, the log of the server has its words."


def _since(situation: Situation) -> str:
    """Since when runs have ended like the last one, when it was not the only one."""
    alike = _alike(situation)
    first = alike[-1].ended
    if len(alike) == 1 or first is None:
        return ""
    return f" So it has been for {len(alike):,} runs, since {clock_time(first)} UTC."


def _alike(situation: Situation) -> list[RunRecord]:
    """The latest runs that ended like the last one, itself first."""
    runs = situation.history.runs
    return list(takewhile(lambda run: run.outcome is runs[-1].outcome, reversed(runs)))


def _again(situation: Situation) -> str:
    at = situation.history.again
    return f" It tries again at {clock_time(at)} UTC." if at and at > situation.now else ""


def _found(situation: Situation, severity: Severity) -> list[Finding]:
    found = situation.survey.findings if situation.survey else ()
    return [finding for finding in found if finding.severity is severity]


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


_LOOKS: tuple[Callable[[Situation], Verdict | None], ...] = (
    _off,
    _lost,
    _running,
    _stopping,
    _unreachable,
    _refused,
    _failing,
    _incomplete,
    _unsound,
    _blocked,
    _missed,
    _behind,
    _waiting,
    _fine,
)
