"""The signals that ask a process to end, held back until somebody listens; loads nothing, since that is what it is for.

A `run` or a `worker` that is asked to end while its modules are still being loaded would die without a word. So they
are held back from the first moment, and whoever hears them (`stop.on_signals`) hears of an early one too. Commands that
have nothing to finish let them through.
"""

from __future__ import annotations

import signal
from typing import Final

ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM})


def hold() -> None:
    """From now on they wait, also when the process was started with them ignored."""
    for number in ENDING:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def let_through() -> None:
    """They end the process as usual."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
