"""What our processes say of themselves: whether it is what they did, and whether they ended as was promised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tests.torture.accounts import ROOT, TABLES, Ended, Run, lines
from tests.torture.evidence import NOTHING, Deeds

ALLOWED_KINDS = frozenset(
    {
        "connection",
        "serialization",
        "deadlock",
        "lock_timeout",
        "statement_timeout",
        "cancelled",
        "commit_unknown",
    }
)
"""What a run may fail of here. No row is refused by a foreign key, no privilege is missing, no claim goes wrong."""

EXIT_CODES = {
    "completed": 0,
    "limit_reached": 0,
    "stopped": 0,
    "skipped": 0,
    "partial": 1,
    "failed": 1,
    "refused": 3,
}
"""Typed out of the contract."""

_CHANGED = "the definition of a table changed while the run was on"


def sums(runs: Iterable[Run], done: Mapping[str, Deeds]) -> Iterator[str]:
    """4. What a run counted is what it deleted; what it did not live to count, or never heard of, is a batch at most.

    One batch for each connection that the run deleted on.
    """
    said = {run.application_name: run for run in runs}
    yield from (f"sums: {name} deleted rows and said nothing of itself" for name in done.keys() - said.keys())
    for name, run in said.items():
        yield from (
            f"sums: process {run.process.name}, {name}: {text}" for text in _of_run(run, done.get(name, NOTHING))
        )


def _of_run(run: Run, done: Deeds) -> Iterator[str]:
    counted = {table: rows for table, rows in run.counted.items() if rows}
    if run.report is not None:
        reported = {table: rows for table, rows in run.report.items() if rows}
        if (reported, run.reported_batches) != (counted, run.batches):
            yield f"reports {reported} in {run.reported_batches} batches, logged {counted} in {run.batches}"
    uncounted = done.transactions - run.batches
    unknown = run.kind == "commit_unknown"
    connections = run.process.workers
    if not 0 <= uncounted <= (connections if unknown or (run.report is None and run.process.killed) else 0):
        yield f"{done.transactions} batches were committed, {run.batches} counted"
    extra = {str(table): done.counts.get(str(table), 0) - counted.get(str(table), 0) for table in TABLES[run.job]}
    if min(extra.values(), default=0) < 0 or (uncounted == 0 and any(extra.values())):
        yield f"counts {counted}, deleted {dict(done.counts)}"
    gone = extra[ROOT[run.job]]
    if unknown and (gone not in {0, len(run.keys)} if connections == 1 else not 0 <= gone <= len(run.keys)):
        yield f"is not sure of {len(run.keys)} rows, and {gone} are gone"
    if done.largest > run.process.batch_size:
        yield f"deleted {done.largest} rows in a batch of {run.process.batch_size}"
    if done.newest is not None and (run.cutoff is None or done.newest >= run.cutoff):
        yield f"deleted a row of {done.newest}, its cutoff was {run.cutoff}"


def manners(ended: Ended, runs: Iterable[Run], hidden: Iterable[str]) -> Iterator[str]:
    """7. Exit codes and outcomes are those of the contract; no traceback, no other noise, nothing secret anywhere."""
    where = f"manners: process {ended.name} ({' '.join(ended.words)}, hit by {', '.join(ended.hit) or 'nothing'})"
    said = ended.stdout + ended.stderr
    if "Traceback" in said:
        yield f"{where}: a traceback"
    yield from (f"{where}: shows something hidden" for text in hidden if text in said)
    yield from (f"{where}: wrote {line['text']!r}" for line in lines(ended) if line["event"] is None)
    if ended.killed or ended.unheard:
        return
    runs = list(runs)
    yield from (f"{where}: {text}" for run in runs for text in _of_ending(run))
    if ended.words[0] == "run":
        outcomes = [run.outcome for run in runs]
        if [EXIT_CODES.get(str(outcome)) for outcome in outcomes] != [ended.code]:
            yield f"{where}: exit code {ended.code} after {outcomes}"
        if ended.stdout.count("\n") != 1:
            yield f"{where}: {ended.stdout.count(chr(10))} lines on stdout"
    elif ended.code != 0:
        yield f"{where}: exit code {ended.code}"


def _of_ending(run: Run) -> Iterator[str]:
    if run.outcome is None:
        yield f"run {run.run_id} has no end"
    elif run.outcome == "refused":
        if _CHANGED not in run.message:
            yield f"run {run.run_id} was refused: {run.message}"
    elif (run.outcome in {"failed", "partial"}) != (run.kind is not None) or run.kind not in {None, *ALLOWED_KINDS}:
        yield f"run {run.run_id} ended {run.outcome} because of {run.kind}: {run.message}"


def complaints(errors: Iterable[str]) -> Iterator[str]:
    """The application met what it never should."""
    yield from (f"application: {error}" for error in errors)
