"""How a run is asked to end: between batches, then at once by cancelling what its sessions are doing (H-02)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import NoReturn

from pgretention import signals
from pgretention.clock import Clock
from pgretention.errors import Fault, FaultKind
from pgretention.session import Session

_LISTENING = 0.1
"""Seconds between two looks at signals and clock; how late a grace can end."""

_AGAIN = 1.0
"""Seconds between two cancellations: one that arrives between two statements has nothing to cancel."""

_CANCELLATIONS = 5
"""After so many the server is not listening, and the sessions are hung up on."""

_TOLD = 0.5
"""Seconds that a line of the log may take to be written before the stop goes on without it."""

_HANG_UPS = 15
"""After so many of both this process is not listening itself. What is in flight is rolled back as it goes."""


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

    def given_up(self) -> Fault | None:
        """Why a connection is no longer waited for, once a stop is requested; see `session.connect`."""
        return Fault(FaultKind.CANCELLED, "stopped while connecting") if self.requested else None

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


def _leave() -> NoReturn:
    os._exit(1)


@contextmanager
def on_signals(
    stop: Stop,
    *,
    grace: timedelta,
    clock: Clock,
    told: Callable[[str], None],
    leave: Callable[[], object] = _leave,
) -> Generator[None]:
    """While inside, the first SIGINT or SIGTERM requests a stop; a second one, or the end of the grace, forces it.

    A stop that is forced is forced again every second; when the server does not listen the sessions are hung up on, and
    when the process itself hangs, on a full pipe to its log say, `leave` is called. What is begun is `told` in words;
    that may fail to return. A thread waits for the signals, so that no handler interrupts a statement half way or waits
    for a lock that the main thread holds.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.ENDING)
    listener = _Listener(stop, grace, clock, told, leave)
    listener.listen()  # to what came before anybody did
    over = threading.Event()
    waiter = threading.Thread(target=listener.keep_listening, args=(over,), name="signals", daemon=True)
    waiter.start()
    try:
        yield
    finally:
        over.set()
        waiter.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Listener:
    """Makes of signals and time that passes what they ask for."""

    def __init__(
        self,
        stop: Stop,
        grace: timedelta,
        clock: Clock,
        told: Callable[[str], None],
        leave: Callable[[], object],
    ) -> None:
        self._stop = stop
        self._grace = grace
        self._clock = clock
        self._told = told
        self._leave = leave
        self._due: float | None = None
        self._forced = 0

    def keep_listening(self, over: threading.Event) -> None:
        while not over.wait(_LISTENING):
            self.listen()

    def listen(self) -> None:
        # Without waiting in it: interrupted by a suspension, sigtimedwait answers with a signal that nobody sent.
        heard = signal.sigtimedwait(signals.ENDING, 0)
        now = self._clock.monotonic()
        if heard is not None and self._due is None:
            self._tell("stopping")
            self._stop.request()
            self._due = now + self._grace.total_seconds()
        elif self._due is not None and (heard is not None or now >= self._due):
            self._force()
            self._due = now + _AGAIN

    def _force(self) -> None:
        if self._forced == 0:
            self._tell("cancelling what is in flight")
        if self._forced < _CANCELLATIONS:
            self._stop.force()
        elif self._forced < _HANG_UPS:
            self._stop.hang_up()
        else:
            self._leave()
        self._forced += 1

    def _tell(self, words: str) -> None:
        teller = threading.Thread(target=self._told, args=(words,), name="teller", daemon=True)
        teller.start()
        teller.join(_TOLD)
