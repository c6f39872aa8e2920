"""Hosts whose clocks are wrong."""

from __future__ import annotations

from datetime import datetime, timedelta

from pgretention.clock import SystemClock


class FastClock(SystemClock):
    """A host whose clock is wrong by so much."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by
