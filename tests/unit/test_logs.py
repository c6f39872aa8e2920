from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from io import StringIO
from typing import Any

import pytest
import structlog

from pgretention.errors import ConfigurationError, FaultKind
from pgretention.report import Fact, Outcome, RowsKept, RunError
from pgretention.sinks import logs
from tests.support.facts import (
    ACTIVITY,
    DRAINED,
    FOREIGN_KEY,
    GUEST,
    REASONS,
    RUN,
    SOME_LEFT,
    THIRD,
    StandingClock,
    batch,
    finished,
    held_elsewhere,
    started,
)

Line = dict[str, Any]
WHEN = "2026-03-01T03:00:00.000+00:00"
CUTOFF = "2025-03-01T03:00:00.250000+00:00"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _nothing_configured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def said(fact: Fact, level: str = "debug") -> list[Line]:
    """What the JSON log says of a fact."""
    stream = StringIO()
    logs.configure("json", level, stream, StandingClock())(fact)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def shown(fact: Fact, stream: StringIO | None = None) -> str:
    """What the console log says of a fact."""
    stream = stream or StringIO()
    logs.configure("console", "debug", stream, StandingClock())(fact)
    return stream.getvalue()


def lines_of(say: Callable[[], object]) -> list[Line]:
    stream = StringIO()
    logs.configure("json", "debug", stream, StandingClock())
    say()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.req("A-21")
def test_activity_retention_says_that_it_started_with_its_cutoff_and_batch_size() -> None:
    assert said(started(ACTIVITY)) == [
        {
            "timestamp": WHEN,
            "level": "info",
            "event": "started",
            "job": "activity-retention",
            "run_id": RUN,
            "cutoff": CUTOFF,
            "batch_size": 5000,
            "lock": "session",
        }
    ]


@pytest.mark.req("A-21")
def test_activity_retention_behind_a_pooler_says_that_each_transaction_takes_the_lock() -> None:
    assert said(started(ACTIVITY, pooled=True))[0]["lock"] == "transaction"


@pytest.mark.req("A-21")
def test_activity_retention_says_at_debug_what_a_batch_deleted_from_each_table() -> None:
    assert said(batch(ACTIVITY, 7, 10)) == [
        {
            "timestamp": WHEN,
            "level": "debug",
            "event": "batch",
            "job": "activity-retention",
            "run_id": RUN,
            "batch_index": 7,
            "deleted_action_events": 30,
            "deleted_property_object_views": 20,
            "deleted_sessions": 10,
        }
    ]
    assert said(batch(ACTIVITY), level="info") == []


@pytest.mark.req("A-21")
@pytest.mark.parametrize(
    ("outcome", "has_more"),
    [(Outcome.COMPLETED, False), (Outcome.LIMIT_REACHED, True), (Outcome.STOPPED, True)],
)
def test_activity_retention_says_that_it_completed_with_counts_and_whether_there_is_more(
    *, outcome: Outcome, has_more: bool
) -> None:
    assert said(finished(ACTIVITY, outcome, rows=10, batches=2, left=DRAINED)) == [
        {
            "timestamp": WHEN,
            "level": "info",
            "event": "completed",
            "job": "activity-retention",
            "run_id": RUN,
            "outcome": outcome.value,
            "deleted_action_events": 30,
            "deleted_property_object_views": 20,
            "deleted_sessions": 10,
            "batches": 2,
            "has_more": has_more,
            "limit": "MaxBatchesPerRun" if outcome is Outcome.LIMIT_REACHED else None,
            "duration": 12.346,
        }
    ]


@pytest.mark.req("A-21", "A-09")
def test_activity_retention_says_at_info_that_another_run_holds_the_lock() -> None:
    assert said(held_elsewhere(ACTIVITY)) == [
        {
            "timestamp": WHEN,
            "level": "info",
            "event": "skipped",
            "job": "activity-retention",
            "run_id": RUN,
            "reason": "another run holds the lock",
            "holders": "process 4711 (psql, role ann)",
        }
    ]


@pytest.mark.req("A-21", "A-12")
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.PARTIAL])
def test_activity_retention_says_as_an_error_which_keys_failed_and_what_stays_deleted(outcome: Outcome) -> None:
    assert said(finished(ACTIVITY, outcome, rows=10, batches=2, left=SOME_LEFT, error=FOREIGN_KEY)) == [
        {
            "timestamp": WHEN,
            "level": "error",
            "event": "failed",
            "job": "activity-retention",
            "run_id": RUN,
            "outcome": outcome.value,
            "error": FOREIGN_KEY.message,
            "kind": "foreign_key",
            "sqlstate": "23503",
            "constraint": "invoices_session_id_fkey",
            "batch_index": 3,
            "batch_ids": ["a1", "b2"],
            "batch_ids_left_out": None,
            "deleted_action_events": 30,
            "deleted_property_object_views": 20,
            "deleted_sessions": 10,
            "batches": 2,
            "duration": 12.346,
        }
    ]


