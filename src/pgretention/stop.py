"""How a run is asked to end: between batches, then at once by cancelling what its sessions are doing (H-02)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from pgretention.clock import Clock
from pgretention.session import Session

_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})

_LISTENING = 0.1
"""Seconds between two looks at signals and clock; how late a grace can end."""

_AGAIN = 1.0
"""Seconds between two cancellations: one that arrives between two statements has nothing to cancel."""

_CANCELLATIONS = 5
"""After so many the server is not listening, and the sessions are hung up on."""


class Stop:
    """A request to end, shared between the threads that run and whoever asks them to stop."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._forced = threading.Event()
        self._sessions: tuple[Session, ...] = ()
        self._changing = threading.Lock()

    @property
    def requested(self) -> bool:
        """Whether a run is to end before its next batch."""
        return self._requested.is_set()

    @property
    def forced(self) -> bool:
        """Whether even the statement in flight is to be given up."""
        return self._forced.is_set()

    def wait(self, at_most: timedelta) -> bool:
        """Wait for that long, or until a stop is requested; whether it is."""
        return self._requested.wait(max(at_most.total_seconds(), 0.0))

    def request(self) -> None:
        """End after the current batch."""
        self._requested.set()

    def force(self) -> None:
        """End now: the current batch is cancelled on the server and rolled back."""
        self._forced.set()
        self._requested.set()
        for session in self._sessions:
            session.cancel()

    def hang_up(self) -> None:
        """End now although the server does not answer: close the connections, which rolls back what is in flight."""
        for session in self._sessions:
            session.hang_up()

    @contextmanager
    def watching(self, session: Session) -> Generator[None]:
        """While inside, `force` cancels what this session is doing."""
        with self._changing:
            self._sessions = (*self._sessions, session)
        try:
            yield
        finally:
            with self._changing:
                self._sessions = tuple(other for other in self._sessions if other is not session)


@contextmanager
def on_signals(stop: Stop, *, grace: timedelta, clock: Clock) -> Generator[None]:
    """While inside, the first SIGINT or SIGTERM requests a stop; a second one, or the end of the grace, forces it.

    A stop that is forced is forced again every second, and when the server does not listen the sessions are hung up
    on. A thread waits for the signals, so that no handler interrupts a statement half way or waits for a lock that
    the main thread holds.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    over = threading.Event()
    waiter = threading.Thread(target=_listen, args=(stop, over, grace, clock), name="signals", daemon=True)
    waiter.start()
    try:
        yield
    finally:
        over.set()
        waiter.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """For a command that has told its result and is about to end: nothing may change its exit code any more."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _listen(stop: Stop, over: threading.Event, grace: timedelta, clock: Clock) -> None:
    due: float | None = None
    cancelled = 0
    while not over.wait(_LISTENING):
        # Without waiting in it: interrupted by a suspension, sigtimedwait answers with a signal that nobody sent.
        heard = signal.sigtimedwait(_SIGNALS, 0) is not None
        now = clock.monotonic()
        if heard and due is None:
            stop.request()
            due = now + grace.total_seconds()
        elif due is not None and (heard or now >= due):
            if cancelled >= _CANCELLATIONS:
                stop.hang_up()
            else:
                stop.force()
            cancelled += 1
            due = now + _AGAIN
