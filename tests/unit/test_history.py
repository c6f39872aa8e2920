"""What is remembered of runs: everything a page shows of them, a bounded amount, and the same after a restart."""

from __future__ import annotations

import json
import re
import sqlite3
import stat
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from pgretention.errors import ConfigurationError, FaultKind
from pgretention.report import (
    Backlog,
    BatchDone,
    BatchResized,
    BrakeOverridden,
    CatchingUp,
    Fact,
    MissReason,
    Outcome,
    ReplicaBehind,
    RetryAwaited,
    RowsKept,
    RunFinished,
    RunScheduled,
    RunsMissed,
    TooLong,
    WorkerLost,
)
from pgretention.sinks import history as history_module
from pgretention.sinks import logs
from pgretention.sinks.archive import FileArchive
from pgretention.sinks.history import DETAILED, RUNS, History
from pgretention.sinks.records import KEYS, NOTES, STRETCHES, WORDS, RunRecord
from tests.support.facts import (
    ACTIVITY,
    DRAINED,
    FOREIGN_KEY,
    GUEST,
    NOW,
    RUN,
    SOME_LEFT,
    UNREACHABLE,
    StandingClock,
    batch,
    finished,
    held_elsewhere,
    started,
    stories,
)

SECOND = timedelta(seconds=1)


def told(*facts: Fact, clock: StandingClock | None = None) -> History:
    history = History([ACTIVITY, GUEST], clock or StandingClock())
    for fact in facts:
        history(fact)
    return history


def with_id(facts: Iterable[Fact], run_id: str) -> list[Fact]:
    """The same run under another id."""
    changed: list[Fact] = []
    for fact in facts:
        match fact:
            case RunFinished(report):
                changed.append(RunFinished(replace(report, run_id=run_id)))
            case RunScheduled() | CatchingUp() | RunsMissed():
                changed.append(fact)
            case _:
                changed.append(replace(fact, run_id=run_id))
    return changed


def test_a_run_is_on_until_it_has_ended_and_then_remembered_with_all_its_report_says() -> None:
    clock = StandingClock()
    history = told(started(ACTIVITY), clock=clock)
    running = history.of(ACTIVITY.name).running
    assert running is not None
    assert (running.began, running.ended, running.outcome, running.batches) == (NOW, None, None, 0)
    assert running.backlog_before == Backlog(10_000, exact=True, oldest_age=timedelta(days=400))

    clock.at = NOW + SECOND
    history(batch(ACTIVITY))
    running = history.of(ACTIVITY.name).running
    assert running is not None
    assert running.deleted == batch(ACTIVITY).deleted
    assert [(each.first, each.at, each.seconds) for each in running.stretches] == [(1, 1.0, 0.25)]

    clock.at = NOW + 20 * SECOND
    end = finished(ACTIVITY, Outcome.PARTIAL, rows=5000, batches=1, left=SOME_LEFT, error=FOREIGN_KEY)
    history(end)
    assert history.of(ACTIVITY.name).running is None
    last = history.of(ACTIVITY.name).last
    assert last is not None
    assert (last.outcome, last.deleted, last.error) == (Outcome.PARTIAL, end.report.deleted, FOREIGN_KEY)
    assert (last.began, last.ended) == (NOW + 20 * SECOND - end.report.duration, NOW + 20 * SECOND)
    assert history.run(RUN) == last
    assert history.of(GUEST.name).runs == ()


@pytest.mark.parametrize("story", stories(ACTIVITY))
def test_of_every_story_the_record_says_what_the_report_said(story: str) -> None:
    facts = stories(ACTIVITY)[story]
    end = facts[-1]
    assert isinstance(end, RunFinished)
    last = told(*facts).of(ACTIVITY.name).last
    assert last is not None
    report = end.report
    assert (last.outcome, last.batches, dict(last.deleted)) == (report.outcome, report.batches, dict(report.deleted))
    assert (last.backlog_before, last.backlog_after) == (report.backlog_before, report.backlog_after)
    assert (last.limit, last.error, last.cutoff) == (report.limit, report.error, report.cutoff)
    assert last.throttled == {reason: wait.total_seconds() for reason, wait in report.throttled.items()}
    assert RunRecord.from_json(json.loads(json.dumps(last.as_json()))) == last


