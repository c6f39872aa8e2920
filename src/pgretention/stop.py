"""How a run is asked to end: between batches, or at once by cancelling the statement in flight (H-02)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

from pgretention.db import Session

_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})


class Stop:
    """A request to end, shared between the thread that runs and whoever asks it to stop."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._forced = threading.Event()
        self._session: Session | None = None

    @property
    def requested(self) -> bool:
        """Whether the run is to end before its next batch."""
        return self._requested.is_set()

    @property
    def forced(self) -> bool:
        """Whether even the statement in flight is to be given up."""
        return self._forced.is_set()

    def request(self) -> None:
        """End after the current batch."""
        self._requested.set()

    def force(self) -> None:
        """End now: the current batch is cancelled on the server and rolled back."""
        self._requested.set()
        self._forced.set()
        session = self._session
        if session is not None:
            session.cancel()

    @contextmanager
    def watching(self, session: Session) -> Generator[None]:
        """While inside, `force` cancels what this session is doing."""
        self._session = session
        try:
            yield
        finally:
            self._session = None


@contextmanager
def on_signals(stop: Stop) -> Generator[None]:
    """While inside, the first SIGINT or SIGTERM requests a stop and every further one forces it.

    A thread waits for the signals, so that no handler interrupts a statement half way or waits for a lock that the
    main thread holds.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    over = threading.Event()

    def wait() -> None:
        while not over.is_set():
            if signal.sigtimedwait(_SIGNALS, 0.1) is None:
                continue
            if stop.requested:
                stop.force()
            else:
                stop.request()

    waiter = threading.Thread(target=wait, name="signals", daemon=True)
    waiter.start()
    try:
        yield
    finally:
        over.set()
        waiter.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