@pytest.mark.req("A-07", "A-21")
def test_activity_retention_says_as_an_error_why_it_was_refused() -> None:
    assert said(finished(ACTIVITY, Outcome.REFUSED, error=REASONS)) == [
        {
            "timestamp": WHEN,
            "level": "error",
            "event": "refused",
            "job": "activity-retention",
            "run_id": RUN,
            "kind": "refused",
            "reasons": REASONS.message,
        }
    ]


@pytest.mark.req("A-21")
def test_a_thousand_keys_are_named_and_the_rest_is_counted() -> None:
    error = replace(FOREIGN_KEY, keys=tuple(str(key) for key in range(5000)))
    (line,) = said(finished(ACTIVITY, Outcome.FAILED, error=error))
    assert line["batch_ids"] == [str(key) for key in range(1000)]
    assert line["batch_ids_left_out"] == 4000


@pytest.mark.req("F-14")
def test_guest_favorites_cleanup_says_that_the_job_started() -> None:
    assert said(started(GUEST), level="info") == [
        {
            "timestamp": WHEN,
            "level": "info",
            "event": "job started",
            "job": "guest-favorites-cleanup",
            "jobRunId": RUN,
            "cutoff": CUTOFF,
            "RetentionDays": 365,
        }
    ]


@pytest.mark.req("F-14")
def test_guest_favorites_cleanup_says_how_many_rows_a_batch_deleted() -> None:
    assert said(batch(GUEST, 7, 10), level="info") == [
        {
            "timestamp": WHEN,
            "level": "info",
            "event": "batch deleted",
            "job": "guest-favorites-cleanup",
            "jobRunId": RUN,
            "batchNo": 7,
            "rows": 10,
        }
    ]


@pytest.mark.req("F-14")
@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.LIMIT_REACHED, Outcome.STOPPED])
def test_guest_favorites_cleanup_says_that_the_job_completed_with_totals_and_what_remains(outcome: Outcome) -> None:
    assert said(finished(GUEST, outcome, rows=10, batches=2, left=SOME_LEFT), level="info") == [
        {
            "timestamp": WHEN,
            "level": "info",
            "event": "job completed",
            "job": "guest-favorites-cleanup",
            "jobRunId": RUN,
            "outcome": outcome.value,
            "limit": "MaxRunDuration" if outcome is Outcome.LIMIT_REACHED else None,
            "deletedTotal": 10,
            "batches": 2,
            "durationMs": 12346,
            "backlogRemaining": 4000,
            "backlogExact": True,
        }
    ]


@pytest.mark.req("F-14", "F-11")
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.PARTIAL])
def test_guest_favorites_cleanup_says_as_an_error_which_batch_failed_and_how(outcome: Outcome) -> None:
    assert said(finished(GUEST, outcome, rows=10, batches=2, error=FOREIGN_KEY)) == [
        {
            "timestamp": WHEN,
            "level": "error",
            "event": "job failed",
            "job": "guest-favorites-cleanup",
            "jobRunId": RUN,
            "outcome": outcome.value,
            "batchNo": 3,
            "exception": FOREIGN_KEY.message,
            "kind": "foreign_key",
            "sqlstate": "23503",
            "constraint": "invoices_session_id_fkey",
            "batchIds": ["a1", "b2"],
            "batchIdsLeftOut": None,
            "deletedTotal": 10,
            "batches": 2,
            "durationMs": 12346,
        }
    ]


@pytest.mark.req("F-14")
def test_guest_favorites_cleanup_says_as_an_error_why_the_job_was_refused() -> None:
    assert said(finished(GUEST, Outcome.REFUSED, error=REASONS)) == [
        {
            "timestamp": WHEN,
            "level": "error",
            "event": "job refused",
            "job": "guest-favorites-cleanup",
            "jobRunId": RUN,
            "kind": "refused",
            "reasons": REASONS.message,
        }
    ]


def test_a_job_without_names_of_its_own_is_logged_all_the_same() -> None:
    (begin,), (middle,), (end,) = (
        said(fact) for fact in (started(THIRD), batch(THIRD, 1, 10), finished(THIRD, rows=10, batches=1, left=DRAINED))
    )
    assert begin["event"] == "started"
    assert (begin["retention"], begin["backlog"], begin["pooled"]) == ("30.00:00:00", 10_000, False)
    assert (middle["event"], middle["deleted_tokens"], middle["duration"]) == ("batch", 10, 0.25)
    assert (end["event"], end["deleted_tokens"], end["backlog_remaining"]) == ("completed", 10, 0)


def test_tables_of_one_name_in_two_schemas_are_told_apart() -> None:
    (line,) = said(replace(batch(THIRD), deleted={"old.tokens": 1, "new.tokens": 2}))
    assert (line["deleted_old.tokens"], line["deleted_new.tokens"]) == (1, 2)


def test_a_level_hides_what_is_below_it() -> None:
    assert said(started(ACTIVITY), level="warning") == []
    assert len(said(finished(ACTIVITY, Outcome.FAILED, error=FOREIGN_KEY), level="error")) == 1