def test_the_timeline_counts_from_where_the_report_says_the_run_began() -> None:
    clock = StandingClock()
    history = told(started(ACTIVITY), clock=clock)
    clock.at = NOW + SECOND
    history(batch(ACTIVITY))
    clock.at = NOW + 2 * SECOND
    history(finished(ACTIVITY, rows=5000, batches=1, left=DRAINED, duration=12 * SECOND))
    last = history.of(ACTIVITY.name).last
    assert last is not None
    assert (last.began, last.stretches[0].at) == (NOW - 10 * SECOND, 11.0)


def test_a_run_that_never_began_is_remembered_with_who_held_its_lock() -> None:
    last = told(held_elsewhere(ACTIVITY)).of(ACTIVITY.name).last
    assert last is not None
    assert (last.outcome, last.holders) == (Outcome.SKIPPED, "process 4711 (psql, role ann)")


def test_what_a_run_meets_on_its_way_is_noted_in_words() -> None:
    history = told(
        started(ACTIVITY),
        BrakeOverridden(ACTIVITY.name, RUN, "cutoff-jump", "the cutoff is 3 days later"),
        BatchResized(ACTIVITY.name, RUN, 2500, FaultKind.STATEMENT_TIMEOUT),
        BatchResized(ACTIVITY.name, RUN, 1200, TooLong.BATCH_DURATION),
        BatchResized(ACTIVITY.name, RUN, 5000, None),
        RetryAwaited(ACTIVITY.name, RUN, UNREACHABLE, 2, timedelta(seconds=1.5)),
        ReplicaBehind(ACTIVITY.name, RUN, "standby", 7 * SECOND, SECOND),
        ReplicaBehind(ACTIVITY.name, RUN, "standby", None, SECOND),
        WorkerLost(ACTIVITY.name, RUN, UNREACHABLE),
        RowsKept(ACTIVITY.name, RUN, 1, FOREIGN_KEY),
    )
    running = history.of(ACTIVITY.name).running
    assert running is not None
    assert [note.text for note in running.notes] == [
        "the brake cutoff-jump was overridden: the cutoff is 3 days later",
        "from here on 2,500 rows a batch, because of statement timeout",
        "from here on 1,200 rows a batch, because of batch duration",
        "from here on 5,000 rows a batch again",
        "try 2 failed, the next one comes after 1.5 s: cannot connect: connection refused",
        "waits for the replica standby, which is 7 s behind",
        "waits for the replica standby, which does not catch up",
        "a connection is gone for good, the others go on: cannot connect: connection refused",
        f"1 row left where they are: {FOREIGN_KEY.message}",
    ]
    assert running.batch_size == 5000


def test_when_the_next_run_is_due_and_what_was_missed_stands_until_a_run_succeeds() -> None:
    due = NOW + timedelta(hours=3)
    missed = RunsMissed(ACTIVITY.name, 2, NOW, MissReason.LATE)
    history = told(RunScheduled(ACTIVITY.name, due, "UTC"), missed, finished(ACTIVITY, Outcome.FAILED))
    history(RetryAwaited(ACTIVITY.name, RUN, UNREACHABLE, 1, 30 * SECOND))
    known = history.of(ACTIVITY.name)
    assert (known.due, known.missed, known.again) == (due, missed, NOW + 30 * SECOND)
    for fact in stories(ACTIVITY)["completed"]:
        history(fact)
    known = history.of(ACTIVITY.name)
    assert (known.due, known.missed, known.again) == (due, None, None)


@given(st.integers(1, 5000))
def test_of_however_many_batches_the_timeline_is_bounded_and_loses_no_row(number: int) -> None:
    clock = StandingClock()
    history = told(started(ACTIVITY), clock=clock)
    for index in range(1, number + 1):
        clock.at = NOW + index * SECOND
        history(BatchDone(ACTIVITY.name, RUN, index, {"a": index, "b": 1}, timedelta(seconds=index % 7)))
    running = history.of(ACTIVITY.name).running
    assert running is not None
    stretches = running.stretches
    assert len(stretches) <= STRETCHES
    assert sum(each.count for each in stretches) == running.batches == number
    assert [each.first for each in stretches[1:]] == [each.first + each.count for each in stretches[:-1]]
    assert sum(each.rows[0] for each in stretches) == running.deleted["a"] == number * (number + 1) // 2
    assert max(each.longest for each in stretches) == min(6, number)
    assert stretches[-1].at == number


