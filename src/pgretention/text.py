"""What the commands print for people: plain text, aligned, the same in a terminal and in a pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pgretention.config import EffectiveValue, format_duration
from pgretention.job import Job
from pgretention.policy import Condition, Equals, IsNull, Policy

if TYPE_CHECKING:  # it is only looked at, and the module brings the database driver with it
    from pgretention.preflight import Finding
    from pgretention.preview import Preview


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
        blocks.append("\n".join(lines))
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
            table([("order", "table", "rows to go"), *order], indent="  ", right=2) + estimated,
            "",
            f"\\set cutoff '{preview.cutoff.isoformat()}'",
            "",
            "\n\n".join(statements),
        ]
    )


def table(rows: Sequence[Sequence[str]], *, indent: str = "", right: int | None = None) -> str:
    """Rows of cells as aligned columns, the one numbered `right` flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        indent
        + "  ".join(
            cell.rjust(width) if column == right else cell.ljust(width)
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
