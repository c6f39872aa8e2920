"""What our processes say of themselves: whether it is what they did, and whether they ended as was promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.torture.accounts import Counts, Ended, Run, counts_of, lines
from tests.torture.evidence import Deed

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

_SHOWN = 3
"""Batches that a finding describes."""

_CHANGED = "the definition of a table changed while the run was on"


def sums(runs: Iterable[Run], done: Mapping[str, Sequence[Deed]]) -> Iterator[str]:
    """4. The batches that a run counted are the transactions in which it deleted, each with its rows.

    Of a process that was killed the last batch of each connection may be missing. Of a COMMIT that was not answered the
    rows are named, and they are gone or not, but not counted.
    """
    said = {run.application_name: run for run in runs}
    yield from (f"sums: {name} deleted rows and said nothing of itself" for name in done.keys() - said.keys())
    for name, run in said.items():
        yield from (f"sums: process {run.process.name}, {name}: {text}" for text in _of_run(run, done.get(name, ())))


def _of_run(run: Run, done: Sequence[Deed]) -> Iterator[str]:
    if run.report is not None:
        reported, counted = counts_of(run.report.items()), counts_of(run.counted.items())
        if (reported, run.reported_batches) != (counted, len(run.batches)):
            yield (
                f"reports {dict(reported)} in {run.reported_batches} batches,"
                f" logged {dict(counted)} in {len(run.batches)}"
            )
    named = frozenset(run.keys if run.kind == "commit_unknown" else ())
    unsure = [deed for deed in done if deed.roots & named]
    sure, logged = Counter(deed.counts for deed in done if not deed.roots & named), Counter(run.batches)
    unlogged = sure - logged
    connections = run.process.workers
    if logged - sure or unlogged.total() > (connections if run.outcome is None and run.process.killed else 0):
        yield f"logged and not committed: {_shown(logged - sure)}; committed and not logged: {_shown(unlogged)}"
    gone = [len(deed.roots) for deed in unsure]
    left = (connections - len(gone)) * run.process.batch_size  # at most, in batches that did not go
    if len(named) - sum(gone) > left or any(deed.roots - named for deed in unsure):
        yield f"is not sure of {len(named)} rows, and batches of {gone} are gone with some of them"
    largest = max((len(deed.roots) for deed in done), default=0)
    if largest > run.process.batch_size:
        yield f"deleted {largest} rows in a batch of {run.process.batch_size}"
    newest = max((deed.newest for deed in done if deed.newest is not None), default=None)
    if newest is not None and (run.cutoff is None or newest >= run.cutoff):
        yield f"deleted a row of {newest}, its cutoff was {run.cutoff}"


def _shown(batches: Counter[Counts]) -> str:
    shown = [dict(sorted(batch)) for batch in batches.elements()]
    return f"{shown[:_SHOWN]}" + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")


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
