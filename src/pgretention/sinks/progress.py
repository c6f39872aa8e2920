"""How far a run is, for whoever waits for it at a terminal; nothing at all where stderr is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TextIO

from pgretention.clock import Clock, SystemClock
from pgretention.job import Job
from pgretention.report import Fact
from pgretention.sinks import logs


class Progress(Protocol):
    """A sink, and the stream that log lines go to as long as it is shown, so that neither tears the other."""

    @property
    def stream(self) -> TextIO: ...

    def __call__(self, fact: Fact) -> None: ...


@contextmanager
def shown(job: Job, *, stopping: Callable[[], bool] = lambda: False, clock: Clock | None = None) -> Generator[Progress]:
    """While inside, show on stderr how far the run of `job` is, if that is a terminal; leaves one line behind.

    `stopping` tells whether a stop was asked for. Whatever is written to sys.stderr meanwhile appears above the bar.
    """
    stream = logs.stderr()
    if not stream.isatty():
        yield _Unseen(stream)
        return
    from rich.console import Console  # noqa: PLC0415  only a terminal needs it

    from pgretention.sinks.bar import Bar  # noqa: PLC0415  as above

    console = Console(stderr=True, soft_wrap=True)
    if console.is_dumb_terminal:
        yield _Unseen(stream)
        return
    with Bar(job, console, clock or SystemClock(), stopping) as bar:
        yield bar


@dataclass(frozen=True, slots=True)
class _Unseen:
    stream: TextIO

    def __call__(self, fact: Fact) -> None:
        pass
