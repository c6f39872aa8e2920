"""What our processes said of their runs: the batches in their log, and the report at the end if there was one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"

TABLES = {ACTIVITY: (EVENTS, VIEWS, SESSIONS), GUESTS: (FAVORITES,)}

Counts = frozenset[tuple[str, int]]
"""Rows by table, without the tables of which there are none."""

_STARTED = frozenset({"started", "job started"})
_BATCH = frozenset({"batch", "batch deleted"})
_LOST = "worker lost"
_FINISHED = frozenset(
    {"completed", "skipped", "refused", "failed", "job completed", "job skipped", "job refused", "job failed"}
)


@dataclass(frozen=True)
class Ended:
    """A process that is over: how it was started, what became of it and what it left on its two streams.

    `hit` names what was done to the process itself; `batch_size` is the one of its job, or the larger of both, and
    `workers` how many connections a run deletes on.
    """

    name: str
    words: tuple[str, ...]
    batch_size: int
    code: int
    hit: tuple[str, ...]
    stdout: str
    stderr: str
    workers: int = 1

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of `run --json`; None when the process did not come so far."""
        return _json(self.stdout)

    @property
    def killed(self) -> bool:
        return "SIGKILL" in self.hit and self.code == -9

    @property
    def unheard(self) -> bool:
        """Asked to end before it listened, when the program was not even loaded."""
        return "SIGTERM" in self.hit and self.code == -15 and not self.stdout and not self.stderr


@dataclass
class Run:
    """One run in the words of its process: `batches` are those of the log, `report` was added up at the end."""

    process: Ended
    job: str
    run_id: str
    cutoff: datetime | None = None
    batches: list[Counts] = field(default_factory=list)
    outcome: str | None = None
    kind: str | None = None
    message: str = ""
    keys: tuple[str, ...] = ()
    report: Mapping[str, int] | None = None
    reported_batches: int | None = None
    lost: int = 0
    """Connections that went while the run went on."""

    @property
    def application_name(self) -> str:
        """The name of its connection (design section 3)."""
        return f"pgretention/{self.job}/{self.run_id[:8]}"

    @property
    def counted(self) -> Counter[str]:
        """Rows by table, of all batches in the log."""
        return sum((Counter(dict(batch)) for batch in self.batches), Counter())


def counts_of(rows: Iterable[tuple[str, int]]) -> Counts:
    return frozenset((table, number) for table, number in rows if number)


def lines(ended: Ended) -> Iterator[dict[str, Any]]:
    """The log, line by line; of what is no JSON the text alone."""
    for line in ended.stderr.splitlines():
        yield _json(line) or {"event": None, "text": line}


def _json(text: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads(text))
    except ValueError:
        return None


def runs(ended: Ended) -> list[Run]:
    """The runs of a process, by what it logged and by the result of `run --json`."""
    found: dict[str, Run] = {}
    for line in lines(ended):
        key = line.get("run_id") or line.get("jobRunId")
        if key:
            run = found.setdefault(key, Run(ended, line["job"], key))
            _read(run, line)
    for text in ended.stdout.splitlines():
        result = _json(text)
        if result is None:
            continue
        run = found.setdefault(result["run_id"], Run(ended, result["job"], result["run_id"]))
        _read_result(run, result)
    return list(found.values())


def _read(run: Run, line: Mapping[str, Any]) -> None:
    if line["event"] in _STARTED:
        run.cutoff = datetime.fromisoformat(line["cutoff"])
    elif line["event"] in _BATCH:
        run.batches.append(counts_of(_counts(run.job, line, total="rows").items()))
    elif line["event"] == _LOST:
        run.lost += 1
    elif line["event"] in _FINISHED:
        default = {"refused": "refused", "skipped": "skipped"}.get(line["event"].removeprefix("job "))
        run.outcome = line.get("outcome", default)
        run.kind, run.message = line.get("kind"), str(line.get("error", line.get("exception", line.get("reasons"))))
        run.keys = tuple(line.get("batch_ids", line.get("batchIds", ())))
        if run.outcome not in {"refused", "skipped"}:
            run.report = _counts(run.job, line, total="deletedTotal")
            run.reported_batches = line["batches"]


def _counts(job: str, line: Mapping[str, Any], total: str) -> dict[str, int]:
    if job == GUESTS:
        return {str(FAVORITES): line[total]}
    return {str(table): line[f"deleted_{table.name}"] for table in TABLES[job]}


def _read_result(run: Run, result: Mapping[str, Any]) -> None:
    run.outcome = result["outcome"]
    run.report, run.reported_batches = result["deleted"], result["batches"]
    if result["error"] is not None:
        run.kind, run.message = result["error"]["kind"], result["error"]["message"]
        run.keys = tuple(result["error"]["keys"])
