"""What the page says of a job and of a run: texts and numbers, ready to be put into a template."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pgretention.job import Job
from pgretention.page.situation import Situation
from pgretention.page.verdict import Tone, Verdict, judge
from pgretention.page.words import ago, ahead, clock_time, count, exactly, roughly
from pgretention.policy import Equals, Policy
from pgretention.report import Backlog, Outcome, RunError
from pgretention.sinks.records import KEYS, RunRecord, backlog_as_json

_KEYS = 3


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a card: `text` is what counts, `more` what explains it, `mark` whether it is bad."""

    name: str
    text: str
    more: str = ""
    mark: bool = False


@dataclass(frozen=True, slots=True)
class Card:
    """A job on the overview and at the head of its own pages, with the number of findings about its database."""

    name: str
    deletes: str
    verdict: Verdict
    facts: tuple[Fact, ...]
    last: RunRecord | None
    running: RunRecord | None
    findings: int


def card(situation: Situation) -> Card:
    """A job as it stands."""
    history, verdict = situation.history, judge(situation)
    return Card(
        name=situation.job.name,
        deletes=in_words(situation.job.policy),
        verdict=verdict,
        facts=tuple(_facts(situation, verdict)),
        last=history.last,
        running=history.running,
        findings=len(situation.survey.findings) if situation.survey else 0,
    )


def _facts(situation: Situation, verdict: Verdict) -> Iterator[Fact]:
    if situation.here:
        yield from _facts_here(situation, verdict)
    yield Fact("Database", situation.database)


def _facts_here(situation: Situation, verdict: Verdict) -> Iterator[Fact]:
    history, now = situation.history, situation.now
    yield _next(situation)
    last = history.last
    if last is None:
        yield Fact("Last run", "none yet", "since this worker started")
    else:
        yield Fact("Last run", outcome_words(last), f"{ago(last.ended or last.began, now)}, {what_it_did(last)}")
    measured = situation.measured
    if measured is None:
        yield Fact("Backlog", "not known yet", situation.unseen or "")
        return
    failed = f"; to look again failed: {situation.unseen}" if situation.unseen else ""
    yield Fact("Backlog", backlog_words(measured.backlog), f"expired as of {ago(measured.at, now)}{failed}")
    yield _freshness(situation)
    yield _drained(situation, verdict)


def _next(situation: Situation) -> Fact:
    due, zone = situation.history.due, situation.job.schedule.zone
    if situation.stopping or due is None:
        return Fact("Next run", "not planned", "the worker is stopping" if situation.stopping else "")
    if situation.history.running and due <= situation.now:
        return Fact("Next run", "after this one", "as the schedule says")
    told = f"{clock_time(due, zone)} {zone}"
    if zone != "UTC":
        told += f" ({clock_time(due)} UTC)"
    return Fact("Next run", ahead(due, situation.now), told)


def _freshness(situation: Situation) -> Fact:
    promised = f"at most {exactly(situation.job.promise)} are promised"
    overdue = situation.overdue
    if overdue is None:
        return Fact("Oldest expired row", "not known", f"looking for it took too long; {promised}")
    if not overdue:
        return Fact("Oldest expired row", "none", promised)
    return Fact("Oldest expired row", f"{roughly(overdue)} overdue", promised, mark=situation.behind)


def _drained(situation: Situation, verdict: Verdict) -> Fact:
    measured = situation.measured
    if verdict.needs_somebody and verdict.word != "Behind":
        return Fact("Drained", "not known", f"as long as it is {verdict.word.lower()}")
    if measured is not None and measured.backlog.exact and not measured.backlog.rows:
        return Fact("Drained", "yes", "nothing expired is left")
    if situation.runs_left is not None:
        runs = count(situation.runs_left, "more run")
        return Fact("Drained", f"after about {runs}", "like the last one, with what expires meanwhile")
    if situation.draining is False:
        return Fact("Drained", "never at this pace", "the backlog did not fall between the last two runs", mark=True)
    last = situation.history.last
    if last is not None and last.backlog_after is not None and not last.backlog_after.rows:
        return Fact("Drained", "by the next run", "the last one left nothing")
    return Fact("Drained", "not known yet", "it takes two runs that leave something to tell the pace")


def outcome_words(run: RunRecord) -> str:
    """How a run ended, in a word or two."""
    return "running" if run.outcome is None else run.outcome.value.replace("_", " ")


def outcome_tone(run: RunRecord) -> Tone:
    """How bad that is by itself, whatever came after it."""
    match run.outcome:
        case None:
            return Tone.BUSY
        case Outcome.COMPLETED:
            return Tone.GOOD
        case Outcome.PARTIAL:
            return Tone.WARNING
        case Outcome.FAILED | Outcome.REFUSED:
            return Tone.BAD
        case Outcome.LIMIT_REACHED | Outcome.STOPPED | Outcome.SKIPPED:
            return Tone.IDLE


def what_it_did(run: RunRecord) -> str:
    """Rows, batches and time."""
    took = "" if run.seconds is None else f" in {roughly(timedelta(seconds=run.seconds))}"
    if not run.batches:
        return f"0 rows{took}"
    tables = f" of {count(len(run.deleted), 'table')}" if len(run.deleted) > 1 else ""
    return f"{count(run.rows, 'row')}{tables} in {count(run.batches, 'batch', 'batches')}{took}"


