"""pgretention itself, by the function that `pgretention run` calls, with default settings but for those of the task."""

from __future__ import annotations

from bench.contenders import BatchDone, Task
from pgretention import app
from pgretention.config import load
from pgretention.jobs import activity_retention
from pgretention.report import BatchDone as BatchFact
from pgretention.report import Fact, Outcome
from pgretention.stop import Stop


def delete(task: Task, batch_done: BatchDone) -> None:
    """Run the job once; raises RuntimeError when it does not complete."""

    def observe(fact: Fact) -> None:
        if isinstance(fact, BatchFact):
            batch_done()

    settings = load(None, {}, _settings(task))
    report = app.run(app.assign(settings)[task.job], sinks=[observe], stop=Stop())
    if report.outcome is not Outcome.COMPLETED:
        raise RuntimeError(f"the run ended {report.outcome}: {report.error}")


def _settings(task: Task) -> list[str]:
    """As after `--set`."""
    if task.job == activity_retention.NAME:
        database, section = "UserActivity", "ActivityRetention"
        more = ["ActivityRetention:MaxBatchesPerRun=1000000"]  # small batches are to delete as many rows
    else:
        database, section, more = "Favorites", "Favorites:GuestRetention", []
    if task.pause_ms:
        more.append(f"{section}:BatchPause={task.pause_ms}ms")
    return [
        *more,
        f"ConnectionStrings:{database}={task.dsn}",
        f"{section}:BatchSize={task.batch_size}",
        f"{section}:Workers={task.workers}",
    ]
