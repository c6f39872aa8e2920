from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from pgretention.job import Job, Limits
from pgretention.report import Backlog, Fact, Outcome
from pgretention.sinks import logs, pace, progress
from pgretention.sinks.bar import Bar
from pgretention.sinks.pace import Seen
from pgretention.sinks.progress import Progress
from tests.support.facts import (
    ABOUT,
    ACTIVITY,
    DRAINED,
    FOREIGN_KEY,
    GUEST,
    REASONS,
    SOME_LEFT,
    StandingClock,
    batch,
    finished,
    started,
    stories,
)

PROJECT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What a person sees in the end: every return to the start of a line erases what stood there."""
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", lambda code: "\f" if code[0] == "\x1b[2K" else "", self.getvalue())
        return [line.rpartition("\f")[2].removeprefix("\r").rstrip() for line in text.split("\n")]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal as stderr, 100 columns wide."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    yield terminal
    structlog.reset_defaults()


@contextmanager
def shown(terminal: Terminal) -> Generator[Progress]:
    """The progress of a run of activity-retention with that terminal as stderr."""
    with redirect_stderr(terminal), progress.shown(ACTIVITY, clock=StandingClock()) as bar:
        yield bar


def seen(*facts: Fact, each: float = 1.0, job: Job = ACTIVITY) -> Seen:
    """What is known after these facts, the run waited for since second 0 and a fact every `each` seconds from then."""
    known = Seen(began=0.0)
    for place, fact in enumerate(facts, start=1):
        known = known.after(fact, str(job.policy.root), place * each)
    return known


def line(*facts: Fact, width: int = 120, job: Job = ACTIVITY, stopping: bool = False) -> str:
    """The bar after these facts, one a second, as a terminal of that width shows it, without its colours."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True, _environ={})
    clock = StandingClock()
    bar = Bar(job, console, clock, lambda: stopping)
    for fact in facts:
        clock.wait(1)
        bar(fact)
    with console.capture() as captured:
        console.print(bar)
    return re.sub(r"\x1b\[[0-9;]*m", "", captured.get()).rstrip()


def test_before_the_run_has_started_it_is_connecting() -> None:
    assert pace.label(seen(), ACTIVITY, stopping=False) == "connecting"
    assert pace.words(seen(), ACTIVITY, 0.0) == []
    assert pace.share(seen()) is None


def test_rows_deleted_backlog_left_rate_and_time_left_are_shown() -> None:
    known = seen(started(ACTIVITY, 100_000), batch(ACTIVITY), batch(ACTIVITY, 2))
    assert pace.label(known, ACTIVITY, stopping=False) == "deleting sessions"
    assert pace.words(known, ACTIVITY, 3.0) == ["10,000 deleted", "90,000 left", "5,000/s", "0:18 to go"]
    assert pace.share(known) == 0.1


def test_only_root_rows_count_as_the_backlog_does() -> None:
    known = seen(started(ACTIVITY), batch(ACTIVITY, rows=7))
    assert known.rows == 7


def test_before_the_first_batch_there_is_no_rate_to_go_by() -> None:
    assert pace.words(seen(started(ACTIVITY)), ACTIVITY, 5.0) == ["0 deleted", "10,000 left"]


def test_the_time_left_goes_down_while_a_batch_is_at_work() -> None:
    known = seen(started(ACTIVITY, 100_000), batch(ACTIVITY), batch(ACTIVITY, 2))
    assert pace.words(known, ACTIVITY, 7.0)[-1] == "0:14 to go"


def test_an_estimated_backlog_is_marked() -> None:
    known = seen(started(ACTIVITY, 100_000, exact=False), batch(ACTIVITY))
    assert pace.words(known, ACTIVITY, 2.0)[1] == "~95,000 left"


def test_an_estimate_that_proves_too_low_says_no_more_how_much_or_how_long() -> None:
    known = seen(started(ACTIVITY, 4000, exact=False), batch(ACTIVITY), batch(ACTIVITY, 2))
    assert pace.words(known, ACTIVITY, 3.0) == ["10,000 deleted", "some left", "5,000/s", "batch limit in 3:18"]
    assert pace.share(known) is None


def test_the_time_limit_is_shown_where_it_comes_before_the_end() -> None:
    known = seen(started(GUEST, 100_000_000), batch(GUEST, rows=1000), job=GUEST)
    assert pace.words(known, GUEST, 2.0)[-1] == "time limit in 9:58"