def test_a_run_that_crashed_is_not_on_for_ever() -> None:
    history = told(started(ACTIVITY), batch(ACTIVITY))
    assert history.of(ACTIVITY.name).running is not None
    history(RunScheduled(ACTIVITY.name, NOW, "UTC"))
    known = history.of(ACTIVITY.name)
    assert known.running is None
    assert known.last is not None
    assert known.last.error is not None
    assert (known.last.outcome, known.last.error.kind) == (Outcome.FAILED, FaultKind.INTERNAL)
    assert known.last.deleted == batch(ACTIVITY).deleted


def test_notes_and_keys_are_bounded() -> None:
    error = replace(FOREIGN_KEY, keys=tuple(map(str, range(1000))))
    kept = RowsKept(ACTIVITY.name, RUN, 1, error)
    history = told(started(ACTIVITY), *[kept] * 500, finished(ACTIVITY, Outcome.PARTIAL, left=SOME_LEFT, error=error))
    last = history.of(ACTIVITY.name).last
    assert last is not None
    assert last.error is not None
    assert (len(last.notes), last.error.keys) == (NOTES, tuple(map(str, range(KEYS))))


def test_of_very_many_runs_the_last_are_remembered_and_of_those_the_last_batch_by_batch() -> None:
    history = told()
    for number in range(RUNS + 50):
        for fact in with_id(stories(ACTIVITY)["completed"], f"run {number}"):
            history(fact)
    runs = history.of(ACTIVITY.name).runs
    assert [run.run_id for run in runs] == [f"run {number}" for number in range(50, RUNS + 50)]
    assert [run.detailed for run in runs] == [False] * (RUNS - DETAILED) + [True] * DETAILED
    assert [bool(run.stretches) for run in runs] == [run.detailed for run in runs]


def test_runs_without_batches_do_not_push_the_batches_of_others_out() -> None:
    history = told(*with_id(stories(ACTIVITY)["completed"], "long ago"))
    for number in range(3 * DETAILED):
        for fact in with_id(stories(ACTIVITY)["skipped"], f"run {number}"):
            history(fact)
    run = history.run("long ago")
    assert run is not None
    assert run.detailed
    assert run.stretches


def test_whoever_looks_while_runs_go_on_sees_one_moment() -> None:
    history = told(started(ACTIVITY))
    seen = history.of(ACTIVITY.name)
    history(batch(ACTIVITY))
    assert seen.running is not None
    assert seen.running.batches == 0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history"


def remembered(file: Path) -> History:
    return History([ACTIVITY, GUEST], StandingClock(), FileArchive(file))


def test_a_file_keeps_the_history_across_a_restart(file: Path) -> None:
    before = remembered(file)
    for job in ACTIVITY, GUEST:
        for name, story in stories(job).items():
            for fact in with_id(story, f"{job.name} {name}"):
                before(fact)
    before(started(GUEST))  # and the process dies
    after = remembered(file)
    for job in ACTIVITY, GUEST:
        assert after.of(job.name).runs == before.of(job.name).runs
        assert after.of(job.name).running is None


def test_two_workers_can_share_a_file(file: Path) -> None:
    one, other = remembered(file), remembered(file)
    for number in range(10):
        for history, name in (one, "one"), (other, "other"):
            for fact in with_id(stories(ACTIVITY)["completed"], f"{name} {number}"):
                history(fact)
    assert len(remembered(file).of(ACTIVITY.name).runs) == 20


def test_the_file_is_bounded_like_the_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgretention.sinks.archive.RUNS", 20)
    monkeypatch.setattr("pgretention.sinks.archive.DETAILED", 5)
    monkeypatch.setattr(history_module, "RUNS", 20)
    monkeypatch.setattr(history_module, "DETAILED", 5)
    history, sizes = remembered(file), []
    for number in range(60):
        for fact in with_id(stories(ACTIVITY)["completed"], f"run {number}"):
            history(fact)
        sizes.append(file.stat().st_size)
    assert sizes[-1] == sizes[30] > sizes[0]
    assert remembered(file).of(ACTIVITY.name).runs == history.of(ACTIVITY.name).runs
    assert len(history.of(ACTIVITY.name).runs) == 20


def test_a_run_of_the_greatest_length_fits(file: Path) -> None:
    history = remembered(file)
    for _ in range(DETAILED + 2):
        history(started(ACTIVITY))
        for index in range(1, STRETCHES + 1):
            history(batch(ACTIVITY, index))
        history(finished(ACTIVITY, rows=5000 * STRETCHES, batches=STRETCHES, left=DRAINED))
    assert file.stat().st_size < 5 << 20
    assert [len(run.stretches) for run in remembered(file).of(ACTIVITY.name).runs] == [0, 0, *[STRETCHES] * DETAILED]


