"""Numbers, instants and lengths of time as a page says them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_SOON: Final = 90
"""Seconds, minutes and so on up to which the smaller unit says more."""


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 row`, `1,234 rows`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def roughly(length: timedelta) -> str:
    """A length of time in one unit: `45 s`, `12 min`, `5 h`, `14 days`."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 10:  # noqa: PLR2004  a digit more where it tells something
        return f"{seconds:.1f} s"
    if seconds < _SOON:
        return f"{seconds:.0f} s"
    if seconds < _SOON * _MINUTE:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.0f} h"
    return f"{seconds / _DAY:,.0f} days"


def exactly(length: timedelta) -> str:
    """A length of time to the second, as people say it: `365 days`, `1 day 30 min`, `1 min 5 s`."""
    seconds = round(length.total_seconds())
    parts = (seconds // _DAY, seconds % _DAY // _HOUR, seconds % _HOUR // _MINUTE, seconds % _MINUTE)
    units = ("day" if parts[0] == 1 else "days", "h", "min", "s")
    said = [f"{number:,} {unit}" for number, unit in zip(parts, units, strict=True) if number]
    return " ".join(said) or "0 s"


def ago(instant: datetime, now: datetime) -> str:
    """How long ago something was: `12 min ago`, `just now`."""
    past = now - instant
    return "just now" if past < timedelta(seconds=2) else f"{roughly(past)} ago"


def ahead(instant: datetime, now: datetime) -> str:
    """How far ahead something is: `in 5 h`, `now`."""
    left = instant - now
    return "now" if left < timedelta(seconds=1) else f"in {roughly(left)}"


def clock_time(instant: datetime, zone: str = "UTC") -> str:
    """An instant on the wall of a zone: `Thu 3 Dec 2026 03:00:00`."""
    local = instant.astimezone(UTC if zone == "UTC" else ZoneInfo(zone))
    return f"{local:%a} {local.day} {local:%b %Y %H:%M:%S}"
