"""`pgretention worker` as a process, whose log is read while it goes on."""

from __future__ import annotations

import json
import signal
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.command import Command, Ended

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"

_SCHEDULES = {
    ACTIVITY: ("ActivityRetention__RetentionSchedule", "ActivityRetention__TimeZone"),
    GUESTS: ("Favorites__GuestRetention__Cron", "Favorites__GuestRetention__TimeZone"),
}
_PATIENCE = 100
"""Seconds for what is certain to come: the next minute's run, should a slow machine have missed this one's."""

Line = dict[str, Any]


def every_minute(next_in: int) -> dict[str, str]:
    """Both jobs run at the start, since a run was due a moment before, and again in so many seconds."""
    due = _now() + timedelta(seconds=next_in)
    return _both(f"{due.second} * * * * *")


def daily(due: datetime) -> dict[str, str]:
    """Both jobs run at that time of the day; at the start if it is just over."""
    return _both(f"{due.second} {due.minute} {due.hour} * * *")


def just_now() -> dict[str, str]:
    """Both jobs run at the start, and not again today."""
    return daily(_now() - timedelta(minutes=1))


def not_today() -> dict[str, str]:
    """No job runs while a test goes on."""
    return daily(_now() + timedelta(hours=12))


def soon() -> datetime:
    """Late enough for a worker to be up and waiting by then."""
    return (_now() + timedelta(seconds=8)).replace(microsecond=0)


def _now() -> datetime:
    return datetime.now(UTC)


def _both(cron: str) -> dict[str, str]:
    return {name: value for schedule, zone in _SCHEDULES.values() for name, value in ((schedule, cron), (zone, "UTC"))}


class Worker:
    """A running worker; every line of its log is kept as it comes."""

    def __init__(self, command: Command, *jobs: str, **more: str) -> None:
        self._command = command
        words = ("worker", *jobs, "--log-format", "json")
        self.process = command.start(*words, **{"Http__Listen": "off", **more})
        self._lines: list[str] = []
        self._over = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="log of a worker", daemon=True)
        self._reader.start()

    @property
    def log(self) -> list[Line]:
        """What it has said so far."""
        with self._changed:  # which the same thread may hold already
            return [dict(json.loads(line)) for line in self._lines]

    def said(self, event: str, **fields: object) -> list[Line]:
        """The lines of that event with these fields, as far as they have come."""
        return [line for line in self.log if line["event"] == event and fields.items() <= line.items()]

    def until_said(self, event: str, times: int = 1, **fields: object) -> Line:
        """Wait for that line to come so many times, and answer the last of them."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.said(event, **fields)) >= times or self._over, _PATIENCE)
        found = self.said(event, **fields)
        assert came, ("waited in vain", event, fields, self.log)
        assert len(found) >= times, ("it ended", event, fields, self.log)
        return found[times - 1]

    def end(self, ending: signal.Signals = signal.SIGTERM) -> Ended:
        """Send a signal and wait for the end."""
        self.process.send_signal(ending)
        return self.ended()

    def ended(self) -> Ended:
        """Wait for the end, and look at what is left of it."""
        code = self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        ended = Ended(code, self.process.stdout.read(), "".join(self._lines))
        self._command.look_at(ended)
        return ended

    def _read(self) -> None:
        try:
            assert self.process.stderr is not None
            for line in self.process.stderr:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()