@pytest.mark.parametrize("content", [b"this is no history", b"", b"SQLite format 3\0 but not really"])
def test_a_file_that_is_something_else_is_refused_in_one_line_and_left_as_it_is(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    if not content:
        assert remembered(file).of(ACTIVITY.name).runs == ()
        return
    with pytest.raises(ConfigurationError) as refused:
        remembered(file)
    (problem,) = refused.value.problems
    assert problem.startswith(f"History:File: {file}: ")
    assert problem.endswith("; name a file in a folder that this user may write to, or off")
    assert file.read_bytes() == content


def test_a_database_of_somebody_else_is_refused(file: Path) -> None:
    with sqlite3.connect(file) as theirs:
        theirs.execute("CREATE TABLE runs (things text)")
        theirs.execute("PRAGMA user_version = 7")
    with pytest.raises(ConfigurationError, match="which is not ours"):
        remembered(file)
    with sqlite3.connect(file) as theirs:
        theirs.execute("PRAGMA user_version = 0")
    with pytest.raises(ConfigurationError, match="it holds something else"):
        remembered(file)


def test_the_file_is_for_its_owner_alone(file: Path) -> None:
    remembered(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_no_file_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="History:File: /dev/null: "):
        FileArchive(Path("/dev/null"))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"History:File: .*: No such file or directory; name a file"):
        remembered(tmp_path / "nowhere" / "history")


@pytest.fixture
def log() -> Iterable[StringIO]:
    stream = StringIO()
    logs.configure("json", "debug", stream)
    yield stream
    structlog.reset_defaults()


def test_a_file_that_is_lost_later_costs_no_run_and_is_said(file: Path, log: StringIO) -> None:
    history = remembered(file)
    file.unlink()
    file.mkdir()
    for fact in stories(ACTIVITY)["completed"]:
        history(fact)
    assert history.of(ACTIVITY.name).last is not None
    (said,) = [json.loads(line) for line in log.getvalue().splitlines() if "history" in line]
    assert (said["level"], said["event"], said["error_type"]) == ("error", "history not kept", "IsADirectoryError")


def test_a_file_that_is_removed_is_made_anew_for_its_owner_alone(file: Path) -> None:
    history = remembered(file)
    file.unlink()
    for number in range(2):
        for fact in with_id(stories(ACTIVITY)["completed"], f"run {number}"):
            history(fact)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert remembered(file).of(ACTIVITY.name).runs == history.of(ACTIVITY.name).runs


def test_a_file_that_is_busy_keeps_no_worker_from_starting(
    file: Path, log: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgretention.sinks.archive._WAIT", 0.0)
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        history = remembered(file)
        for fact in stories(ACTIVITY)["completed"]:
            history(fact)
        other.rollback()
    assert history.of(ACTIVITY.name).last is not None
    assert "SQLITE_BUSY" in log.getvalue()


def test_a_long_message_is_cut() -> None:
    error = replace(FOREIGN_KEY, message="x" * 100_000)
    last = told(finished(ACTIVITY, Outcome.FAILED, error=error)).of(ACTIVITY.name).last
    assert last is not None
    assert last.error is not None
    assert len(last.error.message) == WORDS


def test_records_that_make_no_sense_are_passed_over(file: Path, log: StringIO) -> None:
    history = remembered(file)
    for fact in stories(ACTIVITY)["completed"]:
        history(fact)
    with sqlite3.connect(file) as edited:
        text = edited.execute("SELECT record FROM runs").fetchone()[0]
        naive = re.sub(r'"began":"[^"]*"', '"began":"2026-01-01T00:00:00"', text)
        huge = re.sub(r'"oldest_age_seconds":[0-9.]+', '"oldest_age_seconds":1e300', text)
        assert text not in (naive, huge)
        for nonsense in "{", "[]", "{}", "null", '{"job": 1}', "[" * 100_000, naive, huge:
            edited.execute("INSERT INTO runs (job, detailed, record) VALUES ('activity-retention', 0, ?)", (nonsense,))
    after = remembered(file)
    assert after.of(ACTIVITY.name).runs == history.of(ACTIVITY.name).runs
    assert log.getvalue().count("history not kept") == 8