def test_the_batch_limit_is_shown_where_it_comes_before_the_end() -> None:
    known = seen(started(ACTIVITY, 100_000_000), batch(ACTIVITY))
    assert pace.words(known, ACTIVITY, 2.0)[-1] == "batch limit in 3:19"


def test_hours_are_shown_where_there_are_some() -> None:
    known = seen(started(ACTIVITY, 10_000), batch(ACTIVITY), each=1000.0)
    long = Job(ACTIVITY.policy, Limits(5000, timedelta(hours=9)), ACTIVITY.schedule)
    assert pace.words(known, long, 2000.0)[-1] == "16:40 to go"
    known = seen(started(ACTIVITY, 100_000), batch(ACTIVITY), each=1000.0)
    assert pace.words(known, long, 2000.0)[-1] == "5:16:40 to go"


def test_an_empty_backlog_is_a_full_bar() -> None:
    known = seen(started(ACTIVITY, 0))
    assert pace.words(known, ACTIVITY, 1.0) == ["0 deleted", "0 left"]
    assert pace.share(known) == 1.0


def test_a_stop_that_was_asked_for_is_acknowledged() -> None:
    assert line(started(ACTIVITY), batch(ACTIVITY), stopping=True).startswith("stopping after this batch  ")


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (
            finished(ACTIVITY, rows=5000, batches=1, left=DRAINED),
            "completed  -  5,000 deleted  0 left  5,000/s  in 12.3 s",
        ),
        (
            finished(ACTIVITY, Outcome.LIMIT_REACHED, rows=5000, batches=1, left=ABOUT),
            "limit reached  -  5,000 deleted  ~4,000 left  5,000/s  in 12.3 s",
        ),
        (
            finished(ACTIVITY, Outcome.STOPPED, rows=5000, batches=1, left=SOME_LEFT, duration=timedelta(seconds=750)),
            "stopped  -  5,000 deleted  4,000 left  5,000/s  in 00:12:30",
        ),
        (
            finished(ACTIVITY, Outcome.FAILED, rows=5000, batches=1, error=FOREIGN_KEY),
            "failed  -  5,000 deleted  5,000/s  in 12.3 s",
        ),
    ],
)
def test_a_run_that_began_leaves_a_line_with_its_outcome_and_counts(end: Fact, said: str) -> None:
    left = line(started(ACTIVITY), batch(ACTIVITY), end)
    assert re.sub(r"[━╸╺][━╸╺ ]*(?=  \d)", "-", left) == said


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (finished(ACTIVITY, Outcome.SKIPPED), "skipped  another run holds the lock"),
        (finished(ACTIVITY, Outcome.REFUSED, error=REASONS), "refused  0 deleted  in 12.3 s"),
        (finished(ACTIVITY, Outcome.FAILED, error=FOREIGN_KEY), "failed  0 deleted  in 12.3 s"),
    ],
)
def test_a_run_that_never_began_leaves_a_line_without_a_bar(end: Fact, said: str) -> None:
    assert line(end) == said


@pytest.mark.parametrize("width", range(20, 121))
def test_the_line_never_wraps_and_leaves_room_for_the_echo_of_ctrl_c(width: int) -> None:
    for job in (ACTIVITY, GUEST):
        for story in stories(job).values():
            for heard in range(len(story) + 1):
                drawn = line(*story[:heard], width=width, job=job)
                assert "\n" not in drawn
                assert cell_len(drawn) <= width - 3


def test_on_a_narrow_terminal_the_bar_goes_first_and_then_the_rate() -> None:
    facts = (started(ACTIVITY, 100_000), batch(ACTIVITY), batch(ACTIVITY, 2))
    assert line(*facts, width=71) == "deleting sessions  10,000 deleted  90,000 left  5,000/s  0:18 to go"
    assert line(*facts, width=62) == "deleting sessions  10,000 deleted  90,000 left  0:18 to go"
    assert line(*facts, width=49) == "deleting sessions  10,000 deleted  0:18 to go"