def test_a_json_event_is_one_line_whatever_a_message_holds() -> None:
    error = RunError(FaultKind.CONNECTION, "first\nsecond\u2028third")
    stream = StringIO()
    logs.configure("json", "info", stream)(finished(ACTIVITY, Outcome.FAILED, error=error))
    assert stream.getvalue().isascii()
    assert stream.getvalue().count("\n") == 1
    assert json.loads(stream.getvalue())["error"] == error.message


def test_the_keys_of_an_event_and_their_order_are_the_same_whatever_they_carry() -> None:
    for job in (ACTIVITY, GUEST, THIRD):
        (bare,) = said(finished(job, Outcome.FAILED, error=RunError(FaultKind.INTERNAL, "unexpected")))
        (full,) = said(finished(job, Outcome.FAILED, rows=1, batches=1, left=SOME_LEFT, error=FOREIGN_KEY))
        assert list(bare) == list(full)


def test_instants_are_in_utc_lengths_of_time_in_seconds_and_fractions_rounded() -> None:
    moscow = timezone(timedelta(hours=3))
    (line,) = lines_of(
        lambda: logs.logger().info(
            "fired", due=datetime(2026, 3, 1, 6, 0, tzinfo=moscow), late=timedelta(milliseconds=1500), load=1 / 3
        )
    )
    assert (line["due"], line["late"], line["load"]) == ("2026-03-01T03:00:00+00:00", 1.5, 0.333)


def test_a_console_line_reads_time_level_job_event_and_fields() -> None:
    assert shown(started(ACTIVITY)) == (
        "2026-03-01 03:00:00Z info    activity-retention: started  "
        f"run_id={RUN} cutoff={CUTOFF} batch_size=5000 lock=session\n"
    )


def test_a_console_line_leaves_out_what_is_not_there_and_quotes_what_has_blanks() -> None:
    error = RunError(FaultKind.CONNECTION, 'cannot connect: no "host"')
    assert shown(finished(GUEST, Outcome.FAILED, error=error)) == (
        "2026-03-01 03:00:00Z error   guest-favorites-cleanup: job failed  "
        rf'jobRunId={RUN} outcome=failed exception="cannot connect: no \"host\"" kind=connection '
        "deletedTotal=0 batches=0 durationMs=12346\n"
    )


def test_a_console_line_says_yes_and_no_and_shortens_a_long_list_of_keys() -> None:
    error = replace(FOREIGN_KEY, keys=tuple(str(key) for key in range(25)))
    assert " batch_ids=0,1,2,3,4,5,6,7,8,9,...+15 " in shown(finished(ACTIVITY, Outcome.FAILED, error=error))
    assert " has_more=yes " in shown(finished(ACTIVITY, Outcome.STOPPED, left=SOME_LEFT))


def test_a_key_can_neither_break_a_console_line_nor_move_the_cursor() -> None:
    error = replace(FOREIGN_KEY, keys=("a\nb", "\x1b[2J", "\x9b2J", "kept=ключ"))
    line = shown(finished(ACTIVITY, Outcome.FAILED, error=error))
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()
    assert r'batch_ids="a\nb","\u001b[2J","\u009b2J","kept=ключ" ' in line


def test_a_console_line_without_a_job_or_fields_is_time_level_and_event() -> None:
    stream = StringIO()
    logs.configure("console", "info", stream, StandingClock())
    logs.logger().warning("no database yet")
    assert stream.getvalue() == "2026-03-01 03:00:00Z warning no database yet\n"


@pytest.mark.parametrize(
    ("environment", "colours"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_gets_colours_unless_it_wants_none(
    monkeypatch: pytest.MonkeyPatch, *, environment: dict[str, str], colours: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert ("\x1b[" in shown(started(ACTIVITY), terminal)) is colours


def test_json_has_no_colours_on_a_terminal_either() -> None:
    terminal = Terminal()
    logs.configure("json", "info", terminal)(started(ACTIVITY))
    assert "\x1b" not in terminal.getvalue()


@pytest.mark.parametrize(("form", "level"), [("xml", "info"), ("json", "loud")])
@pytest.mark.req("H-05")
def test_an_unknown_format_or_level_is_refused_with_what_there_is(form: str, level: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^log (format xml|level loud): must be (one of )?[a-z, ]+$"):
        logs.configure(form, level)


def test_unless_told_otherwise_the_log_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logs.logger().info("nobody configured anything")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(" info    nobody configured anything\n")


def test_a_process_without_stderr_logs_to_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    logs.configure("json", "debug")(started(ACTIVITY))
    logs.configure("console", "debug")(started(ACTIVITY))


def test_nothing_slow_is_loaded_before_somebody_logs() -> None:
    code = (
        "import sys; from pgretention.sinks import fan_out, logs, progress, summary; "
        "print({'structlog', 'rich', 'psycopg'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_of_many_rows_that_stay_the_first_twenty_are_said_at_their_level() -> None:
    stream = StringIO()
    sink = logs.configure("json", "warning", stream, StandingClock())
    for _ in range(logs.MOST_KEPT + 5):
        sink(RowsKept(ACTIVITY.name, RUN, 1, FOREIGN_KEY))
    assert len(stream.getvalue().splitlines()) == logs.MOST_KEPT == 20
