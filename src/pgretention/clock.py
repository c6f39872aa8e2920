"""The one place that reads clocks; everything else is handed a Clock or an instant."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, and how long something took."""

    def now(self) -> datetime:
        """The wall clock as an aware instant in UTC; it can jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back, and only differences mean anything."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


def uptime() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine sleeps, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
