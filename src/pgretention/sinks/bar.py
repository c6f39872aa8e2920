"""The progress bar: draws what `pace` has to say; imported only where a terminal shows it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Self, TextIO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from pgretention.clock import Clock
from pgretention.job import Job
from pgretention.report import Fact, Outcome
from pgretention.sinks import pace
from pgretention.sinks.pace import Seen

_WIDEST, _NARROWEST = 40, 8
_GAP = "  "
_ECHO = len("^C") + 1
"""Columns left free at the end, so that the terminal's echo of Ctrl-C does not push the cursor off the line."""

_STYLES = {
    Outcome.COMPLETED: "green",
    Outcome.LIMIT_REACHED: "yellow",
    Outcome.STOPPED: "yellow",
    Outcome.SKIPPED: "dim",
    Outcome.REFUSED: "red",
    Outcome.PARTIAL: "red",
    Outcome.FAILED: "red",
}


class Bar:
    """One line at the foot of the terminal, drawn anew several times a second, with the log scrolling above it."""

    def __init__(self, job: Job, console: Console, clock: Clock, stopping: Callable[[], bool]) -> None:
        self._job = job
        self._clock = clock
        self._stopping = stopping
        self._seen = Seen(began=clock.monotonic())
        self._live = Live(self, console=console, refresh_per_second=8, redirect_stdout=False)

    @property
    def stream(self) -> TextIO:
        """Standard error as it is now: while the bar is shown, lines written to it go above the bar."""
        return sys.stderr

    def __enter__(self) -> Self:
        # The thread that draws must not be where a signal arrives, for it would interrupt the main thread after all.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._live.start(refresh=True)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, fact: Fact) -> None:
        self._seen = self._seen.after(fact, str(self._job.policy.root), self._clock.monotonic())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The line as it is now; on a narrow terminal first the bar gives way, then the less important words."""
        seen = self._seen
        narrower = options.update_width(max(1, options.max_width - _ECHO))
        label = Text(pace.label(seen, self._job, stopping=self._stopping()))
        if seen.report is not None:
            label.stylize(_STYLES[seen.report.outcome])
        words = pace.words(seen, self._job, self._clock.monotonic())
        room = narrower.max_width - label.cell_len
        while len(words) > 1 and _width(words) > room:
            del words[-2]
        cells: list[RenderableType] = [label, Text(_GAP.join(words))]
        room = min(_WIDEST, room - _width(words) - len(_GAP))
        if room >= _NARROWEST and pace.has_bar(seen):
            cells.insert(1, _bar(pace.share(seen), room))
        line = Table.grid(*(Column(no_wrap=True) for _ in cells), padding=(0, len(_GAP), 0, 0), pad_edge=False)
        line.add_row(*cells)
        yield from console.render(line, narrower)


def _width(words: list[str]) -> int:
    return sum(len(_GAP) + len(word) for word in words)


def _bar(share: float | None, width: int) -> ProgressBar:
    total, done = (None, 0.0) if share is None else (1.0, share)
    return ProgressBar(total, done, width, complete_style="cyan", finished_style="green", pulse_style="cyan")
