"""What the commands print for people: plain text, aligned, the same in a terminal and in a pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pgretention.config import EffectiveValue, format_duration
from pgretention.job import LARGEST_BATCH, Job
from pgretention.policy import Condition, Equals, IsNull, Policy
from pgretention.sinks.summary import printable

if TYPE_CHECKING:  # it is only looked at, and the module brings the database driver with it
    from pgretention.preflight import Finding
    from pgretention.preview import Preview
    from pgretention.rehearsal import Rehearsal, Rehearsed
    from pgretention.shape import Shape


def jobs_text(jobs: Iterable[Job], now: datetime) -> str:
    """Each job: whether it is on, its schedule as written and in words, its next run in its zone and in UTC."""
    blocks = []
    for job in jobs:
        due = job.schedule.next_after(now)
        local = due.astimezone(ZoneInfo(job.schedule.zone))
        blocks.append(
            "\n".join(
                [
                    f"{job.name}{'' if job.enabled else '  (switched off)'}",
                    f"  schedule  {job.schedule.text}  {job.schedule.words()}",
                    f"  next run  {_instant(local)} {job.schedule.zone}  =  {_instant(due)} UTC",
                    f"  deletes   {_expired(job.policy)} older than {format_duration(job.policy.retention)}",
                    f"  limits    {_limits(job)}",
                ]
            )
        )
    return "\n\n".join(blocks)


def config_text(file: Path | None, values: Sequence[EffectiveValue]) -> str:
    """The settings file that was read, and every setting in force with where it came from."""
    read = "no settings file; name one with --config or PGRETENTION_CONFIG" if file is None else f"settings file {file}"
    rows = table([("setting", "from", "value"), *((value.key, value.source, value.shown) for value in values)])
    return f"{read}\n\n{rows}"


def findings_text(job: str, findings: Sequence[Finding]) -> str:
    """What a check found: a line that counts, then each finding with its reason and what puts it right."""
    counts = Counter(finding.severity for finding in findings)
    told = ", ".join(f"{count} {severity}{'s' if count > 1 else ''}" for severity, count in counts.items())
    blocks = [f"{job}: {told or 'nothing found'}"]
    for finding in findings:
        lines = [f"{finding.severity.value.upper()}  {finding.object}", f"  {finding.why}"]
        lines += [f"    {line}" for line in finding.fix.splitlines()]
        blocks.append("\n".join(printable(line) for line in lines))
    return "\n\n".join(blocks)


def preview_text(preview: Preview) -> str:
    """What a run would do now: rows by table in delete order, limits, and the exact statements."""
    job, policy = preview.job, preview.job.policy
    order = [
        (f"{place}.", rows.table, f"{'' if rows.exact else 'about '}{rows.rows:,}")
        for place, rows in enumerate(preview.rows, start=1)
    ]
    lock = "none, several runs share the rows"
    if policy.lock is not None:
        scope = (
            "taken in every batch's transaction, since a pooler is in between"
            if preview.pooled
            else "one run at a time"
        )
        lock = f"{policy.lock}, {scope}"
    clock = "that instant" if preview.as_of else "the server's clock"
    when = f"at {preview.as_of.isoformat()} with the rows of now" if preview.as_of else "now"
    estimated = "" if all(rows.exact for rows in preview.rows) else "  (about: estimated, counting took too long)"
    statements = [
        f"-- {place}. {title}\n{statement};" for place, (title, statement) in enumerate(preview.statements.items(), 1)
    ]
    return "\n".join(
        [
            f"{job.name}: what a run would do {when}; this command deletes nothing",
            *([] if job.enabled else ["The job is switched off: a run would be refused."]),
            "",
            f"  expired   {_expired(policy)} before {preview.cutoff.isoformat()}",
            f"            ({clock} minus {format_duration(policy.retention)})",
            *([f"  spans     {preview.span[0]} to {preview.span[1]}"] if preview.span else []),
            f"  lock      {lock}",
            f"  limits    {_limits(job)}",
            f"  needs     {_plural(preview.batches, 'batch', 'batches')}, {_plural(preview.runs, 'run', 'runs')}",
            "",
            table([("order", "table", "rows to go"), *order], indent="  ", right=(2,)) + estimated,
            "",
            f"\\set cutoff '{preview.cutoff.isoformat()}'",
            "",
            "\n\n".join(statements),
        ]
    )


def shapes_text(shapes: Sequence[Shape]) -> str:
    """How PostgreSQL would execute the statements of a batch, each with what that means."""
    blocks = ["how PostgreSQL would execute a batch; foreign keys are checked beside it, which rehearse shows"]
    for place, shape in enumerate(shapes, 1):
        lines = [f"-- {place}. {shape.title}", *(f"--   {said}" for said in shape.verdict), *shape.lines]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def rehearsal_text(rehearsal: Rehearsal) -> str:
    """What some batches would have cost, where the time went, and what that means for everything that is expired."""
    job, done = rehearsal.job, rehearsal.batches
    backlog = f"{'' if rehearsal.backlog.exact else 'about '}{rehearsal.backlog.rows:,}"
    if not done:
        return f"{job.name}: nothing to rehearse, no row is expired that nobody else has locked"
    head = f"{job.name}: {_plural(len(done), 'batch', 'batches')} deleted and rolled back; nothing is gone"
    blocks = [head, _rehearsed(done)]
    if any(batch.checks for batch in done):
        blocks.append(_checks(done))
    locks = list(dict.fromkeys(lock for batch in done for lock in batch.locks))
    blocks.append(
        "\n".join(["locks until the end of a batch, beside those of its rows:", *(f"  {lock}" for lock in locks)])
    )
    blocks += [f"batch {place}: {batch.refused}" for place, batch in enumerate(done, 1) if batch.refused]
    if rehearsal.drained_in is not None:
        needed = _plural(rehearsal.batches_needed, "batch", "batches")
        runs = _plural(rehearsal.runs_needed or 1, "run", "runs")
        took = _spell(rehearsal.drained_in)
        lines = [
            f"all {backlog} expired rows of {job.policy.root}:",
            f"  {needed}, about {took} beside COMMITs and waits; {runs} at {_limits(job)}",
            f"  {_fitting(rehearsal)}",
        ]
        blocks.append("\n".join(lines))
    blocks.append("Left behind are dead row versions at most, which vacuum removes, and numbers drawn from sequences.")
    return "\n\n".join(blocks)


def _fitting(rehearsal: Rehearsal) -> str:
    target = _spell(rehearsal.target)
    if rehearsal.fitting == LARGEST_BATCH:
        return f"a batch would take less than {target} even with the largest BatchSize, {LARGEST_BATCH:,}"
    return f"a batch would take {target} with a BatchSize of about {rehearsal.fitting:,}"


def _rehearsed(done: Sequence[Rehearsed]) -> str:
    head = ("batch", "root rows", "rows in all", "claim ms", "delete ms", "WAL kB", "pages", "of them read")
    rows = [
        (
            str(place),
            f"{batch.claimed:,}",
            f"{sum(batch.rows.values()):,}",
            f"{_ms(batch.claiming):,.1f}",
            f"{_ms(batch.deleting):,.1f}",
            f"{batch.wal / 1024:,.0f}",
            f"{batch.buffers_hit + batch.buffers_read:,}",
            f"{batch.buffers_read:,}",
        )
        for place, batch in enumerate(done, 1)
    ]
    return table([head, *rows], indent="  ", right=range(1, len(head)))


def _checks(done: Sequence[Rehearsed]) -> str:
    calls: Counter[tuple[str, str]] = Counter()
    took: dict[tuple[str, str], float] = {}
    for batch in done:
        for check in batch.checks:
            calls[check.name, check.table] += check.calls
            took[check.name, check.table] = took.get((check.name, check.table), 0.0) + _ms(check.took)
    whole = sum(_ms(batch.took) for batch in done)
    rows = [
        (name, about, f"{calls[name, about]:,}", f"{spent:,.1f}", f"{spent / whole:.0%}")
        for (name, about), spent in sorted(took.items(), key=lambda item: -item[1])
    ]
    head = ("foreign key or trigger", "fired by", "calls", "ms", "of the time")
    return table([head, *rows], indent="  ", right=range(2, 5))


def _ms(length: timedelta) -> float:
    return length / timedelta(milliseconds=1)


def _spell(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{seconds:,.3g} s" if seconds < 60 else format_duration(timedelta(seconds=round(seconds)))  # noqa: PLR2004


def table(rows: Sequence[Sequence[str]], *, indent: str = "", right: Collection[int] = ()) -> str:
    """Rows of cells as aligned columns, those numbered in `right` flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        indent
        + "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _limits(job: Job) -> str:
    limits = job.limits
    batches = "any number of batches" if limits.max_batches is None else _plural(limits.max_batches, "batch", "batches")
    rows = _plural(limits.batch_size, "row", "rows")
    return f"{rows} a batch, {batches} a run, {format_duration(limits.max_run_duration)} a run"


def _expired(policy: Policy) -> str:
    guard = " and ".join(_words(condition) for condition in policy.guard)
    return f"{policy.root} {guard} and {policy.expiry}"


def _words(condition: Condition) -> str:
    match condition:
        case Equals(column, value):
            return f"with {column} = '{value}'"
        case IsNull(column):
            return f"without a {column}"


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}"