@given(
    backlog=st.builds(Backlog, rows=st.integers(0, 10**12), exact=st.booleans(), oldest_age=st.none()),
    rows=st.lists(st.integers(0, 50_000), max_size=5),
    each=st.floats(0, 10**5),
    now=st.floats(0, 10**7),
)
def test_no_run_can_be_so_odd_that_nothing_can_be_said_of_it(
    backlog: Backlog, rows: list[int], each: float, now: float
) -> None:
    begun = started(ACTIVITY, backlog.rows, exact=backlog.exact)
    known = seen(begun, *(batch(ACTIVITY, index, count) for index, count in enumerate(rows, 1)), each=each)
    said = pace.words(known, ACTIVITY, now)
    assert said[0] == f"{sum(rows):,} deleted"
    assert not any("-" in word for word in said)
    share = pace.share(known)
    assert share is None or 0 <= share <= 1


def test_log_lines_stand_above_the_bar_and_one_line_stays_below_them(terminal: Terminal) -> None:
    with shown(terminal) as bar:
        log = logs.configure("json", "debug", bar.stream, StandingClock())
        facts = stories(ACTIVITY)["completed"]
        for fact in facts:
            log(fact)
            bar(fact)
    *logged, left, end = terminal.lines
    assert "".join(logged).count('"event"') == len(facts)
    assert all(text.startswith("{") and text.endswith("}") for text in logged)
    assert re.fullmatch("completed  ━{40}  6,000 deleted  0 left  in 12.3 s", left)
    assert end == ""


def test_what_anybody_writes_to_stderr_stands_above_the_bar(terminal: Terminal) -> None:
    with shown(terminal) as bar:
        bar(started(ACTIVITY))
        sys.stderr.write("a warning of a library\n")
        bar(finished(ACTIVITY, Outcome.SKIPPED))
    assert terminal.lines[0] == "a warning of a library"
    assert terminal.lines[1].startswith("skipped  another run holds the lock")


def test_a_long_log_line_is_left_to_the_terminal_to_wrap(terminal: Terminal) -> None:
    with shown(terminal) as bar:
        bar.stream.write("long " * 50 + "\n")
    assert "long " * 49 + "long" in terminal.lines[0]


def test_results_on_stdout_are_none_of_its_business(terminal: Terminal) -> None:
    with redirect_stdout(io.StringIO()) as results, shown(terminal):
        assert sys.stdout is results


def test_a_log_line_after_the_bar_still_arrives(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        with progress.shown(ACTIVITY) as bar:
            logs.configure("json", "info", bar.stream, StandingClock())
        logs.logger().info("the very last")
    assert terminal.lines[-2].endswith('"event": "the very last"}')


def test_afterwards_stderr_and_the_cursor_are_as_before(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        with pytest.raises(ZeroDivisionError), progress.shown(ACTIVITY):
            _ = 1 / 0
        assert sys.stderr is terminal
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_no_color_is_honoured(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def written() -> str:
        with shown(terminal) as bar:
            bar(finished(ACTIVITY, Outcome.SKIPPED))
        return terminal.getvalue()

    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", written())
    monkeypatch.delenv("NO_COLOR")
    assert re.search(r"\x1b\[[0-9;]*3[0-9]", written())


def test_no_signal_arrives_in_the_thread_that_draws(terminal: Terminal) -> None:
    before = set(threading.enumerate())
    with shown(terminal):
        (drawing,) = set(threading.enumerate()) - before
        status = Path(f"/proc/self/task/{drawing.native_id}/status").read_text(encoding="ascii")
        blocked = int(re.findall(r"SigBlk:\s*([0-9a-f]+)", status)[0], 16)
    for number in (signal.SIGINT, signal.SIGTERM):
        assert blocked >> (number - 1) & 1
        assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["pipe", "dumb terminal"])
def test_in_a_pipe_and_on_a_dumb_terminal_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.shown(ACTIVITY) as bar:
        for fact in stories(ACTIVITY)["completed"]:
            bar(fact)
        assert bar.stream is stream
    assert stream.getvalue() == ""


def test_a_process_without_stderr_is_shown_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with progress.shown(ACTIVITY) as bar:
        bar(started(ACTIVITY))
        assert bar.stream.write("lost\n") == 5


def test_rich_is_not_loaded_where_there_is_no_terminal() -> None:
    code = (
        "import sys; from pgretention.sinks import progress; from tests.support.facts import ACTIVITY\n"
        "with progress.shown(ACTIVITY): print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout == "False\n"
