"""What makes a throw-away server die with the process that started it, even by kill -9.

A small shell process in its own session reads a pipe that only we hold open. It learns from the pipe which
process runs, and when the pipe ends, because we closed it or because we are gone, it stops that process and
removes the folder. The operating system closes the pipe however we die, which no signal handler or exit hook
can promise. PR_SET_PDEATHSIG is no way out: it follows the thread that started the child, not the process.
"""

from __future__ import annotations

import os
import subprocess
import weakref
from contextlib import suppress
from pathlib import Path

from pgretention.errors import ThrowawayServerError

# Lines on the pipe: a pid (this process runs now) or `-` (it is gone, its pid may be anybody's).
# INT is PostgreSQL's fast shutdown, QUIT its immediate one. A process that has ended, but that its parent has
# not waited for, still takes signals: so /proc is asked too, where there is one.
_SCRIPT = r"""
trap '' HUP INT TERM
pid=-
while read -r line; do pid=$line; done
runs() {
    [ "$pid" != - ] && kill -0 "$pid" 2>/dev/null || return 1
    state=unknown
    { read -r _ _ state _ <"/proc/$pid/stat"; } 2>/dev/null
    [ "$state" != Z ]
}
for signal in INT QUIT KILL; do
    runs && kill -s "$signal" "$pid"
    turns=0
    while runs && [ "$turns" -lt "$2" ]; do sleep 0.05; turns=$((turns + 1)); done
done
turns=0
until rm -rf -- "$1" || [ "$turns" -ge 100 ]; do sleep 0.05; turns=$((turns + 1)); done
"""

_TURNS = 200
"""How many times, 50 ms apart, the watchdog looks whether a signal has worked before it sends the next one."""

PATIENCE = 60.0
"""Seconds in which a watchdog has certainly ended: 10 for each signal, 5 for the removal, and a reserve."""


class Watchdog:
    """Guards one folder and the process that works in it: neither outlives us, nor `release` and `wait`.

    The folder is made after the watchdog is, so there is no moment in which it exists unguarded. A process that
    is about to run reports itself by writing its pid to `pipe`, as one line, and then closes it.
    """

    def __init__(self, folder: Path) -> None:
        reading_end, self._pipe = os.pipe()
        try:
            # No output of ours is inherited: whoever reads it would wait for the watchdog too.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "pgretention-watchdog", folder, str(_TURNS)],
                stdin=reading_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        except BaseException:
            self.release()
            raise
        finally:
            os.close(reading_end)
        _watchdogs.add(self)

    @property
    def on_duty(self) -> bool:
        """False once released, and in a forked child, which owns neither the folder nor the process."""
        return self._pipe >= 0

    @property
    def pipe(self) -> int:
        """The file descriptor of our end; it is not inherited unless it is handed on."""
        if not self.on_duty:
            raise ThrowawayServerError("this throw-away PostgreSQL has been stopped: start another one")
        return self._pipe

    def forget(self) -> None:
        """Say that the process is gone and waited for: its pid means nothing any more."""
        with suppress(BrokenPipeError):  # a watchdog that somebody killed needs no telling
            os.write(self.pipe, b"-\n")

    def release(self) -> None:
        """Let the watchdog stop the process and remove the folder; `wait` returns when that is done."""
        if self.on_duty:
            pipe, self._pipe = self._pipe, -1
            os.close(pipe)

    def wait(self) -> None:
        """Wait until the watchdog has done its work and ended."""
        self._process.wait(PATIENCE)


_watchdogs: weakref.WeakSet[Watchdog] = weakref.WeakSet()


def _release_all() -> None:
    for watchdog in _watchdogs:
        watchdog.release()


# A program that is started never has the pipe (close-on-exec); a child that is only forked, the way of
# multiprocessing, would hold it open beyond our death.
os.register_at_fork(after_in_child=_release_all)