def backlog_words(backlog: Backlog | None) -> str:
    """`about 4,000 rows`."""
    if backlog is None:
        return "not known"
    return f"{'' if backlog.exact else 'about '}{count(backlog.rows, 'row')}"


def in_words(policy: Policy) -> str:
    """Which rows may go: `rows of app.tokens with no kept_for whose expires_at lies more than 30 days ago`."""
    guards = [
        f"{one.column} = '{one.value}'" if isinstance(one, Equals) else f"no {one.column}" for one in policy.guard
    ]
    expired = f"whose {policy.expiry} lies more than {exactly(policy.retention)} ago"
    return f"rows of {policy.root} with {' and '.join(guards)} {expired}"


def ending(run: RunRecord, job: Job) -> str:
    """What ended a run, in a sentence; while it is on, what will at the latest."""
    limits = job.limits
    if run.outcome is None:
        batches = "" if limits.max_batches is None else f" or {count(limits.max_batches, 'batch', 'batches')}"
        return f"It goes on until nothing is left, at most {exactly(limits.max_run_duration)}{batches}."
    told = {
        "completed": "It ended because nothing expired was left that nobody else had in use.",
        "limit_reached": f"It ended at {run.limit or 'a limit'}, with rows left for the next run.",
        "stopped": f"It ended because the lock was taken over by {run.holders}."
        if run.holders
        else "It ended because a stop was asked for, with rows left for the next run.",
        "skipped": f"It did nothing, since the lock was held{f' by {run.holders}' if run.holders else ''}.",
        "refused": "It was refused before it deleted anything.",
        "partial": "It deleted what it could and had to leave rows out.",
        "failed": "It ended with a failure; what is counted here stays deleted.",
    }
    return told[run.outcome.value]


def facts_of_run(run: RunRecord, job: Job, now: datetime) -> Iterator[Fact]:
    """When it was, how long it took, and what it met and left."""
    zone = job.schedule.zone
    yield Fact("Began", f"{clock_time(run.began, zone)} {zone}", ago(run.began, now))
    took = now - run.began if run.ended is None else run.ended - run.began
    most = f"at most {exactly(job.limits.max_run_duration)}"
    yield Fact("Going on for" if run.ended is None else "Took", roughly(took), most)
    done = "" if job.limits.max_batches is None else f"at most {job.limits.max_batches:,}"
    yield Fact("Batches", f"{run.batches:,}", done)
    if run.cutoff is not None:
        yield Fact("Cutoff", f"{clock_time(run.cutoff)} UTC", "what expired before may go")
    yield Fact("Backlog before", backlog_words(run.backlog_before), "")
    if run.ended is not None:
        yield Fact("Backlog after", backlog_words(run.backlog_after), "")
    if run.throttled:
        waits = (f"{reason.replace('_', ' ')} {roughly(timedelta(seconds=s))}" for reason, s in run.throttled.items())
        yield Fact("Waited", roughly(timedelta(seconds=sum(run.throttled.values()))), ", ".join(waits))
    yield Fact("Run", run.run_id, "as in the log and in traces")


def keys_words(error: RunError) -> str:
    """The keys of the rows in the way, the first of them."""
    more = len(error.keys) - _KEYS
    rest = f" and {count(more, 'other')}" if more > 0 else ""
    if len(error.keys) >= KEYS:
        rest += " or more; the log has them all"
    return ", ".join(error.keys[:_KEYS]) + rest


def as_json(situation: Situation) -> dict[str, Any]:
    """The same card for programs."""
    verdict, history, measured = judge(situation), situation.history, situation.measured
    job, due = situation.job, situation.history.due
    return {
        "name": job.name,
        "enabled": job.enabled,
        "here": situation.here,
        "database": situation.database,
        "state": {
            "word": verdict.word,
            "tone": verdict.tone,
            "needs_somebody": verdict.needs_somebody,
            "why": verdict.why,
            "act": verdict.act,
            "runbook": None if verdict.runbook is None else f"/runbooks/{verdict.runbook}",
        },
        "schedule": {"cron": job.schedule.text, "zone": job.schedule.zone, "words": job.schedule.words()},
        "next_run": None if due is None else due.isoformat(),
        "retention_seconds": job.policy.retention.total_seconds(),
        "promise_seconds": job.promise.total_seconds(),
        "backlog": None
        if measured is None
        else {**(backlog_as_json(measured.backlog) or {}), "measured_at": measured.at.isoformat()},
        "overdue_seconds": None if situation.overdue is None else situation.overdue.total_seconds(),
        "drain_eta_seconds": None if situation.eta is None else situation.eta.total_seconds(),
        "draining": situation.draining,
        "last_run": None if history.last is None else in_short(history.last),
        "running": None if history.running is None else in_short(history.running),
    }


def in_short(run: RunRecord) -> dict[str, Any]:
    """A run as JSON without its timeline and notes."""
    return {name: value for name, value in run.as_json().items() if name not in {"timeline", "notes"}}
